// The tokenizers of two real models against ids from the models' own libraries
// (tools/make_tokenizer_golden.py). TIERKV_MODELS names the directory that holds the models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/file.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#ifndef TIERKV_SOURCE_DIR
#define TIERKV_SOURCE_DIR "."
#endif

namespace tierkv {
namespace {

using testing::ElementsAre;

struct RealModel {
  const char* file;
  const char* golden;
};
constexpr RealModel kSmolLm2 = {"smollm2-135m-instruct-q4_1.gguf", "tokenizer_smollm2.json"};
constexpr RealModel kGemma3 = {"gemma-3-270m-q4_k_m.gguf", "tokenizer_gemma3.json"};

std::unique_ptr<Tokenizer> open_model(const RealModel& model) {
  const char* directory = std::getenv("TIERKV_MODELS");
  if (directory == nullptr) {
    ADD_FAILURE() << "TIERKV_MODELS is not set: set it to the directory that holds " << model.file;
    return nullptr;
  }
  auto file = GgufFile::open(real_file_system(), std::string(directory) + "/" + model.file);
  if (!file.ok()) {
    ADD_FAILURE() << file.status().message();
    return nullptr;
  }
  auto tokenizer = Tokenizer::create(*file);
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status().message();
    return nullptr;
  }
  return std::move(*tokenizer);
}

std::string read_source(const std::string& path) {
  std::ifstream file(TIERKV_SOURCE_DIR "/" + path);
  EXPECT_TRUE(file) << path << " is not under " TIERKV_SOURCE_DIR;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class RealTokenizer : public testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    tokenizer_ = open_model(GetParam());
    ASSERT_NE(tokenizer_, nullptr);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(RealTokenizer, GivesTheIdsOfTheModelsOwnLibrary) {
  const auto cases =
      nlohmann::json::parse(read_source(std::string("tests/data/") + GetParam().golden));
  EXPECT_GT(cases.size(), 80u);
  for (const auto& item : cases) {
    const std::string text = item["text"];
    const auto ids = tokenizer_->encode(
        text, {.add_special = item["add_special"], .parse_special = item["parse_special"]});
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, item["ids"].get<std::vector<TokenId>>()) << item;
    if (item["add_special"] || text.find("\u2581") != text.npos) continue;  // see decode()
    EXPECT_EQ(tokenizer_->decode(*ids, item["parse_special"]), text);
  }
}

// All golden texts in a row, many times over, and everything in one piece of 1 MB or more.
TEST_P(RealTokenizer, ALongTextComesBack) {
  const auto cases =
      nlohmann::json::parse(read_source(std::string("tests/data/") + GetParam().golden));
  std::string text;
  while (text.size() < 1 << 20) {
    for (const auto& item : cases) text += item["text"].get<std::string>() + " ";
  }
  for (size_t at; (at = text.find("\u2581")) != text.npos;) text.erase(at, 3);
  const auto ids = tokenizer_->encode(text, {});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer_->decode(*ids), text);

  Utf8Stream stream;
  std::string streamed;
  for (const TokenId id : *ids) streamed += stream.push(tokenizer_->token_bytes(id));
  EXPECT_EQ(streamed + stream.flush(), text);
}

INSTANTIATE_TEST_SUITE_P(Models, RealTokenizer, testing::Values(kSmolLm2, kGemma3),
                         [](const auto& info) {
                           return info.param.file == kSmolLm2.file ? "SmolLm2" : "Gemma3";
                         });

TEST(RealTokenizerFacts, SmolLm2) {
  const auto t = open_model(kSmolLm2);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->vocab_size(), 49152);
  EXPECT_FALSE(t->adds_bos());
  EXPECT_EQ(t->token_text(t->bos()), "<|im_start|>");
  EXPECT_EQ(t->token_text(t->eos()), "<|im_end|>");
  EXPECT_TRUE(t->is_end_of_generation(2)) << "<|im_end|>";
  EXPECT_TRUE(t->is_end_of_generation(0)) << "<|endoftext|>";
  EXPECT_FALSE(t->is_end_of_generation(1));
}

TEST(RealTokenizerFacts, Gemma3) {
  const auto t = open_model(kGemma3);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->vocab_size(), 262144);
  EXPECT_TRUE(t->adds_bos());
  EXPECT_EQ(t->token_text(t->bos()), "<bos>");
  EXPECT_TRUE(t->is_end_of_generation(1)) << "<eos>";
  EXPECT_TRUE(t->is_end_of_generation(106)) << "<end_of_turn>";
  EXPECT_FALSE(t->is_end_of_generation(212)) << "</s> is HTML's strike-through here";
  EXPECT_THAT(*t->encode("", {}), ElementsAre(t->bos()));
}

}  // namespace
}  // namespace tierkv
