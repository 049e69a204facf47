// The KV cache in three tiers: what a decoder stores into and attends to. Pages of full-attention
// layers live in a PageTable; layers that see only a window keep just that, always exact.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "kv/kv_layout.h"
#include "kv/page_table.h"
#include "kv/tiered_attention.h"
#include "plan/plan.h"

namespace tierkv {

struct TierReport {
  int64_t n_exact = 0, n_compressed = 0, n_offloaded = 0;  // tokens
  uint64_t tier0_bytes = 0, tier1_bytes = 0, tier2_bytes = 0, staging_bytes = 0;
  double bits_per_element = 0;  // of K and V in Tier-1, scales included, mean over layers; 0: none
  uint64_t tier1_page_bytes = 0;  // of the pages alone
  int64_t n_copied = 0;           // of the offloaded tokens, with a copy in Tier-1's codecs
  uint64_t copy_bytes = 0;        // of these copies, part of tier1_bytes
  uint64_t basis_bytes = 0;       // of low-rank layers, beside their pages
  FlashStats flash;
  FlashBackend flash_backend = FlashBackend::kAuto;  // kAuto: flash is not in use
};

class TieredCache : public KvCache, private PageSource {
 public:
  // `max_chunk`: most tokens of one begin(); `largest_rank`: of low-rank layers that a plan may
  // have. References must outlive the cache.
  static Result<std::unique_ptr<TieredCache>> create(const KvLayout& layout, MemoryBudget& budget,
                                                     const Kernels& kernels, ThreadPool& pool,
                                                     int64_t max_chunk, FlashOptions flash,
                                                     AttentionMath math = AttentionMath::kBf16,
                                                     int64_t largest_rank = 0);

  int64_t length() const override { return length_; }
  Status begin(int64_t n_tokens) override;
  Status attend(int layer, const float* q, const float* k, const float* v, ChunkTokens wanted,
                float* out) override;
  Status commit() override;
  void abandon() override;

  // See PageTable.
  void set_exact_limit(int64_t max_exact_pages) { table_.set_exact_limit(max_exact_pages); }
  void set_ropes(std::vector<KvRope> ropes) { table_.set_ropes(std::move(ropes)); }
  bool uses_flash() const { return table_.uses_flash(); }
  int64_t n_bound() const { return table_.n_bound(); }
  Status settle(const Plan& plan);

  // Most tokens of one begin() from now on; not between begin() and commit().
  Status set_max_chunk(int64_t max_chunk);

  // What the KV in all tiers and its staging take of the budget.
  uint64_t ram_bytes() const;

  // Forgets the tokens from n_tokens on. False, and nothing changes, when the cache can't be as it
  // was then: pages have changed tiers, or have been dropped behind a window.
  bool rewind(int64_t n_tokens);

  // Saves all tokens as a point of the session (FlashOptions::session); `point` brings the tokens.
  Status save(SessionPoint point);
  // Whether the first n_tokens of a point can be had: not when they end so early that a window
  // reaches past the pages that the point keeps.
  static bool can_restore(const KvLayout& layout, const SessionPoint& point, int64_t n_tokens);
  // Takes them into an empty cache, which stays empty after an error. Until settle() or
  // load_newest() those in whole extents stay on flash.
  Status restore(const SessionPoint& point, int64_t n_tokens);
  Status load_newest(int64_t n_exact_pages) { return table_.load_newest(n_exact_pages); }

  TierReport report() const;

 private:
  friend class CodecTrial;  // kv/codec_trial.h

  TieredCache(const KvLayout& layout, MemoryBudget& budget, const Kernels& kernels,
              ThreadPool& pool, int64_t max_chunk, FlashOptions flash, TieredAttention attention,
              int64_t largest_rank);

  PageTier tier(int layer, int64_t page) const override;
  const uint16_t* exact_block(int layer, int64_t page, int kv_head) override;
  const std::byte* compressed_block(int layer, int64_t page, int kv_head) const override;
  RotatedFormat format(int layer, int kv_head) const override;
  const float* key_balance(int layer, int kv_head) const override {
    return layout_.is_full(layer) ? table_.key_balance(layer, kv_head) : nullptr;
  }
  const LowRankCodec* low_rank() const override { return table_.low_rank(); }
  Result<const std::byte*> read_extent(int layer, size_t index) override;
  const uint16_t* flash_block(const std::byte* payload, int layer, int64_t page,
                              int kv_head) const override;
  SelectiveRead* selective() override { return table_.selective(); }
  bool has_copy(int64_t page) const override { return table_.has_copy(page); }
  void choose_extents(int layer, std::vector<int64_t> extents) override {
    table_.choose_extents(layer, std::move(extents));
  }
  void choose_all_extents(int layer) override { table_.choose_extents(layer, table_.extents()); }

  Status grow_window_pages(int64_t n_tokens);
  void shrink_window_pages();
  Status restore_window(const SessionPoint& point, int64_t n_tokens);
  uint16_t* writable_block(int layer, int64_t page, int kv_head);
  void store(int layer, const float* k, const float* v);

  const KvLayout& layout_;
  MemoryBudget& budget_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  int64_t max_chunk_;
  const int64_t largest_rank_;
  int64_t length_ = 0;
  int64_t chunk_ = 0;  // tokens of the chunk that was begun

  SessionFile* const session_;
  PageTable table_;
  std::deque<Buffer> window_pages_;  // of the window-only layers, from first_window_page_ on
  int64_t first_window_page_ = 0;
  TieredAttention attention_;
};

}  // namespace tierkv
