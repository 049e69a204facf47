#include "tokenizer/special.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tierkv {
namespace {

using testing::ElementsAre;

Vocab make_vocab(std::vector<std::pair<std::string, TokenKind>> tokens) {
  VocabData data;
  for (auto& [text, kind] : tokens) {
    data.tokens.push_back(text);
    data.kinds.push_back(kind);
  }
  auto vocab = Vocab::create(data);
  EXPECT_TRUE(vocab.ok());
  return std::move(*vocab);
}

std::vector<std::string> show(const std::vector<TextPart>& parts) {
  std::vector<std::string> out;
  for (const TextPart& part : parts) {
    const std::string text(part.text);
    out.push_back(part.id == kNoToken ? text : std::to_string(part.id) + ":" + text);
  }
  return out;
}

std::vector<std::string> split(const Vocab& vocab, std::string_view text, bool parse_special) {
  return show(SpecialSplitter(vocab).split(text, parse_special));
}

TEST(Special, UserDefinedAlwaysControlOnlyWhenAsked) {
  const Vocab vocab = make_vocab({{"<c>", TokenKind::kControl},
                                  {"<u>", TokenKind::kUserDefined},
                                  {"<n>", TokenKind::kNormal},
                                  {"<b>", TokenKind::kByte},
                                  {"<?>", TokenKind::kUnknown}});
  const std::string text = "a<c>b<u><n><b><?>";
  EXPECT_THAT(split(vocab, text, false), ElementsAre("a<c>b", "1:<u>", "<n><b><?>"));
  EXPECT_THAT(split(vocab, text, true), ElementsAre("a", "0:<c>", "b", "1:<u>", "<n><b>", "4:<?>"));
  EXPECT_THAT(split(vocab, "", true), ElementsAre());
  EXPECT_THAT(split(vocab, "<c>", true), ElementsAre("0:<c>"));
}

TEST(Special, TheLongestInTheWholeTextGoesFirst) {
  const Vocab vocab = make_vocab({{"ab", TokenKind::kUserDefined},
                                  {"abc", TokenKind::kUserDefined},
                                  {"cdef", TokenKind::kUserDefined},
                                  {"b", TokenKind::kUserDefined}});
  EXPECT_THAT(split(vocab, "abcx", false), ElementsAre("1:abc", "x"));
  EXPECT_THAT(split(vocab, "abcdef", false), ElementsAre("0:ab", "2:cdef"));
  EXPECT_THAT(split(vocab, "abcdefabcb", false), ElementsAre("0:ab", "2:cdef", "1:abc", "3:b"));
}

TEST(Special, RunsTakeTheLongestFromTheLeft) {
  std::vector<std::pair<std::string, TokenKind>> tokens;
  for (int n = 1; n <= 5; ++n) tokens.push_back({std::string(n, '\n'), TokenKind::kUserDefined});
  const Vocab vocab = make_vocab(tokens);
  EXPECT_THAT(split(vocab, std::string(13, '\n'), false),
              ElementsAre("4:\n\n\n\n\n", "4:\n\n\n\n\n", "2:\n\n\n"));
  const std::string megabyte(1 << 20, '\n');
  const auto parts = SpecialSplitter(vocab).split(megabyte, false);
  EXPECT_EQ(parts.size(), ((1u << 20) + 4) / 5) << "and quickly";
}

TEST(Special, TokensThatAreNoUtf8OrEmptyAreNeverMatched) {
  const Vocab vocab = make_vocab({{"\xa9", TokenKind::kUserDefined}, {"", TokenKind::kControl}});
  EXPECT_THAT(split(vocab, "caf\xc3\xa9", true), ElementsAre("caf\xc3\xa9"));
}

// The definition, done the slow way: the longest token in any ordinary part, of equals the
// leftmost.
std::vector<TextPart> split_slowly(const Vocab& vocab, std::string_view text) {
  for (size_t length = text.size(); length > 0; --length) {
    for (size_t at = 0; at + length <= text.size(); ++at) {
      const TokenId id = vocab.find(text.substr(at, length));
      if (id == kNoToken) continue;
      auto parts = split_slowly(vocab, text.substr(0, at));
      parts.push_back({text.substr(at, length), id});
      for (const TextPart& part : split_slowly(vocab, text.substr(at + length))) {
        parts.push_back(part);
      }
      return parts;
    }
  }
  if (text.empty()) return {};
  return {{text, kNoToken}};
}

TEST(Special, AgreesWithTheDefinitionOnRandomVocabularies) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::pair<std::string, TokenKind>> tokens;
    const auto word = [&](size_t max) {
      std::string out;
      for (size_t n = random() % max + 1; n > 0; --n) out += static_cast<char>('a' + random() % 2);
      return out;
    };
    for (int i = 0; i < 6; ++i) tokens.push_back({word(6), TokenKind::kUserDefined});
    const Vocab vocab = make_vocab(tokens);
    const std::string text = word(40);
    ASSERT_EQ(split(vocab, text, false), show(split_slowly(vocab, text))) << text;
  }
}

}  // namespace
}  // namespace tierkv
