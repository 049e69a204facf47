#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory_file.h"
#include "gguf/test_writer.h"
#include "tokenizer/test_vocab.h"
#include "tokenizer/vocab_tokenizer.h"

namespace tierkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<std::unique_ptr<Tokenizer>> create(const GgufTestWriter& writer) {
  auto file = GgufFile::parse(std::make_unique<MemoryFile>(writer.bytes(), "tiny.gguf"));
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return file.status();
  return Tokenizer::create(*file);
}

// A file with the arrays of `data`; the other keys are the test's.
GgufTestWriter gguf_with(const VocabData& data) {
  GgufTestWriter writer;
  writer.add("general.architecture", "llama").add("tokenizer.ggml.model", data.model);
  writer.add("tokenizer.ggml.tokens", data.tokens);
  std::vector<int32_t> kinds;
  for (const TokenKind kind : data.kinds) kinds.push_back(static_cast<int32_t>(kind));
  writer.add("tokenizer.ggml.token_type", kinds);
  if (data.model == "llama") writer.add("tokenizer.ggml.scores", data.scores);
  if (data.model == "gpt2") writer.add("tokenizer.ggml.merges", data.merges);
  return writer;
}

TEST(Tokenizer, CreatesSentencePieceWithItsDefaults) {
  VocabData data = spm_vocab();
  const TokenId hi = add_token(data, "\u2581hi");
  for (const char* text : {"h", "i", "hi"}) add_token(data, text);
  const auto tokenizer = create(gguf_with(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const Tokenizer& t = **tokenizer;
  EXPECT_EQ(t.vocab_size(), static_cast<int64_t>(data.tokens.size()));
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_TRUE(t.adds_bos());
  EXPECT_THAT(*t.encode("hi", {}), ElementsAre(1, hi));
  EXPECT_TRUE(t.is_end_of_generation(2));
  EXPECT_FALSE(t.is_end_of_generation(1));
  EXPECT_FALSE(t.is_end_of_generation(-1));
  EXPECT_EQ(t.token_text(1), "<s>");
  EXPECT_EQ(t.token_text(hi), "\u2581hi");
}

TEST(Tokenizer, KeysOverrideDefaults) {
  VocabData data = spm_vocab();
  const TokenId a = add_token(data, "a");
  const TokenId end = add_token(data, "<end>", TokenKind::kControl);
  GgufTestWriter writer = gguf_with(data);
  writer.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(end))
      .add("tokenizer.ggml.eos_token_id", uint32_t{1})
      .add("tokenizer.ggml.add_bos_token", false)
      .add("tokenizer.ggml.add_eos_token", true)
      .add("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = create(writer);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->bos(), end);
  EXPECT_THAT(*(*tokenizer)->encode("a", {}), ElementsAre(a, 1));
}

TEST(Tokenizer, CreatesByteLevelBpe) {
  VocabData data = byte_level_vocab();
  const TokenId ab = add_merge(data, "a", "b");
  GgufTestWriter writer = gguf_with(data);
  writer.add("tokenizer.ggml.pre", "smollm");
  const auto tokenizer = create(writer);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_THAT(*(*tokenizer)->encode("ab12", {}), ElementsAre(ab, '1', '2'));
  EXPECT_EQ((*tokenizer)->bos(), -1);
}

TEST(Tokenizer, UnknownKindsAreNamed) {
  VocabData data = byte_level_vocab();
  GgufTestWriter strange_pre = gguf_with(data);
  strange_pre.add("tokenizer.ggml.pre", "strange");
  EXPECT_EQ(create(strange_pre).status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(create(strange_pre).status().message(), HasSubstr("strange"));
  data.model = "rwkv";
  const auto status = create(gguf_with(data)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("rwkv"));
  EXPECT_THAT(status.message(), HasSubstr("tiny.gguf"));
}

TEST(Tokenizer, MissingKeysAndContradictionsAreErrors) {
  EXPECT_EQ(create(GgufTestWriter()).status().code(), StatusCode::kNotFound);

  GgufTestWriter bad_id = gguf_with(byte_level_vocab());
  bad_id.add("tokenizer.ggml.eos_token_id", uint32_t{256});
  EXPECT_EQ(create(bad_id).status().code(), StatusCode::kCorrupt);
  GgufTestWriter no_id = gguf_with(byte_level_vocab());
  no_id.add("tokenizer.ggml.eos_token_id", UINT32_MAX);
  ASSERT_TRUE(create(no_id).ok());
  EXPECT_EQ((*create(no_id))->eos(), -1);

  VocabData data = byte_level_vocab();
  data.kinds.pop_back();
  EXPECT_EQ(create(gguf_with(data)).status().code(), StatusCode::kCorrupt);
  data.kinds.push_back(static_cast<TokenKind>(7));
  EXPECT_EQ(create(gguf_with(data)).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(make_tokenizer({.model = "gpt2"}).status().code(), StatusCode::kCorrupt);
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  for (VocabData data : {byte_level_vocab(), spm_vocab()}) {
    const auto tokenizer = make_tokenizer(data);
    const auto status = (*tokenizer)->encode("caf\xc3", {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("offset 3"));
  }
}

TEST(Tokenizer, EndOfGenerationByKeyAndByName) {
  VocabData data = byte_level_vocab();
  const TokenId im_end = add_token(data, "<|im_end|>");  // a file that calls it ordinary
  const TokenId turn = add_token(data, "<end_of_turn>", TokenKind::kControl);
  const TokenId strike = add_token(data, "</s>", TokenKind::kUserDefined);
  data.eos = add_token(data, "<my_eos>", TokenKind::kControl);
  data.eot = add_token(data, "<my_eot>", TokenKind::kControl);
  data.eom = add_token(data, "<my_eom>", TokenKind::kControl);
  const auto tokenizer = make_tokenizer(data);
  ASSERT_TRUE(tokenizer.ok());
  for (const TokenId id : {im_end, turn, *data.eos, *data.eot, *data.eom}) {
    EXPECT_TRUE((*tokenizer)->is_end_of_generation(id)) << id;
  }
  EXPECT_FALSE((*tokenizer)->is_end_of_generation(strike)) << "Gemma's </s> is HTML";
  EXPECT_EQ((*tokenizer)->token_bytes(im_end), "") << "and it is not shown";
}

TEST(Tokenizer, IdsOutOfRangeStandForNothing) {
  for (VocabData data : {byte_level_vocab(), spm_vocab()}) {
    const auto tokenizer = make_tokenizer(data);
    for (const TokenId id : {-1, 256 + 3, INT32_MAX, INT32_MIN}) {
      EXPECT_EQ((*tokenizer)->token_bytes(id), "");
      EXPECT_EQ((*tokenizer)->token_text(id), "");
    }
    EXPECT_EQ((*tokenizer)->decode({-5, INT32_MAX}), "");
  }
}

}  // namespace
}  // namespace tierkv
