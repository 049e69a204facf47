// Cuts a text at the tokens that are matched whole before anything else looks at it.
#pragma once

#include <string_view>
#include <vector>

#include "tokenizer/token_trie.h"
#include "tokenizer/vocab.h"

namespace tierkv {

struct TextPart {
  std::string_view text;  // never empty
  TokenId id = kNoToken;  // the special token that `text` spells, or kNoToken: ordinary text
};

// User-defined tokens are matched always, control and unknown ones only with `parse_special`. The
// longest token in the whole text is taken first (of equals the leftmost), then the longest in what
// is left, and so on.
class SpecialSplitter {
 public:
  explicit SpecialSplitter(const Vocab& vocab);

  std::vector<TextPart> split(std::string_view text, bool parse_special) const;

 private:
  TokenTrie user_defined_, all_;
};

}  // namespace tierkv
