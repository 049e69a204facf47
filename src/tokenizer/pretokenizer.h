// Cuts text into words, numbers, punctuation and blanks before byte-level BPE: merges never cross
// these borders. Each kind is a list of regular expressions (PCRE2); the first cuts the text, the
// next cuts each piece again. What an expression doesn't match is a piece of its own.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tierkv {

// What tokenizer.ggml.pre stands for.
struct PreTokenizerSpec {
  std::string_view name;
  std::vector<const char*> patterns;
  bool ignore_merges = false;    // a piece that is a token as a whole is that token
  bool add_bos_default = false;  // where tokenizer.ggml.add_bos_token is missing
};

// "" and "default" are GPT-2's. An unknown name is kUnsupported.
Result<PreTokenizerSpec> find_pre_tokenizer(std::string_view name);

// Safe to use from several threads at once.
class PreTokenizer {
 public:
  static Result<PreTokenizer> create(const PreTokenizerSpec& spec);

  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // Pieces of `text`, which must be valid UTF-8, in order; together they are the whole text.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierkv
