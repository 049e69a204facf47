#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tokenizer/test_vocab.h"
#include "tokenizer/vocab_tokenizer.h"

namespace tierkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

#define SP "\u2581"  // how SentencePiece spells a space

constexpr TokenId kBos = 1;
TokenId byte_id(int byte) { return 3 + byte; }

std::unique_ptr<Tokenizer> make(VocabData data) {
  auto result = make_tokenizer(std::move(data));
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(*result);
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            const EncodeOptions& options = {.add_special = false}) {
  auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<TokenId>{-99};
}

VocabData without_prefix() {
  VocabData data = spm_vocab();
  data.add_space_prefix = false;
  return data;
}

TEST(Spm, TheBestScoredPairFirst) {
  VocabData data = without_prefix();
  for (const char* c : {"a", "b", "c"}) add_token(data, c);
  const TokenId ab = add_token(data, "ab", TokenKind::kNormal, -2);
  const TokenId bc = add_token(data, "bc", TokenKind::kNormal, -1);
  const TokenId c = ab - 1, a = ab - 3;
  EXPECT_THAT(encode(*make(data), "abc"), ElementsAre(a, bc));
  data.scores[ab] = 0.5;
  EXPECT_THAT(encode(*make(data), "abc"), ElementsAre(ab, c));
  data.scores[ab] = data.scores[bc] = -0.0f;
  EXPECT_THAT(encode(*make(data), "abc"), ElementsAre(ab, c)) << "a tie goes to the left";
  data.scores[ab] = 0.0f;
  EXPECT_THAT(encode(*make(data), "abc"), ElementsAre(ab, c)) << "0 and -0 are a tie";
  data.scores[bc] = 0.0f, data.scores[ab] = -0.0f;
  EXPECT_THAT(encode(*make(data), "abc"), ElementsAre(ab, c)) << "either way round";
}

TEST(Spm, PairsMayHavePartsThatAreNoTokens) {
  VocabData data = without_prefix();
  const TokenId xy = add_token(data, "xy");
  EXPECT_THAT(encode(*make(data), "xyx"), ElementsAre(xy, byte_id('x')));
}

TEST(Spm, UnknownCharactersAreSpeltInBytes) {
  VocabData data = without_prefix();
  const auto tokenizer = make(data);
  EXPECT_THAT(encode(*tokenizer, "\u20ac"),
              ElementsAre(byte_id(0xe2), byte_id(0x82), byte_id(0xac)));
  EXPECT_EQ(tokenizer->token_bytes(byte_id(0xe2)), "\xe2");
  EXPECT_THAT(encode(*tokenizer, " "), ElementsAre(byte_id(' ')))
      << "no token for U+2581: still a space";
}

TEST(Spm, WithoutByteTokensACharacterIsUnknown) {
  VocabData data;
  data.model = "llama";
  data.add_space_prefix = false;
  const TokenId unk = add_token(data, "<unk>", TokenKind::kUnknown);
  const TokenId a = add_token(data, "a");
  EXPECT_THAT(encode(*make(data), "a\u20aca"), ElementsAre(a, unk, a));
  data.kinds[unk] = TokenKind::kNormal;
  data.unk.reset();
  EXPECT_THAT(encode(*make(data), "x"), ElementsAre(0)) << "id 0 is unknown unless the file says";
}

