#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#ifndef TIERKV_SOURCE_DIR
#define TIERKV_SOURCE_DIR "."
#endif

namespace tierkv {
namespace {

using testing::ElementsAre;

PreTokenizer make(std::string_view name) {
  auto spec = find_pre_tokenizer(name);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  auto result = PreTokenizer::create(*spec);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(*result);
}

std::vector<std::string_view> split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  auto pieces = pre_tokenizer.split(text);
  EXPECT_TRUE(pieces.ok()) << pieces.status().message();
  return pieces.ok() ? *pieces : std::vector<std::string_view>{};
}

const char* const kNames[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

// Golden pieces from the Hugging Face library: tools/make_tokenizer_golden.py.
TEST(PreTokenizer, CutsAsTheReferenceDoes) {
  std::ifstream file(TIERKV_SOURCE_DIR "/tests/data/pretokenizer.json");
  ASSERT_TRUE(file) << "tests/data/pretokenizer.json is not under " TIERKV_SOURCE_DIR;
  const nlohmann::json cases = nlohmann::json::parse(file);
  std::map<std::string, PreTokenizer, std::less<>> by_name;
  for (const char* name : kNames) by_name.emplace(name, make(name));
  EXPECT_GT(cases.size(), 300u);
  for (const auto& item : cases) {
    const std::string text = item["text"], pre = item["pre"];
    const auto pieces = split(by_name.at(pre), text);
    EXPECT_EQ(std::vector<std::string>(pieces.begin(), pieces.end()),
              item["pieces"].get<std::vector<std::string>>())
        << pre << ": " << item["text"];
  }
}

TEST(PreTokenizer, ThePiecesAreTheText) {
  const std::string text = "a\n\n b's 123\t\xe2\x82\xac \xf0\x9f\x98\x80\r\n ";
  for (const char* name : kNames) {
    std::string joined;
    for (const std::string_view piece : split(make(name), text)) joined += piece;
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(PreTokenizer, KnowsAliasesAndDefaults) {
  EXPECT_EQ(find_pre_tokenizer("")->name, "gpt-2");
  EXPECT_EQ(find_pre_tokenizer("default")->name, "gpt-2");
  EXPECT_EQ(find_pre_tokenizer("llama3")->name, "llama-bpe");
  EXPECT_EQ(find_pre_tokenizer("llama-v3")->name, "llama-bpe");
  EXPECT_TRUE(find_pre_tokenizer("llama-v3")->ignore_merges);
  const auto unknown = find_pre_tokenizer("tekken");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(unknown.status().message().find("tekken"), std::string::npos);
}

TEST(PreTokenizer, Digits) {
  EXPECT_THAT(split(make("gpt-2"), "1234"), ElementsAre("1234"));
  EXPECT_THAT(split(make("smollm"), "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(split(make("qwen2"), "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(split(make("llama-bpe"), "1234"), ElementsAre("123", "4"));
}

// PCRE2 stops after 10 million steps unless told otherwise, and backtracking takes a step a blank.
TEST(PreTokenizer, LongRunsOfOneCharacterAreNoProblem) {
  constexpr size_t kRun = 12'000'000;
  for (const char* name : {"smollm", "llama-bpe"}) {
    const PreTokenizer pre_tokenizer = make(name);
    EXPECT_EQ(split(pre_tokenizer, std::string(kRun, 'a')).size(), 1u) << name;
    EXPECT_EQ(split(pre_tokenizer, std::string(kRun, ' ')).size(), 1u) << name;
    EXPECT_EQ(split(pre_tokenizer, std::string(kRun, ' ') + "x").size(), 2u) << name;
    EXPECT_EQ(split(pre_tokenizer, std::string(kRun, '\n') + " x").size(), 2u) << name;
    EXPECT_EQ(split(pre_tokenizer, std::string(kRun, '!')).size(), 1u) << name;
  }
}

}  // namespace
}  // namespace tierkv
