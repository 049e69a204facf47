#include "tokenizer/special.h"

#include <algorithm>
#include <functional>
#include <map>

#include "tokenizer/utf8.h"

namespace tierkv {
namespace {

std::vector<TokenId> special_tokens(const Vocab& vocab, bool with_control) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocab.size(); ++id) {
    const TokenKind kind = vocab.kind(id);
    const bool control = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (kind != TokenKind::kUserDefined && !(control && with_control)) continue;
    // A token that is no valid UTF-8 could cut a character of the text in two.
    const std::string_view text = vocab.text(id);
    if (!text.empty() && find_invalid_utf8(text) == kUtf8Valid) ids.push_back(id);
  }
  return ids;
}

struct Claim {
  size_t at;
  TokenTrie::Match match;
};

// Where tokens stand, in the order of the text. Candidates wait by length. A claim is never shorter
// than the candidate now looked at, so the two overlap exactly if an end of the candidate is taken.
std::vector<Claim> claim_tokens(const TokenTrie& trie, std::string_view text) {
  std::map<size_t, std::vector<size_t>, std::greater<>> candidates;
  const auto add = [&](size_t at, size_t limit) {
    const size_t length = trie.longest(text.substr(at), limit).length;
    if (length > 0) candidates[length].push_back(at);
  };
  for (size_t at = 0; at < text.size(); ++at) add(at, SIZE_MAX);

  std::vector<Claim> claims;
  std::vector<bool> taken(candidates.empty() ? 0 : text.size());
  while (!candidates.empty()) {
    auto node = candidates.extract(candidates.begin());
    const size_t length = node.key();
    std::sort(node.mapped().begin(), node.mapped().end());
    for (const size_t at : node.mapped()) {
      if (taken[at]) continue;
      if (taken[at + length - 1]) {
        add(at, length);
        continue;
      }
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(at), length, true);
      claims.push_back({at, trie.longest(text.substr(at), length + 1)});
    }
  }
  std::sort(claims.begin(), claims.end(),
            [](const Claim& a, const Claim& b) { return a.at < b.at; });
  return claims;
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocab& vocab)
    : user_defined_(vocab, special_tokens(vocab, false)),
      all_(vocab, special_tokens(vocab, true)) {}

std::vector<TextPart> SpecialSplitter::split(std::string_view text, bool parse_special) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  const auto add_plain_until = [&](size_t end) {
    if (end > done) parts.push_back({text.substr(done, end - done)});
  };
  for (const auto& [at, match] : claim_tokens(parse_special ? all_ : user_defined_, text)) {
    add_plain_until(at);
    parts.push_back({text.substr(at, match.length), match.id});
    done = at + match.length;
  }
  add_plain_until(text.size());
  return parts;
}

}  // namespace tierkv
