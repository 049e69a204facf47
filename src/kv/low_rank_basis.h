// Which directions of [K before RoPE, V] the low-rank codec keeps of a layer: the right singular
// vectors of its rows x_t, found as eigenvectors of their Gram matrix G = sum x_t x_t^T, so that no
// more than G is held however long the prompt is.
#pragma once

#include <cstdint>

#include "base/memory_budget.h"
#include "base/status.h"

namespace tierkv {

// What K and V are multiplied with before the decomposition, so that neither gets its directions at
// the other's cost (docs/decisions.md).
struct LowRankScales {
  float k = 1, v = 1;
};

// gram [width][width], right of and on the diagonal: the first half of the columns is K, the second
// V, of heads of head_dim.
struct LowRankGram {
  float* gram = nullptr;
  int64_t width = 0, head_dim = 0;
};

LowRankScales choose_low_rank_scales(const LowRankGram& gram);

// Bytes taken from `budget` while a basis is found, beside the Gram matrix.
uint64_t low_rank_basis_bytes(int64_t width);

// The `rank` leading eigenvectors of the Gram matrix of scaled rows, most important first, as
// float16 w [width / head_dim][rank][head_dim].
Status find_low_rank_basis(const LowRankGram& gram, LowRankScales scales, int64_t rank,
                           MemoryBudget& budget, uint16_t* w);

}  // namespace tierkv
