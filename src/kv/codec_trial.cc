#include "kv/codec_trial.h"

#include <algorithm>
#include <cstring>

#include "base/carve.h"

namespace tierkv {
namespace {

// The encoder needs both widths: the side that stays is encoded at its fewest bits and not used.
RotatedFormat complete(CodecId codec) {
  return {codec.k_bits != 0 ? codec.k_bits : uint8_t{3},
          codec.v_bits != 0 ? codec.v_bits : uint8_t{2}};
}

}  // namespace

Status CodecTrial::check(std::span<const TrialHead> heads, int64_t page_begin,
                         int64_t page_end) const {
  for (int64_t page = page_begin; page < page_end; ++page) {
    const bool there = page >= 0 && page < cache_.length() / kPageTokens;
    if (!there || cache_.table_.tier(page) != PageTier::kExact) {
      return invalid_argument("a codec can be tried only on full pages that are exact");
    }
  }
  for (const TrialHead& head : heads) {
    const bool there =
        head.layer >= 0 && head.layer < static_cast<int>(cache_.layout_.shapes.size()) &&
        head.kv_head >= 0 && head.kv_head < cache_.layout_.shapes[head.layer].n_kv_heads;
    if (!there || !cache_.layout_.is_full(head.layer) ||
        !rotated_head_dim_valid(cache_.layout_.shapes[head.layer].head_dim) ||
        !rotated_format_valid(complete(head.codec))) {
      return invalid_argument("a codec can't be tried on a KV head that has none");
    }
  }
  return {};
}

template <typename Fn>
void CodecTrial::for_blocks(Fn&& fn) {
  const int64_t n_pages = page_end_ - page_begin_;
  cache_.pool_.parallel_for(
      static_cast<int64_t>(heads_.size()) * n_pages, [&](int64_t task, int thread) {
        const TrialHead& head = heads_[task / n_pages];
        const int64_t page = page_begin_ + task % n_pages;
        fn(head, cache_.table_.exact_block(page, head.layer, head.kv_head),
           reinterpret_cast<uint16_t*>(saved_.data() + task * block_bytes_), thread);
      });
}

Status CodecTrial::replace(std::span<const TrialHead> heads, int64_t page_begin, int64_t page_end) {
  restore();
  TIERKV_RETURN_IF_ERROR(check(heads, page_begin, page_end));
  if (heads.empty() || page_begin >= page_end) return {};
  cache_.table_.fix_key_balance(true);
  int64_t head_dim = 0;
  for (const TrialHead& head : heads) {
    head_dim = std::max<int64_t>(head_dim, cache_.layout_.shapes[head.layer].head_dim);
  }
  block_bytes_ = exact_block_bytes(head_dim);
  // Of one thread: the codec's scratch, the codes, what they decode to.
  const uint64_t code_bytes = align64(rotated_block_bytes({8, 8}, head_dim));
  const uint64_t kernel_bytes = align64(rotated_scratch_bytes(head_dim));
  const uint64_t thread_bytes = kernel_bytes + code_bytes + block_bytes_;
  TIERKV_ASSIGN_OR_RETURN(scratch_, Buffer::allocate(budget_, MemoryKind::kScratch,
                                                     thread_bytes * cache_.pool_.size()));
  const uint64_t n_blocks = heads.size() * static_cast<uint64_t>(page_end - page_begin);
  TIERKV_ASSIGN_OR_RETURN(saved_,
                          Buffer::allocate(budget_, MemoryKind::kScratch, n_blocks * block_bytes_));
  heads_.assign(heads.begin(), heads.end());
  page_begin_ = page_begin;
  page_end_ = page_end;
  for_blocks([&](const TrialHead& head, uint16_t* block, uint16_t* saved, int thread) {
    const int64_t dim = cache_.layout_.shapes[head.layer].head_dim;
    std::byte* kernel = scratch_.data() + thread * thread_bytes;
    std::byte* codes = kernel + kernel_bytes;
    auto* decoded = reinterpret_cast<uint16_t*>(codes + code_bytes);
    const RotatedKernels& rotated = *cache_.kernels_.rotated;
    const float* balance = cache_.table_.key_balance(head.layer, head.kv_head);
    std::memcpy(saved, block, exact_block_bytes(dim));
    rotated.encode(complete(head.codec), block, kPageTokens, dim, balance, codes, kernel);
    rotated.decode(complete(head.codec), codes, dim, balance, decoded, kernel);
    const int64_t side = kPageTokens * dim;  // elements of K, and of V
    if (head.codec.k_bits != 0) std::copy(decoded, decoded + side, block);
    if (head.codec.v_bits != 0) std::copy(decoded + side, decoded + 2 * side, block + side);
  });
  return {};
}

void CodecTrial::restore() {
  for_blocks([&](const TrialHead& head, uint16_t* block, const uint16_t* saved, int) {
    std::memcpy(block, saved, exact_block_bytes(cache_.layout_.shapes[head.layer].head_dim));
  });
  heads_.clear();
  saved_.reset();
}

}  // namespace tierkv
