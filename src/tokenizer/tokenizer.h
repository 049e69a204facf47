// Text <-> token ids, as the model's own tokenizer does it. Built from a GGUF's tokenizer.ggml.*
// keys: byte-level BPE ("gpt2" with pre-tokenisers smollm, gpt-2, llama-bpe, qwen2) and
// SentencePiece-style ("llama": Llama 2, TinyLlama, Gemma).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace tierkv {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special = true;     // BOS / EOS as the model wants them
  bool parse_special = false;  // "<|im_end|>" in the text becomes that control token
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Takes the vocabulary out of `file` (GgufFile::take_strings). Unknown kinds are kUnsupported and
  // named; contradictions (ids out of range) are kCorrupt; merges of unknown tokens are skipped.
  static Result<std::unique_ptr<Tokenizer>> create(GgufFile& file);

  // Text that is not valid UTF-8 is kInvalidArgument and names the byte offset.
  virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                              const EncodeOptions& options) const = 0;

  // The bytes one token stands for; may be part of a UTF-8 character. Control tokens give "" unless
  // `show_special`. An id out of range gives "".
  virtual std::string token_bytes(TokenId id, bool show_special = false) const = 0;

  // decode(encode(text)) == text for any valid UTF-8 without control tokens (BOS is dropped). One
  // exception: SentencePiece writes spaces as U+2581, so that character comes back as a space.
  virtual std::string decode(const std::vector<TokenId>& ids, bool show_special = false) const = 0;

  int64_t vocab_size() const { return vocab_size_; }
  TokenId bos() const { return bos_; }  // -1: none
  TokenId eos() const { return eos_; }
  bool adds_bos() const { return add_bos_; }
  // Any token that ends an answer: eos, eot, eom and their kin by name.
  bool is_end_of_generation(TokenId id) const;
  // The text of a token as the vocabulary spells it, for templates (bos_token, eos_token).
  virtual std::string token_text(TokenId id) const = 0;

 protected:
  int64_t vocab_size_ = 0;
  TokenId bos_ = -1, eos_ = -1;
  bool add_bos_ = false, add_eos_ = false;
  std::vector<TokenId> end_of_generation_;
};

// Streaming: bytes in, whole UTF-8 characters out. Bytes that can't become a character are passed
// on as U+FFFD.
class Utf8Stream {
 public:
  // The text that is complete once `bytes` have arrived.
  std::string push(std::string_view bytes);
  // What is left at the end: an incomplete character as U+FFFD, else "".
  std::string flush();

 private:
  std::string pending_;
};

}  // namespace tierkv
