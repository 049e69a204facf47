// Memory and addresses of one TieredAttention::attend, for the files that implement it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/carve.h"
#include "kv/tiered_attention.h"

namespace tierkv {

// State rows are laid out [kv_head][query][query head of the group], so that the rows that share a
// KV head are consecutive.
struct TieredAttention::Scratch {
  float *q, *out, *max, *sum;  // [rows, head_dim] and [rows]
  uint16_t* q_bf16;            // [rows, head_dim], many only
  int8_t* codes;               // queries in rotated int8 form, few only
  float* code_scale;
  int32_t* code_sum;
  float *packed_out, *packed_max, *packed_sum;  // of compressed pages, few only
  float* split_states;
  std::byte* threads;  // per thread: kernel scratch, ranges of rows, one exact block
  uint64_t kernel_bytes, thread_bytes;
  uint64_t total_bytes = 0;

  Scratch(std::byte* base, const KvLayout& layout, int64_t max_chunk, int n_threads,
          int64_t largest_rank);

  std::byte* kernel(int thread) const { return threads + thread * thread_bytes; }
  int32_t* ranges(int thread) const {
    return reinterpret_cast<int32_t*>(kernel(thread) + kernel_bytes);
  }
  uint16_t* block(int thread) const {
    return reinterpret_cast<uint16_t*>(kernel(thread) + kernel_bytes +
                                       2 * kMaxAttentionRows * sizeof(int32_t));
  }
};

// The ranges of rows that see all of a page: most of them.
struct WholePage {
  std::array<int32_t, kMaxAttentionRows> first, last;
};
inline constexpr WholePage kWholePage = [] {
  WholePage whole{};
  for (int32_t& last : whole.last) last = kPageTokens;
  return whole;
}();

// Pages whose partial state is formed at once, and where it is kept meanwhile.
struct TieredAttention::Split {
  int64_t page_begin, page_end;
  int64_t extent;                      // that holds its flash pages; -1: it has none
  bool reads = true;                   // else flash pages are taken from their copies
  const std::byte* payload = nullptr;  // of the extent, once it has been read
  int64_t slot = 0;
};

// What one thread does at a time: one KV head's part of a split.
struct TieredAttention::Task {
  const Split* split = nullptr;
  int kv_head = 0;
};

// The partial states of one split and KV head within the wave's memory: plain, then packed.
struct SplitState {
  float *max, *sum, *out;
  SplitState(float* base, int64_t index, int64_t n_rows, int64_t most_dim) {
    max = base + index * n_rows * (most_dim + 2);
    sum = max + n_rows;
    out = sum + n_rows;
  }
  AttentionRows rows(AttentionRows like) const {
    like.max = max;
    like.sum = sum;
    like.out = out;
    return like;
  }
};

struct TieredAttention::Call {
  PageSource& pages;
  int layer;
  const KvLayerShape& shape;
  int64_t first_position, step;  // where the first query stands, and how far apart they are
  int64_t n_queries;
  Scratch scratch;

  int64_t position(int64_t query) const { return first_position + query * step; }
  int64_t n_keys() const { return position(n_queries - 1) + 1; }
  int64_t n_pages() const { return (n_keys() + kPageTokens - 1) / kPageTokens; }
  // First page that any query of the chunk can see.
  int64_t first_page() const {
    if (shape.window == 0) return 0;
    return std::max<int64_t>(0, first_position - shape.window + 1) / kPageTokens;
  }
  int64_t head_rows() const { return n_queries * shape.group(); }
  int64_t window() const { return shape.window == 0 ? INT64_MAX / 2 : shape.window; }

  // Rows [begin, begin + n) of a KV head, with states at the given arrays (indexed by global row).
  AttentionRows rows(int kv_head, int64_t begin, int64_t n, float* max, float* sum,
                     float* out) const {
    const int64_t row = kv_head * head_rows() + begin;
    AttentionRows r;
    r.n_rows = static_cast<int>(n);
    r.head_dim = shape.head_dim;
    r.q = scratch.q + row * shape.head_dim;
    r.softcap = shape.softcap;
    r.max = max + row;
    r.sum = sum + row;
    r.out = out + row * shape.head_dim;
    return r;
  }
  AttentionRows plain_rows(int kv_head, int64_t begin, int64_t n) const {
    return rows(kv_head, begin, n, scratch.max, scratch.sum, scratch.out);
  }
  // The state over compressed pages: of codes, outputs still rotated; of latents, not yet
  // projected.
  AttentionRows packed_rows(int kv_head) const {
    AttentionRows r =
        rows(kv_head, 0, head_rows(), scratch.packed_max, scratch.packed_sum, nullptr);
    r.head_dim = packed_dim();
    r.out = scratch.packed_out + kv_head * head_rows() * packed_dim();
    return r;
  }
  uint16_t* bf16_queries(int kv_head, int64_t begin) const {
    return scratch.q_bf16 + (kv_head * head_rows() + begin) * shape.head_dim;
  }
  RotatedQuery query(int kv_head) const {
    const int64_t row = kv_head * head_rows();
    return {scratch.codes + row * shape.head_dim, scratch.code_scale + row, scratch.code_sum + row};
  }

