// Byte-level BPE, as GPT-2 has it: pieces from the pre-tokeniser, one symbol a byte, joined by
// rank.
#include <array>
#include <bit>

#include "tokenizer/byte_level.h"
#include "tokenizer/merge.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/vocab_tokenizer.h"

namespace tierkv {
namespace {

// (left token, right token) -> rank and result: a merge is one look at 16 bytes, no text.
class MergeTable {
 public:
  // Merges of unknown tokens are skipped; one that is not two words is kCorrupt.
  Status build(const std::vector<std::string>& merges, const Vocab& vocab) {
    slots_.assign(std::bit_ceil(merges.size() * 2 + 1), Slot{});
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view merge = merges[rank];
      const size_t space = merge.find(' ', 1);
      if (space == merge.npos || space + 1 == merge.size()) {
        return corrupt(format("merge %zu of the vocabulary is not two words", rank));
      }
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      const TokenId ids[] = {vocab.find_plain(left), vocab.find_plain(right),
                             vocab.find_plain(std::string(left).append(right))};
      if (ids[0] == kNoToken || ids[1] == kNoToken || ids[2] == kNoToken) continue;
      Slot& slot = slots_[find_slot(key_of(ids[0], ids[1]))];
      if (slot.key == kFree) slot = {key_of(ids[0], ids[1]), {static_cast<uint32_t>(rank), ids[2]}};
    }
    return {};
  }

  std::optional<MergeStep> find(TokenId left, TokenId right) const {
    if (left == kNoToken || right == kNoToken) return std::nullopt;
    const Slot& slot = slots_[find_slot(key_of(left, right))];
    if (slot.key == kFree) return std::nullopt;
    return slot.step;
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t key = kFree;
    MergeStep step{};
  };

  static uint64_t key_of(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  // Where `key` is or would be. Multiplicative hashing: the high bits of the product are well
  // mixed.
  size_t find_slot(uint64_t key) const {
    size_t at = (key * 0x9e3779b97f4a7c15u) >> 32 & (slots_.size() - 1);
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
};

class BpeTokenizer : public VocabTokenizer {
 public:
  explicit BpeTokenizer(PreTokenizer pre_tokenizer) : pre_tokenizer_(std::move(pre_tokenizer)) {}

  Status init(VocabData& data, const PreTokenizerSpec& spec) {
    TIERKV_ASSIGN_OR_RETURN(Vocab vocab, Vocab::create(data));
    const Defaults defaults{.add_bos = spec.add_bos_default, .add_space_prefix = false};
    data.add_space_prefix.reset();  // means nothing to byte-level BPE
    TIERKV_RETURN_IF_ERROR(VocabTokenizer::init(data, std::move(vocab), defaults));
    ignore_merges_ = spec.ignore_merges;
    for (int byte = 0; byte < 256; ++byte) {
      spelling_[byte] = byte_level_spelling(static_cast<unsigned char>(byte));
      byte_ids_[byte] = this->vocab().find_plain(spelling_[byte]);
    }
    return merges_.build(data.merges, this->vocab());
  }

 protected:
  Status encode_plain(std::string_view text, std::vector<TokenId>& out) const override {
    TIERKV_ASSIGN_OR_RETURN(const auto pieces, pre_tokenizer_.split(text));
    Merger merger;
    for (const std::string_view piece : pieces) {
      TIERKV_RETURN_IF_ERROR(encode_piece(piece, merger, out));
    }
    return {};
  }

  std::string plain_bytes(TokenId id) const override { return byte_level_decode(vocab().text(id)); }

 private:
  Status encode_piece(std::string_view piece, Merger& merger, std::vector<TokenId>& out) const {
    if (ignore_merges_) {
      const TokenId whole = find_whole(piece);
      if (whole != kNoToken) {
        out.push_back(whole);
        return {};
      }
    }
    merger.clear();
    for (const char c : piece) {
      const unsigned char byte = static_cast<unsigned char>(c);
      const TokenId id = byte_ids_[byte];
      if (id == kNoToken && unk() == kNoToken) return no_token_for(byte);
      merger.add(1, id);
    }
    merger.run([this](const MergeSymbol& left, const MergeSymbol& right) {
      return merges_.find(left.id, right.id);
    });
    merger.for_each([&](const MergeSymbol& symbol) {
      out.push_back(symbol.id == kNoToken ? unk() : symbol.id);
    });
    return {};
  }

  TokenId find_whole(std::string_view piece) const {
    std::string spelt;
    for (const char c : piece) spelt += spelling_[static_cast<unsigned char>(c)];
    return vocab().find_plain(spelt);
  }

  static Status no_token_for(unsigned char byte) {
    return unsupported(
        format("the text needs byte 0x%02x, for which the vocabulary has no token; "
               "leave the character out or take another model",
               byte));
  }

  PreTokenizer pre_tokenizer_;
  MergeTable merges_;
  std::array<std::string, 256> spelling_;
  std::array<TokenId, 256> byte_ids_{};
  bool ignore_merges_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(VocabData data) {
  TIERKV_ASSIGN_OR_RETURN(const PreTokenizerSpec spec, find_pre_tokenizer(data.pre));
  TIERKV_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(spec));
  auto tokenizer = std::make_unique<BpeTokenizer>(std::move(pre_tokenizer));
  TIERKV_RETURN_IF_ERROR(tokenizer->init(data, spec));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace tierkv
