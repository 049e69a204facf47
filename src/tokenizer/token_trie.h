// A set of tokens as a tree of their bytes: finds the longest that a text begins with, in a step a
// byte. The children of a node stand side by side, in the order of their bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/vocab.h"

namespace tierkv {

class TokenTrie {
 public:
  // `tokens` are not empty; of tokens with the same text the lowest id counts.
  TokenTrie(const Vocab& vocab, std::vector<TokenId> tokens);

  struct Match {
    size_t length = 0;
    TokenId id = kNoToken;  // kNoToken: nothing matched
  };
  // The longest token, shorter than `limit`, that `text` begins with. `text` is not empty.
  Match longest(std::string_view text, size_t limit = SIZE_MAX) const;

 private:
  struct Node {
    unsigned char byte = 0;
    uint16_t n_children = 0;
    uint32_t first_child = 0;
    TokenId id = kNoToken;  // the token that ends here
  };
  const Node* child(const Node& node, unsigned char byte) const;

  std::vector<Node> nodes_;             // the root first
  std::array<uint32_t, 256> by_first_;  // the root's children by byte; 0: none
};

}  // namespace tierkv
