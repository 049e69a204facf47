#include "tokenizer/token_trie.h"

#include <gtest/gtest.h>

#include <string>

namespace tierkv {
namespace {

TEST(TokenTrie, FindsTheLongestBelowTheLimit) {
  VocabData data;
  data.tokens = {"a", "abc", "abcd", "b", "\xff", "abc"};
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab.ok());
  const TokenTrie trie(*vocab, {5, 4, 3, 2, 1, 0});
  const auto found = [&](std::string_view text, size_t limit = SIZE_MAX) {
    const TokenTrie::Match match = trie.longest(text, limit);
    return std::pair<size_t, TokenId>(match.length, match.id);
  };
  using Found = std::pair<size_t, TokenId>;
  EXPECT_EQ(found("abcde"), Found(4, 2));
  EXPECT_EQ(found("abcde", 4), Found(3, 1)) << "of equal texts the lowest id";
  EXPECT_EQ(found("abcde", 3), Found(1, 0));
  EXPECT_EQ(found("abcde", 1), Found(0, kNoToken));
  EXPECT_EQ(found("ab"), Found(1, 0));
  EXPECT_EQ(found("\xff\xff"), Found(1, 4));
  EXPECT_EQ(found("c"), Found(0, kNoToken));
  EXPECT_EQ(TokenTrie(*vocab, {}).longest("a").id, kNoToken);
}

}  // namespace
}  // namespace tierkv
