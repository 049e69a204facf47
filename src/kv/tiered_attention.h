// Attention of one layer over pages in all tiers (docs/architecture.md, "attention over tiers").
//
// Exact pages, in RAM or from flash, update a plain state; compressed pages one in rotated space or
// of latents; both merge at the end. Two ways, by the number of queries:
//  - few (decode): work splits over the KV length. Partial states over fixed runs of kSplitPages
//  pages
//    merge in ascending order, so results don't depend on tiers' places or the number of threads.
//  - many (prefill): work splits over query rows; each row meets the pages in ascending order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kv/kv_layout.h"
#include "kv/page_table.h"
#include "kv/selective_read.h"

namespace tierkv {

// Where a layer's pages are: what attention reads.
class PageSource {
 public:
  virtual ~PageSource() = default;
  virtual PageTier tier(int layer, int64_t page) const = 0;
  virtual const uint16_t* exact_block(int layer, int64_t page, int kv_head) = 0;
  virtual const std::byte* compressed_block(int layer, int64_t page, int kv_head) const = 0;
  virtual RotatedFormat format(int layer, int kv_head) const = 0;
  // Factors of keys in codes, [head_dim]; null: ones.
  virtual const float* key_balance(int, int) const { return nullptr; }
  virtual const LowRankCodec* low_rank() const { return nullptr; }  // null while no layer has it
  // Payload of the index-th extent that has flash pages, in order; valid until the next call.
  virtual Result<const std::byte*> read_extent(int layer, size_t index) = 0;
  virtual const uint16_t* flash_block(const std::byte* payload, int layer, int64_t page,
                                      int kv_head) const = 0;

  // Selective reading; null: every extent is read. A flash page may have a copy, which lies at
  // compressed_block().
  virtual SelectiveRead* selective() { return nullptr; }
  virtual bool has_copy(int64_t) const { return false; }
  // From now on read_extent()'s indices are of these extents; or, again, of all.
  virtual void choose_extents(int, std::vector<int64_t>) {}
  virtual void choose_all_extents(int) {}
};

// How prefill multiplies exact pages. kBf16 where the CPU multiplies bfloat16, else float32;
// kFloat32 is for measuring what that costs (docs/decisions.md).
enum class AttentionMath : uint8_t { kBf16, kFloat32 };

class TieredAttention {
 public:
  // At most this many queries are "few".
  static constexpr int64_t kFewTokens = 16;

  // `largest_rank`: of low-rank layers that there may be.
  static uint64_t scratch_bytes(const KvLayout& layout, int64_t max_chunk, int n_threads,
                                int64_t largest_rank = 0);
  // References must outlive the object.
  static Result<TieredAttention> create(const KvLayout& layout, MemoryBudget& budget,
                                        const Kernels& kernels, ThreadPool& pool, int64_t max_chunk,
                                        AttentionMath math = AttentionMath::kBf16,
                                        int64_t largest_rank = 0);

  // Other scratch memory, for chunks of at most max_chunk tokens. After an error there is none.
  Status resize(MemoryBudget& budget, int64_t max_chunk);

  // Of a chunk that stands at first_position and after, and whose keys and values are in the pages
  // already: q [n_tokens, n_heads, head_dim], out [wanted, n_heads, head_dim].
  Status attend(PageSource& pages, int layer, int64_t first_position, int64_t n_tokens,
                const float* q, ChunkTokens wanted, float* out);

 private:
  struct Scratch;  // the parts of one Buffer
  struct Call;     // one attend()
  struct Split;    // the pages of one partial state
  struct Task;     // one KV head's part of it
  struct Stretch;  // pages that prefill takes at once
  struct RowBlock {
    int kv_head;
    int64_t query_begin, query_end;
  };

  TieredAttention(const KvLayout& layout, const Kernels& kernels, ThreadPool& pool,
                  AttentionMath math, int64_t largest_rank)
      : layout_(&layout),
        kernels_(&kernels),
        pool_(&pool),
        math_(math),
        largest_rank_(largest_rank) {}

  Scratch scratch() const;
  bool uses_bf16() const;
  enum class QueryForm : uint8_t { kFloat, kCodes, kBf16 };
  void start_rows(const Call& call, const float* q, ChunkTokens wanted, QueryForm form);
  void finish_rows(const Call& call, float* out);
  template <typename Fn>
  void for_token_blocks(const Call& call, Fn&& fn);

  // tiered_attention.cc
  Status attend_few(const Call& call);
  void start_packed(const Call& call);
  std::vector<Split> splits_of(const Call& call) const;
  size_t most_splits(const Call& call) const;
  Status attend_splits(const Call& call, std::vector<Split> splits);
  void run_splits(const Call& call, const std::vector<Split>& splits);
  void form_states(const Call& call, std::span<const Split> splits);
  void merge_states(const Call& call, size_t n_splits);
  void run_task(const Call& call, const Task& task, const Task& following, int thread);
  static const void* block_of(const Call& call, const Task& task, const Task& following,
                              int64_t page);
  static RotatedRun run_of(const Call& call, const Task& task, const Task& following, int64_t page);
  void merge_packed(const Call& call);

  // selective_attention.cc
  Status attend_selective(const Call& call, SelectiveRead& rule);
  std::vector<int64_t> judge(const Call& call, std::vector<Split>& splits, SelectiveRead& rule);
  static std::vector<int64_t> choose(const Call& call, std::span<const Split> splits,
                                     std::span<const double> effects, SelectiveRead& rule);
  Status replace_states(const Call& call, std::vector<Split>& splits);

  // low_rank_attention.cc
  void attend_latents(const Call& call, const AttentionRows& state, int64_t page, int kv_head,
                      const void* block, int thread) const;
  void merge_latents(const Call& call) const;
  const uint16_t* decode_latents(const Call& call, int64_t page, int kv_head, const void* block,
                                 int thread) const;

  // prefill_attention.cc
  Status attend_many(const Call& call);
  void run_stretch(const Call& call, const Stretch& stretch);
  void run_rows(const Call& call, const Stretch& stretch, const RowBlock& block, int thread);
  const uint16_t* exact_form(const Call& call, const Stretch& stretch, int64_t page, int kv_head,
                             int thread) const;

  const KvLayout* layout_;
  const Kernels* kernels_;
  ThreadPool* pool_;
  int64_t max_chunk_ = 0;
  AttentionMath math_;
  int64_t largest_rank_;
  Buffer memory_;
};

}  // namespace tierkv
