// A vocabulary: what the file says (VocabData), and the same made compact and searchable (Vocab).
// A vocabulary of 262,144 tokens takes about 7 MiB here: all texts stand in one string, and a
// lookup table of 8 bytes a slot finds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace tierkv {

constexpr TokenId kNoToken = -1;

// The numbers of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never made from text unless asked for; stands for no bytes
  kUserDefined = 4,  // always matched whole, before anything else
  kUnused = 5,
  kByte = 6,  // "<0x0A>" stands for the byte 0x0a
};

// Plain data, as the tokenizer.ggml.* keys have it.
struct VocabData {
  std::string model;  // "gpt2", "llama"
  std::string pre;    // pre-tokeniser of "gpt2"; "" or "default": GPT-2's
  std::vector<std::string> tokens;
  std::vector<float> scores;        // "llama" only: one a token
  std::vector<TokenKind> kinds;     // one a token, or empty: all normal
  std::vector<std::string> merges;  // "gpt2" only: "left right", best first
  std::optional<TokenId> bos, eos, unk, eot, eom;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

// Moves the vocabulary out of `file`. Token types out of range and negative ids are kCorrupt.
Result<VocabData> read_vocab(GgufFile& file);

class Vocab {
 public:
  // Takes tokens and kinds out of `data`. No tokens, or more or fewer kinds than tokens: kCorrupt.
  static Result<Vocab> create(VocabData& data);

  int64_t size() const { return static_cast<int64_t>(kinds_.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  std::string_view text(TokenId id) const {
    return std::string_view(arena_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  TokenKind kind(TokenId id) const { return kinds_[id]; }
  void set_kind(TokenId id, TokenKind kind) { kinds_[id] = kind; }

  // The token spelt `text`, the lowest id if several are, or kNoToken.
  TokenId find(std::string_view text) const;
  // The same, if ordinary text may become that token: normal, user-defined or unused.
  TokenId find_plain(std::string_view text) const;

 private:
  // A slot of the open-addressing table: most misses end at the tag, without a look at the text.
  struct Slot {
    uint32_t tag = 0;
    TokenId id = kNoToken;
  };
  void build_index();

  std::string arena_;
  std::vector<uint32_t> offsets_;  // size() + 1
  std::vector<TokenKind> kinds_;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace tierkv