  // States are numbered 2 * (slot * n_kv_heads + kv_head) for plain ones, one more for packed ones.
  SplitState split_state(int64_t number) const {
    return SplitState(scratch.split_states, number, head_rows(), state_dim());
  }

  // Of n states from a number on, which another core may have written.
  void prefetch_states(int64_t number, int n) const {
    const auto* at = reinterpret_cast<const char*>(split_state(number).max);
    const auto* end = reinterpret_cast<const char*>(split_state(number + n).max);
    for (; at < end; at += 64) __builtin_prefetch(at);
  }

  RotatedFormat format(int kv_head) const { return pages.format(layer, kv_head); }
  // Of a page of `split`, or of prefill's stretches, which read every flash page.
  bool is_rotated(int64_t page, int kv_head, bool by_copy = false) const {
    const PageTier tier = pages.tier(layer, page);
    return (tier == PageTier::kCompressed || (by_copy && tier == PageTier::kFlash)) &&
           format(kv_head) != RotatedFormat{};
  }
  // The layer's low-rank basis; null when its compressed pages hold codes or float16.
  const LowRankLayer* low_rank() const {
    return pages.low_rank() == nullptr ? nullptr : pages.low_rank()->layer(layer);
  }
  bool is_low_rank(int64_t page) const {
    return low_rank() != nullptr && pages.tier(layer, page) == PageTier::kCompressed;
  }
  int64_t packed_dim() const { return low_rank() == nullptr ? shape.head_dim : low_rank()->rank; }
  int64_t state_dim() const { return std::max<int64_t>(shape.head_dim, packed_dim()); }
  // Whether compressed pages, if there are any, need a state of their own.
  bool is_packed() const { return low_rank() != nullptr || has_codes(); }
  // Whether compressed pages, if there are any, hold codes in some KV head.
  bool has_codes() const {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      if (format(head) != RotatedFormat{}) return true;
    }
    return false;
  }

  // Whether the split can be met without reading.
  bool has_copies(const Split& split) const {
    for (int64_t page = split.page_begin; page < split.page_end; ++page) {
      if (pages.tier(layer, page) == PageTier::kFlash && !pages.has_copy(page)) return false;
    }
    return true;
  }

  // A KV head's block of a page, wherever it is; `extent` is the payload that holds flash pages,
  // null for their copies.
  const void* block(int64_t page, int kv_head, const std::byte* extent) const {
    switch (pages.tier(layer, page)) {
      case PageTier::kExact:
        return pages.exact_block(layer, page, kv_head);
      case PageTier::kCompressed:
        return pages.compressed_block(layer, page, low_rank() == nullptr ? kv_head : 0);
      case PageTier::kFlash:
        return extent != nullptr
                   ? static_cast<const void*>(pages.flash_block(extent, layer, page, kv_head))
                   : pages.compressed_block(layer, page, kv_head);
    }
    return nullptr;
  }

  // Whether each of n_rows rows from `begin` on sees all of the page.
  bool sees_whole(int64_t begin, int64_t n_rows, int64_t page) const {
    const int64_t base = page * kPageTokens;
    const int64_t last_query = position((begin + n_rows - 1) / shape.group());
    return base + kPageTokens - 1 <= position(begin / shape.group()) &&
           base > last_query - window();
  }

  // Sets the tokens of `page` that each row sees; false when no row sees any. Row `begin` is the
  // first.
  bool set_ranges(AttentionRows& rows, int64_t begin, int64_t page, int32_t* ranges) const {
    const int64_t base = page * kPageTokens;
    const int64_t first_query = position(begin / shape.group());
    const int64_t last_query = position((begin + rows.n_rows - 1) / shape.group());
    if (base > last_query || base + kPageTokens <= first_query - window() + 1) return false;
    if (sees_whole(begin, rows.n_rows, page)) {
      rows.first = kWholePage.first.data();
      rows.last = kWholePage.last.data();
      return true;
    }
    int32_t* first = ranges;
    int32_t* last = ranges + kMaxAttentionRows;
    for (int r = 0; r < rows.n_rows; ++r) {
      const int64_t query = position((begin + r) / shape.group());
      last[r] = static_cast<int32_t>(std::clamp<int64_t>(query + 1 - base, 0, kPageTokens));
      first[r] = static_cast<int32_t>(std::clamp<int64_t>(query - window() + 1 - base, 0, last[r]));
    }
    rows.first = first;
    rows.last = last;
    return true;
  }
};

}  // namespace tierkv
