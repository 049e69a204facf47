// The low-rank codec of one cache: per layer a basis, found once from the prompt's own pages, and
// the tables that rotate by positions. kernels/low_rank.h does the arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kv/kv_layout.h"
#include "kv/low_rank_basis.h"
#include "kv/query_energy.h"

namespace tierkv {

// How a layer's keys were rotated: pair i of a head by position * frequency[i] radians.
struct KvRope {
  RopePairing pairing = RopePairing::kAdjacent;
  std::vector<double> frequency;  // [head_dim / 2]
  friend bool operator==(const KvRope&, const KvRope&) = default;
};

class LowRankCodec {
 public:
  // Gives every whole page of a layer, by its number and its exact blocks of all KV heads.
  using PageVisitor = std::function<void(int64_t page, const std::byte* exact_layer)>;
  using ForEachPage = std::function<Status(int layer, const PageVisitor& visit)>;

  // Bytes of the budget at the most; `choices` per layer of the layout.
  static uint64_t memory_bytes(const KvLayout& layout, const std::vector<LowRankChoice>& choices,
                               int64_t max_tokens, int n_threads);
  // Bytes of the bases alone.
  uint64_t basis_bytes() const { return w_.size(); }
  // Each layer's own rank: together blocks are no larger than those of the choices asked for.
  const std::vector<LowRankChoice>& choices() const { return choices_; }

  // References must outlive the codec; `ropes` per layer, positions below max_tokens. Finds the
  // bases from the pages.
  static Result<std::unique_ptr<LowRankCodec>> create(const KvLayout& layout,
                                                      const std::vector<LowRankChoice>& choices,
                                                      const std::vector<KvRope>& ropes,
                                                      const QueryEnergy& queries,
                                                      int64_t max_tokens, MemoryBudget& budget,
                                                      const Kernels& kernels, ThreadPool& pool,
                                                      const ForEachPage& for_each_page);

  // Null for a layer of another codec.
  const LowRankLayer* layer(int layer) const {
    return layers_[layer].rank == 0 ? nullptr : &layers_[layer];
  }
  // Cosines and sines of the page's first position, [head_dim].
  void page_angles(int layer, int64_t page, float* out) const;
  // A layer's page, exact blocks of all KV heads, to its low-rank block.
  void encode(int layer, int64_t page, const std::byte* exact_layer, std::byte* block);

 private:
  // Angles of the offsets in a page, and of the first positions of pages in two steps: turning by
  // page % kPagesAStep, then by the step.
  static constexpr int64_t kPagesAStep = 64;
  struct Tables {
    float *offsets, *pages, *steps;  // [kPageTokens], [kPagesAStep], [n_steps], each [head_dim]
  };
  static int64_t table_floats(int64_t head_dim, int64_t max_tokens);

  LowRankCodec(const KvLayout& layout, MemoryBudget& budget, const Kernels& kernels,
               ThreadPool& pool)
      : layout_(layout), budget_(budget), kernels_(kernels), pool_(pool) {}

  Status allocate(const std::vector<LowRankChoice>& choices, const std::vector<KvRope>& ropes,
                  int64_t max_tokens);
  Result<Buffer> allocate_bases();
  Status share_out(const std::vector<LowRankChoice>& asked);
  Status allocate_tables(const std::vector<LowRankChoice>& choices,
                         const std::vector<KvRope>& ropes, int64_t max_tokens);
  Status find_bases(const QueryEnergy& queries, const ForEachPage& for_each_page);
  Status find_bases_of(std::span<const int> layers, const QueryEnergy& queries,
                       const ForEachPage& for_each_page);
  Result<int64_t> gather_gram(int layer, const ForEachPage& for_each_page, float* gram);
  Status find_basis(int layer, const LowRankGram& gram, const QueryEnergy& queries);
  void gather(int layer, int64_t page, const std::byte* exact_layer);
  // [kPageTokens][width] of the page that was gathered last; the threads' scratch lies before.
  float* rows() { return reinterpret_cast<float*>(scratch_.data() + thread_bytes_ * pool_.size()); }

  const KvLayout& layout_;
  MemoryBudget& budget_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  std::vector<LowRankLayer> layers_;  // per layer of the model
  std::vector<LowRankChoice> choices_;
  std::vector<LowRankSpectrum> spectra_;
  std::vector<Tables> tables_;
  std::vector<std::vector<float>> k_scales_;  // [n_kv_heads, head_dim / 2] per layer
  Buffer w_, tables_memory_, scratch_;
  uint64_t thread_bytes_ = 0;
};

}  // namespace tierkv
