#include "tokenizer/vocab.h"

#include <bit>
#include <functional>

namespace tierkv {
namespace {

uint64_t hash_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

Result<Vocab> Vocab::create(VocabData& data) {
  if (data.tokens.empty()) return corrupt("the vocabulary has no tokens");
  if (!data.kinds.empty() && data.kinds.size() != data.tokens.size()) {
    return corrupt(format("the vocabulary has %zu tokens but %zu token types", data.tokens.size(),
                          data.kinds.size()));
  }
  uint64_t bytes = 0;
  for (const std::string& token : data.tokens) bytes += token.size();
  if (bytes > UINT32_MAX || data.tokens.size() > INT32_MAX) {
    return corrupt(format("a vocabulary of %zu tokens in %llu bytes is absurd", data.tokens.size(),
                          static_cast<unsigned long long>(bytes)));
  }
  Vocab vocab;
  vocab.arena_.reserve(bytes);
  vocab.offsets_.reserve(data.tokens.size() + 1);
  for (const std::string& token : data.tokens) {
    vocab.offsets_.push_back(static_cast<uint32_t>(vocab.arena_.size()));
    vocab.arena_ += token;
  }
  vocab.offsets_.push_back(static_cast<uint32_t>(vocab.arena_.size()));
  vocab.kinds_ = std::move(data.kinds);
  vocab.kinds_.resize(data.tokens.size(), TokenKind::kNormal);
  data.tokens = {};
  vocab.build_index();
  return vocab;
}

void Vocab::build_index() {
  slots_.resize(std::bit_ceil(kinds_.size() * 2));
  for (TokenId id = 0; id < size(); ++id) {
    const uint64_t hash = hash_text(text(id));
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].id != kNoToken &&
           (slots_[at].tag != tag_of(hash) || text(slots_[at].id) != text(id))) {
      at = (at + 1) & (slots_.size() - 1);
    }
    if (slots_[at].id == kNoToken) slots_[at] = {tag_of(hash), id};
  }
}

TokenId Vocab::find(std::string_view wanted) const {
  const uint64_t hash = hash_text(wanted);
  for (size_t at = hash & (slots_.size() - 1); slots_[at].id != kNoToken;
       at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].tag == tag_of(hash) && text(slots_[at].id) == wanted) return slots_[at].id;
  }
  return kNoToken;
}

TokenId Vocab::find_plain(std::string_view wanted) const {
  const TokenId id = find(wanted);
  if (id == kNoToken) return kNoToken;
  const TokenKind k = kind(id);
  const bool plain =
      k == TokenKind::kNormal || k == TokenKind::kUserDefined || k == TokenKind::kUnused;
  return plain ? id : kNoToken;
}

}  // namespace tierkv