TEST(Spm, TheSpaceInFrontIsAddedAndTakenAway) {
  VocabData data = spm_vocab();
  const TokenId a = add_token(data, "a");
  const TokenId sp = add_token(data, SP);
  const TokenId sp_a = add_token(data, SP "a");
  const TokenId tool = add_token(data, "<tool>", TokenKind::kUserDefined);
  const auto tokenizer = make(data);
  EXPECT_THAT(encode(*tokenizer, "a"), ElementsAre(sp_a));
  EXPECT_THAT(encode(*tokenizer, "aa", {}), ElementsAre(kBos, sp_a, a));
  EXPECT_THAT(encode(*tokenizer, " a"), ElementsAre(sp, sp_a));
  EXPECT_THAT(encode(*tokenizer, "a<tool>a"), ElementsAre(sp_a, tool, sp_a));
  EXPECT_THAT(encode(*tokenizer, ""), ElementsAre());
  EXPECT_EQ(tokenizer->decode({kBos, sp_a, tool, sp_a, sp_a}), "a<tool>a a");
  EXPECT_EQ(tokenizer->decode({sp, sp_a}), " a");
  EXPECT_EQ(tokenizer->token_bytes(sp_a), " a") << "a stream keeps the space";
  data.add_space_prefix = false;
  EXPECT_THAT(encode(*make(data), "a"), ElementsAre(a));
  EXPECT_EQ(make(data)->decode({sp_a}), " a");
}

TEST(Spm, UserDefinedRunsOfSpacesAreMatchedAsSpaces) {
  for (const char* spelling : {"  ", SP SP}) {
    VocabData data = without_prefix();
    const TokenId two = add_token(data, spelling, TokenKind::kUserDefined);
    const TokenId sp = add_token(data, SP);
    const auto tokenizer = make(data);
    EXPECT_THAT(encode(*tokenizer, "     "), ElementsAre(two, two, sp));
    EXPECT_EQ(tokenizer->token_bytes(two), "  ");
  }
}

TEST(Spm, TextNeverBecomesAControlOrByteTokenByMerging) {
  VocabData data = without_prefix();
  for (const char* text : {"<", "s", ">", "<s", "0", "x", "A", "<0", "<0x", "<0x0", "<0x0A"}) {
    add_token(data, text);
  }
  const auto tokenizer = make(data);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "<s><0x0A>")), "<s><0x0A>");
  EXPECT_THAT(encode(*tokenizer, "<s>", {.add_special = false, .parse_special = true}),
              ElementsAre(kBos));
}

TEST(Spm, Contradictions) {
  VocabData data = spm_vocab();
  data.scores.pop_back();
  EXPECT_EQ(make_tokenizer(data).status().code(), StatusCode::kCorrupt);
  data = spm_vocab();
  data.tokens[byte_id(9)] = "<0x9>";
  EXPECT_EQ(make_tokenizer(data).status().code(), StatusCode::kCorrupt);
  data = spm_vocab();
  data.kinds.clear();
  EXPECT_THAT(encode(*make(data), "\n"), ElementsAre(byte_id(' '), byte_id('\n')))
      << "without types, bytes are known by their spelling";
}

TEST(Spm, DecodesWhatItEncodes) {
  std::mt19937 random(9);
  for (const bool prefix : {false, true}) {
    VocabData data = spm_vocab();
    data.add_space_prefix = prefix;
    for (const char* text :
         {"a", "b", "s", SP, SP SP, SP "a", "as", "ab", "\n", "\u00e9", "\u4e2d"}) {
      add_token(data, text, TokenKind::kNormal, -static_cast<float>(random() % 5));
    }
    add_token(data, "<>", TokenKind::kUserDefined);
    add_token(data, "  ", TokenKind::kUserDefined);
    const auto tokenizer = make(data);
    for (int round = 0; round < 1000; ++round) {
      const std::string text = random_text(random, 30);
      ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
      ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text, {})), text) << "with BOS";
    }
  }
}

TEST(Spm, AMegabyteOfOneLetterOrOfSpaces) {
  VocabData data = without_prefix();
  for (size_t n = 1; n <= 8; n *= 2) {
    add_token(data, std::string(n, 'a'), TokenKind::kNormal, -static_cast<float>(n));
  }
  const TokenId a8 = static_cast<TokenId>(data.tokens.size() - 1);
  const auto tokenizer = make(data);
  EXPECT_EQ(encode(*tokenizer, std::string(1 << 20, 'a')), std::vector<TokenId>(1 << 17, a8));
  EXPECT_EQ(encode(*tokenizer, std::string(1 << 20, ' ')),
            std::vector<TokenId>(1 << 20, byte_id(' ')));
}

}  // namespace
}  // namespace tierkv
