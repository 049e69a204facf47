// Which directions of [K before RoPE, V] the low-rank codec keeps of a layer: the right singular
// vectors of its scaled rows x_t, found as eigenvectors of their Gram matrix sum x_t x_t^T, so that
// no more than that is held however long the prompt is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"

namespace tierkv {

// gram [width][width], right of and on the diagonal. Columns are K of each KV head in the order of
// kernels/low_rank.h, then V of each.
struct LowRankGram {
  float* gram = nullptr;
  int64_t width = 0, head_dim = 0;
  int64_t n_rows = 0;
};

// What columns are multiplied with before the decomposition, [width], so that a squared error means
// the same everywhere: what attention's output differs by. `query_energy` [width / 2]: mean squares
// of the queries, scaled as for scores, that meet each column of K (docs/decisions.md).
std::vector<float> choose_low_rank_scales(const LowRankGram& gram,
                                          std::span<const float> query_energy);

// Bytes taken from `budget` while a basis is found, beside the Gram matrix.
uint64_t low_rank_basis_bytes(int64_t width);

// What each kRankStep of a layer's directions keep of its scaled rows, most important first:
// squares relative to those of V, so that layers compare.
using LowRankSpectrum = std::vector<double>;

// The `rank` leading eigenvectors of the Gram matrix of scaled rows, most important first, as
// float16 w [width / head_dim][rank][head_dim], and what all of them keep. Overwrites the Gram
// matrix.
Status find_low_rank_basis(const LowRankGram& gram, std::span<const float> scales, int64_t rank,
                           MemoryBudget& budget, uint16_t* w, LowRankSpectrum& spectrum);

}  // namespace tierkv
