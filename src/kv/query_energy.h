// How large a prompt's queries are, dimension by dimension: what an error of a key there costs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/vector.h"
#include "kv/kv_layout.h"

namespace tierkv {

// Whether these can be a QueryEnergy's sums: none is negative, infinite or larger than any count.
bool query_sums_plausible(std::span<const double> sums);

class QueryEnergy {
 public:
  explicit QueryEnergy(const KvLayout& layout);  // must outlive the object

  // Counts queries [n_tokens, n_heads, head_dim] of a layer, before they are scaled.
  void add(int layer, const float* q, int64_t n_tokens);

  // What was counted of the full-attention layers, one after another: squares [n_kv_heads,
  // head_dim], then of how many queries. Nothing if there were none,
  // or if they are no numbers to go on from.
  std::vector<double> sums() const;
  // Goes on from such sums instead. False, and nothing changes, if they are of another layout.
  bool restore(std::span<const double> sums);

  // Mean squares of the scaled queries that meet each column of a layer's K, [n_kv_heads, head_dim]
  // in the order of kernels/low_rank.h, the same for both of a pair, which RoPE mixes.
  std::vector<float> columns(int layer, RopePairing pairing) const;

 private:
  struct Sums {
    std::vector<double> squares;  // [n_kv_heads, head_dim], over the query heads of a group
    int64_t n = 0;                // queries of each KV head
  };

  size_t n_sums() const;

  const KvLayout& layout_;
  std::vector<Sums> layers_;
};

}  // namespace tierkv
