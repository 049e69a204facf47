#include "tokenizer/token_trie.h"

#include <algorithm>
#include <utility>

namespace tierkv {

TokenTrie::TokenTrie(const Vocab& vocab, std::vector<TokenId> tokens) : nodes_(1), by_first_{} {
  std::sort(tokens.begin(), tokens.end(), [&vocab](TokenId a, TokenId b) {
    return std::pair(vocab.text(a), a) < std::pair(vocab.text(b), b);
  });
  // Level by level: node i covers the tokens from begin to end, which share their first bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, tokens.size(), 0}};
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto [begin, end, depth] = ranges[i];
    size_t at = begin;
    while (at < end && vocab.text(tokens[at]).size() == depth) ++at;
    if (at > begin) nodes_[i].id = tokens[begin];
    nodes_[i].first_child = static_cast<uint32_t>(nodes_.size());
    while (at < end) {
      const char byte = vocab.text(tokens[at])[depth];
      const size_t first = at;
      while (at < end && vocab.text(tokens[at])[depth] == byte) ++at;
      ++nodes_[i].n_children;
      nodes_.push_back({static_cast<unsigned char>(byte)});
      ranges.push_back({first, at, depth + 1});
    }
  }
  for (uint32_t i = 0; i < nodes_[0].n_children; ++i) by_first_[nodes_[1 + i].byte] = 1 + i;
}

const TokenTrie::Node* TokenTrie::child(const Node& node, unsigned char byte) const {
  const Node* const begin = nodes_.data() + node.first_child;
  const Node* const end = begin + node.n_children;
  const Node* const found = std::lower_bound(
      begin, end, byte, [](const Node& n, unsigned char wanted) { return n.byte < wanted; });
  return found != end && found->byte == byte ? found : nullptr;
}

TokenTrie::Match TokenTrie::longest(std::string_view text, size_t limit) const {
  Match best;
  const uint32_t first = by_first_[static_cast<unsigned char>(text[0])];
  const Node* node = first == 0 ? nullptr : &nodes_[first];
  for (size_t depth = 1; node != nullptr && depth < limit; ++depth) {
    if (node->id != kNoToken) best = {depth, node->id};
    if (depth == text.size()) break;
    node = child(*node, static_cast<unsigned char>(text[depth]));
  }
  return best;
}

}  // namespace tierkv
