// How large a prompt's queries are, dimension by dimension: what an error of a key there costs.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/vector.h"
#include "kv/kv_layout.h"

namespace tierkv {

class QueryEnergy {
 public:
  explicit QueryEnergy(const KvLayout& layout);  // must outlive the object

  // Counts queries [n_tokens, n_heads, head_dim] of a layer, before they are scaled.
  void add(int layer, const float* q, int64_t n_tokens);

  // Mean squares of the scaled queries that meet each column of a layer's K, [n_kv_heads, head_dim]
  // in the order of kernels/low_rank.h, the same for both of a pair, which RoPE mixes.
  std::vector<float> columns(int layer, RopePairing pairing) const;

 private:
  struct Sums {
    std::vector<double> squares;  // [n_kv_heads, head_dim], over the query heads of a group
    int64_t n = 0;                // queries of each KV head
  };

  const KvLayout& layout_;
  std::vector<Sums> layers_;
};

}  // namespace tierkv
