// The prefill half of TieredAttention: many queries, so work splits over query rows, and each row
// meets the pages in ascending order.
#include <algorithm>
#include <cassert>

#include "kv/attention_call.h"

namespace tierkv {
namespace {

// Queries of one task: every task converts the pages that it meets, so many, as long as each thread
// has some tasks. Fewer where the chunk's own keys are most of what there is, since its first
// queries see less of them.
int64_t task_queries(int64_t n_queries, int64_t n_keys, int n_kv_heads, int n_threads) {
  constexpr int64_t kMany = 128, kFew = 64;
  const int64_t tasks_per_thread = n_keys > 2 * n_queries ? 6 : 16;
  return n_queries * n_kv_heads >= tasks_per_thread * n_threads * kMany ? kMany : kFew;
}

}  // namespace

bool TieredAttention::uses_bf16() const {
  return math_ == AttentionMath::kBf16 && kernels_->bf16_attention != nullptr;
}

// A stretch of pages whose flash pages, if any, are all in one extent.
struct TieredAttention::Stretch {
  int64_t page_begin, page_end;
  const std::byte* extent;
};

Status TieredAttention::attend_many(const Call& call) {
  size_t next_extent = 0;
  const auto extent_end = [&](int64_t page) {
    return std::min((page / layout_->extent_pages + 1) * layout_->extent_pages, call.n_pages());
  };
  const auto has_flash = [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      if (call.pages.tier(call.layer, p) == PageTier::kFlash) return true;
    }
    return false;
  };
  for (int64_t begin = call.first_page(); begin < call.n_pages();) {
    Stretch stretch = {begin, extent_end(begin), nullptr};
    if (has_flash(begin, stretch.page_end)) {
      TIERKV_ASSIGN_OR_RETURN(stretch.extent, call.pages.read_extent(call.layer, next_extent++));
    } else {
      while (stretch.page_end < call.n_pages() &&
             !has_flash(stretch.page_end, extent_end(stretch.page_end))) {
        stretch.page_end = extent_end(stretch.page_end);
      }
    }
    run_stretch(call, stretch);
    begin = stretch.page_end;
  }
  return {};
}

void TieredAttention::run_stretch(const Call& call, const Stretch& stretch) {
  const int n_heads = call.shape.n_kv_heads;
  const int64_t each = task_queries(call.n_queries, call.n_keys(), n_heads, pool_->size());
  const int64_t n_blocks = (call.n_queries + each - 1) / each;
  pool_->parallel_for(n_blocks * n_heads, [&](int64_t task, int thread) {
    // The last query blocks see most keys: they go first.
    const int64_t first = (n_blocks - 1 - task / n_heads) * each;
    const RowBlock rows = {static_cast<int>(task % n_heads), first,
                           std::min(first + each, call.n_queries)};
    run_rows(call, stretch, rows, thread);
  });
}

void TieredAttention::run_rows(const Call& call, const Stretch& stretch, const RowBlock& block,
                               int thread) {
  const bool bf16 = uses_bf16();
  const int64_t end = block.query_end * call.shape.group();
  for (int64_t row = block.query_begin * call.shape.group(); row < end; row += kMaxAttentionRows) {
    const int64_t n = std::min<int64_t>(end - row, kMaxAttentionRows);
    AttentionRows rows = call.plain_rows(block.kv_head, row, n);
    for (int64_t page = stretch.page_begin; page < stretch.page_end; ++page) {
      if (!call.set_ranges(rows, row, page, call.scratch.ranges(thread))) continue;
      const uint16_t* exact = exact_form(call, stretch, page, block.kv_head, thread);
      std::byte* scratch = call.scratch.kernel(thread);
      if (bf16) {
        kernels_->bf16_attention->attend(exact, rows, call.bf16_queries(block.kv_head, row),
                                         scratch);
      } else {
        kernels_->attention->attend_exact(exact, rows, scratch);
      }
    }
  }
}

// The exact block of a page, decoded into the thread's own where the page is compressed.
const uint16_t* TieredAttention::exact_form(const Call& call, const Stretch& stretch, int64_t page,
                                            int kv_head, int thread) const {
  const void* block = call.block(page, kv_head, stretch.extent);
  if (call.is_low_rank(page)) return decode_latents(call, page, kv_head, block, thread);
  if (!call.is_rotated(page, kv_head)) return static_cast<const uint16_t*>(block);
  uint16_t* decoded = call.scratch.block(thread);
  kernels_->rotated->decode(call.format(kv_head), static_cast<const std::byte*>(block),
                            call.shape.head_dim, call.pages.key_balance(call.layer, kv_head),
                            decoded, call.scratch.kernel(thread));
  return decoded;
}

}  // namespace tierkv
