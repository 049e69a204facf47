#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tokenizer/test_vocab.h"
#include "tokenizer/vocab_tokenizer.h"

namespace tierkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Tokenizer> make(VocabData data) {
  auto result = make_tokenizer(std::move(data));
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(*result);
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            const EncodeOptions& options = {}) {
  auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<TokenId>{-99};
}

TEST(Bpe, MergesInTheOrderOfTheList) {
  VocabData data = byte_level_vocab();
  const TokenId bc = add_merge(data, "b", "c");
  const TokenId ab = add_merge(data, "a", "b");
  const TokenId abc = add_merge(data, "a", "bc");
  const auto tokenizer = make(data);
  EXPECT_THAT(encode(*tokenizer, "abc"), ElementsAre(abc)) << "b+c comes before a+b";
  EXPECT_THAT(encode(*tokenizer, "ab"), ElementsAre(ab));
  EXPECT_THAT(encode(*tokenizer, "bcab"), ElementsAre(bc, ab));
  EXPECT_THAT(encode(*tokenizer, "abbc"), ElementsAre(ab, bc));
}

TEST(Bpe, OfEqualMergesTheLeftmost) {
  VocabData data = byte_level_vocab();
  const TokenId aa = add_merge(data, "a", "a");
  EXPECT_THAT(encode(*make(data), "aaa"), ElementsAre(aa, 'a'));
}

TEST(Bpe, NeverMergesAcrossPieces) {
  VocabData data = byte_level_vocab();
  const TokenId space_b = add_merge(data, "\u0120", "b");
  add_merge(data, "a", "\u0120");
  EXPECT_THAT(encode(*make(data), "a b"), ElementsAre('a', space_b));
}

TEST(Bpe, IgnoreMergesTakesAWholeWord) {
  for (const bool llama : {false, true}) {
    VocabData data = byte_level_vocab(llama ? "llama-bpe" : "qwen2");
    const TokenId word = add_token(data, "\u0120xyz");  // no merge leads to it
    const auto ids = encode(*make(data), "a xyz");
    if (llama) {
      EXPECT_THAT(ids, ElementsAre('a', word));
    } else {
      EXPECT_THAT(ids, ElementsAre('a', ' ', 'x', 'y', 'z'));
    }
  }
}

TEST(Bpe, MergesOfUnknownTokensAreSkipped) {
  VocabData data = byte_level_vocab();
  data.merges = {"a b", "q zz", "b c"};  // "ab" and "zz" are no tokens
  const TokenId bc = add_token(data, "bc");
  EXPECT_THAT(encode(*make(data), "abc"), ElementsAre('a', bc));
}

TEST(Bpe, AMergeIsSplitAtTheFirstSpaceAfterItsFirstByte) {
  VocabData data = byte_level_vocab();
  data.merges = {"abc"};
  EXPECT_EQ(make_tokenizer(data).status().code(), StatusCode::kCorrupt);
  data.merges = {"a "};
  EXPECT_EQ(make_tokenizer(data).status().code(), StatusCode::kCorrupt);
}

TEST(Bpe, ControlTokensComeFromTextOnlyWhenAsked) {
  VocabData data = byte_level_vocab("llama-bpe");
  const TokenId end = add_token(data, "<|eot|>", TokenKind::kControl);
  const TokenId tool = add_token(data, "<tool>", TokenKind::kUserDefined);
  const auto tokenizer = make(data);
  EXPECT_THAT(encode(*tokenizer, "a<|eot|><tool>b", {.parse_special = true}),
              ElementsAre('a', end, tool, 'b'));
  EXPECT_THAT(encode(*tokenizer, "<|eot|>"), ElementsAre('<', '|', 'e', 'o', 't', '|', '>'))
      << "nor as a whole word";
  EXPECT_EQ(tokenizer->token_bytes(end), "");
  EXPECT_EQ(tokenizer->token_bytes(end, true), "<|eot|>");
  EXPECT_EQ(tokenizer->token_bytes(tool), "<tool>");
  EXPECT_EQ(tokenizer->decode({'a', end, tool}), "a<tool>");
  EXPECT_EQ(tokenizer->decode({'a', end, tool}, true), "a<|eot|><tool>");
}

TEST(Bpe, BosAndEosAsTheFileOrThePreTokenizerSays) {
  VocabData data = byte_level_vocab();
  data.bos = add_token(data, "<s>", TokenKind::kControl);
  data.eos = add_token(data, "</s>", TokenKind::kControl);
  EXPECT_THAT(encode(*make(data), "a"), ElementsAre('a')) << "GPT-2 has none";
  data.pre = "llama-bpe";
  EXPECT_THAT(encode(*make(data), "a"), ElementsAre(*data.bos, 'a')) << "Llama 3 has BOS";
  EXPECT_THAT(encode(*make(data), "a", {.add_special = false}), ElementsAre('a'));
  data.add_bos = false;
  data.add_eos = true;
  EXPECT_THAT(encode(*make(data), "a"), ElementsAre('a', *data.eos));
  EXPECT_FALSE(make(data)->adds_bos());
}

TEST(Bpe, AMissingByteIsUnknownOrAnErrorThatNamesIt) {
  VocabData data = byte_level_vocab();
  data.tokens['q'] = "something else";
  const auto status = make(data)->encode("aq", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("0x71"));
  data.unk = add_token(data, "<unk>", TokenKind::kUnknown);
  EXPECT_THAT(encode(*make(data), "aq"), ElementsAre('a', *data.unk));
}

TEST(Bpe, DecodesWhatItEncodes) {
  std::mt19937 random(5);
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    VocabData data = byte_level_vocab(pre);
    std::vector<std::string> words(data.tokens.begin(), data.tokens.begin() + 128);
    for (int i = 0; i < 400; ++i) {
      const std::string left = words[random() % words.size()];
      const std::string right = words[random() % words.size()];
      add_merge(data, left, right);
      words.push_back(left + right);
    }
    add_token(data, "<tool>", TokenKind::kUserDefined);
    const auto tokenizer = make(data);
    for (int round = 0; round < 300; ++round) {
      std::string text = random_text(random, 40);
      if (round % 3 == 0) text.insert(0, "<tool>");
      ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text) << pre;
    }
  }
}

// Quadratic work on a megabyte would take hours: that the test ends is the test.
TEST(Bpe, AMegabyteOfOneLetterOrOfSpaces) {
  VocabData data = byte_level_vocab("llama-bpe");
  add_merge(data, "a", "a");
  add_merge(data, "aa", "aa");
  const TokenId a8 = add_merge(data, "aaaa", "aaaa");
  const TokenId spaces = add_merge(data, "\u0120", "\u0120");
  const auto tokenizer = make(data);
  EXPECT_EQ(encode(*tokenizer, std::string(1 << 20, 'a')), std::vector<TokenId>(1 << 17, a8));
  EXPECT_EQ(encode(*tokenizer, std::string(1 << 20, ' ')), std::vector<TokenId>(1 << 19, spaces));
}

}  // namespace
}  // namespace tierkv
