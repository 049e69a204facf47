#include "tokenizer/vocab.h"

#include <gtest/gtest.h>

namespace tierkv {
namespace {

TEST(Vocab, FindsEveryTokenAndNothingElse) {
  VocabData data;
  for (int i = 0; i < 5000; ++i) data.tokens.push_back("token" + std::to_string(i * 7));
  auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab.ok());
  EXPECT_TRUE(data.tokens.empty()) << "moved out, not copied";
  for (TokenId id = 0; id < 5000; ++id) {
    const std::string text = "token" + std::to_string(id * 7);
    ASSERT_EQ(vocab->find(text), id);
    ASSERT_EQ(vocab->text(id), text);
    ASSERT_EQ(vocab->find(text + "x"), kNoToken);
  }
  EXPECT_EQ(vocab->find(""), kNoToken);
  EXPECT_FALSE(vocab->contains(5000));
  EXPECT_FALSE(vocab->contains(-1));
}

TEST(Vocab, OfEqualTextsTheLowestId) {
  VocabData data;
  data.tokens = {"b", "a", "a", "", ""};
  auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab.ok());
  EXPECT_EQ(vocab->find("a"), 1);
  EXPECT_EQ(vocab->find(""), 3);
  EXPECT_EQ(vocab->text(2), "a");
}

TEST(Vocab, PlainTokensAreThoseTextMayBecome) {
  VocabData data;
  data.tokens = {"n", "?", "c", "u", "x", "b"};
  data.kinds = {TokenKind::kNormal,      TokenKind::kUnknown, TokenKind::kControl,
                TokenKind::kUserDefined, TokenKind::kUnused,  TokenKind::kByte};
  auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab.ok());
  for (const char* text : {"n", "u", "x"}) EXPECT_NE(vocab->find_plain(text), kNoToken) << text;
  for (const char* text : {"?", "c", "b"}) EXPECT_EQ(vocab->find_plain(text), kNoToken) << text;
}

}  // namespace
}  // namespace tierkv
