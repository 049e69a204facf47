// What both kinds of tokenizer share: the vocabulary, special tokens, BOS and EOS. A kind adds how
// ordinary text becomes tokens and what bytes an ordinary token stands for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/special.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

namespace tierkv {

class VocabTokenizer : public Tokenizer {
 public:
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options) const override;
  std::string token_bytes(TokenId id, bool show_special) const override;
  std::string token_text(TokenId id) const override;
  std::string decode(const std::vector<TokenId>& ids, bool show_special) const override;

 protected:
  struct Defaults {
    bool add_bos, add_space_prefix;
    TokenId bos = kNoToken, eos = kNoToken, unk = kNoToken;  // not used if past the vocabulary
  };
  // Ids past the vocabulary in `data`'s keys are kCorrupt.
  Status init(const VocabData& data, Vocab vocab, const Defaults& defaults);

  // Appends the tokens of ordinary text, valid UTF-8 and never empty, with the space already in
  // front of it that add_space_prefix asks for.
  virtual Status encode_plain(std::string_view text, std::vector<TokenId>& out) const = 0;
  virtual std::string plain_bytes(TokenId id) const = 0;

  const Vocab& vocab() const { return vocab_; }
  TokenId unk() const { return unk_; }

 private:
  Status init_ids(const VocabData& data, const Defaults& defaults);
  void init_end_of_generation(const VocabData& data);
  Status encode_parts(std::string_view text, bool parse_special, std::vector<TokenId>& out) const;
  bool is_plain(TokenId id) const;

  Vocab vocab_;
  std::optional<SpecialSplitter> specials_;  // after init()
  TokenId unk_ = kNoToken;
  bool add_space_prefix_ = false;
};

// The tokenizer that `data.model` and `data.pre` name.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(VocabData data);
Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(VocabData data);
Result<std::unique_ptr<Tokenizer>> make_spm_tokenizer(VocabData data);

}  // namespace tierkv
