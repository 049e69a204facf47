// bfloat16 attention on AVX-512. A block is packed once per call into pairs (two dimensions of K,
// two tokens of V: what one dot instruction takes); then tiles of 6 rows x 64 tokens (scores) and 6
// rows x 64 dimensions (values) use each loaded vector six times and each broadcast four times.
// Where heads are short, so that softmax is much of the work, tiles have 4 rows and softmax of one
// goes between the products of the next (docs/decisions.md).
#if defined(__x86_64__)
#include "kernels/attention_bf16.h"
#include "kernels/simd_avx512.h"

namespace tierkv {
namespace {

constexpr int kTileRows = 6;
constexpr int kChainedRows = 4;  // a divisor of half of every head_dim
constexpr int64_t kMostChainedDim = 128;
constexpr int kTileVecs = 4;
constexpr int64_t kMaxHeadDim = 512;
constexpr int kPageVecs = kPageTokens / kVecFloats;

struct PackedBlock {
  uint16_t* keys;    // [head_dim / 2][kPageTokens][2 dims]
  uint16_t* values;  // [kPageTokens / 2][head_dim][2 tokens]
};

// Tokens [first, last) of a page.
struct TokenRange {
  int first, last;
};

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }

// The tokens that some of the rows see.
inline TokenRange seen_tokens(const AttentionRows& rows, int row, int n_rows) {
  TokenRange seen = {kPageTokens, 0};
  for (int r = row; r < row + n_rows; ++r) {
    if (rows.first[r] >= rows.last[r]) continue;
    seen = {smaller(seen.first, rows.first[r]), larger(seen.last, rows.last[r])};
  }
  return seen;
}

#include "kernels/attention_bf16_pack.inc"

// A pair of bfloat16 in every lane.
inline __m512bh broadcast_pair(const uint16_t* from) {
  int32_t pair;
  __builtin_memcpy(&pair, from, 4);
  __m512i all = _mm512_set1_epi32(pair);
  asm("" : "+v"(all));  // else each dot product loads and broadcasts for itself
  return (__m512bh)all;
}

inline __m512bh load_pairs(const uint16_t* from) { return (__m512bh)_mm512_load_si512(from); }

// Scores of a tile, in registers, over dimensions [begin, end).
template <int kRows>
inline void add_scores(const uint16_t* keys, const uint16_t* q, int64_t head_dim, int64_t begin,
                       int64_t end, __m512 (&sum)[kRows][kTileVecs]) {
  for (int64_t d = begin; d < end; d += 2) {
    __m512bh k[kTileVecs];
    TIERKV_UNROLL for (int j = 0; j < kTileVecs; ++j) {
      k[j] = load_pairs(keys + d * kPageTokens + j * 2 * kVecFloats);
    }
    TIERKV_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512bh pair = broadcast_pair(q + r * head_dim + d);
      TIERKV_UNROLL for (int j = 0; j < kTileVecs; ++j) {
        sum[r][j] = _mm512_dpbf16_ps(sum[r][j], k[j], pair);
      }
    }
  }
}

template <int kRows>
inline void clear(__m512 (&sum)[kRows][kTileVecs]) {
  TIERKV_UNROLL for (int r = 0; r < kRows; ++r) {
    TIERKV_UNROLL for (int j = 0; j < kTileVecs; ++j) sum[r][j] = _mm512_setzero_ps();
  }
}

// scores [kRows][kPageTokens]
template <int kRows>
inline void store_scores(const __m512 (&sum)[kRows][kTileVecs], float* scores) {
  TIERKV_UNROLL for (int r = 0; r < kRows; ++r) {
    TIERKV_UNROLL for (int j = 0; j < kTileVecs; ++j) {
      _mm512_store_ps(scores + r * kPageTokens + j * kVecFloats, sum[r][j]);
    }
  }
}

// 2^x for x <= 0, relative error 7.5e-5: less than the rounding of the result to bfloat16.
inline Vec coarse_exp2(Vec x) {
  const Vec n = vec_round(x);
  const Vec f = x - n;
  Vec p = vec_fma(vec_set(0.0551717021f), f, vec_set(0.2426111996f));
  p = vec_fma(p, f, vec_set(0.6932609677f));
  p = vec_fma(p, f, vec_set(0.9999280572f));
  return {_mm512_scalef_ps(p.v, n.v)};
}

inline void cap_scores(Vec* scores, float cap) {
  for (int i = 0; i < kPageVecs; ++i) {
    scores[i] = vec_tanh(scores[i] * vec_set(1 / cap)) * vec_set(cap);
  }
}

// Turns a row's scores into probabilities relative to its new maximum, brings max and sum up to
// date, and returns what its earlier output is to be multiplied with.
[[gnu::always_inline]] inline float soften_row(const AttentionRows& rows, int row,
                                               const float* scores, uint16_t* weights) {
  const TokenRange seen = {rows.first[row], rows.last[row]};
  Vec s[kPageVecs];
  for (int i = 0; i < kPageVecs; ++i) s[i] = vec_load(scores + i * kVecFloats);
  if (rows.softcap > 0) cap_scores(s, rows.softcap);
  if (seen.first > 0 || seen.last < kPageTokens) {
    for (int i = 0; i < kPageVecs; ++i) {
      const __mmask16 mask = seen_lanes(seen, i * kVecFloats);
      s[i].v = _mm512_mask_mov_ps(_mm512_set1_ps(kNoScore), mask, s[i].v);
    }
  }
  const Vec highest = vec_max(vec_max(s[0], s[1]), vec_max(s[2], s[3]));
  float keep = 1;
  if (_mm512_cmp_ps_mask(highest.v, _mm512_set1_ps(rows.max[row]), _CMP_GT_OQ) != 0) {
    const float top = vec_reduce_max(highest);  // seldom, once some pages are seen
    keep = vec_first(vec_exp(vec_set(rows.max[row] - top)));
    rows.max[row] = top;
  }
  constexpr float kLog2E = 1.44269504f;
  const Vec factor = vec_set(kLog2E), shift = vec_set(-rows.max[row] * kLog2E);
  for (int i = 0; i < kPageVecs; ++i) s[i] = coarse_exp2(vec_fma(s[i], factor, shift));
  for (int i = 0; i < kPageVecs; i += 2) {
    _mm512_store_si512(weights + i * kVecFloats, (__m512i)_mm512_cvtne2ps_pbh(s[i + 1].v, s[i].v));
  }
  rows.sum[row] = rows.sum[row] * keep + vec_reduce_add((s[0] + s[1]) + (s[2] + s[3]));
  return keep;
}

// out [kRows, head_dim] <- out * keep + weights . values, kVecs vectors of dimensions from `d` on.
template <int kRows, int kVecs>
void add_value_vecs(const uint16_t* values, int64_t head_dim, TokenRange seen,
                    const uint16_t* weights, const float* keep, int64_t d, float* out) {
  __m512 sum[kRows][kVecs];
  TIERKV_UNROLL for (int r = 0; r < kRows; ++r) {
    TIERKV_UNROLL for (int j = 0; j < kVecs; ++j) {
      sum[r][j] = (vec_load(out + r * head_dim + d + j * kVecFloats) * vec_set(keep[r])).v;
    }
  }
  for (int t = seen.first & ~1; t < seen.last; t += 2) {
    const uint16_t* from = values + t * head_dim + 2 * d;
    __m512bh v[kVecs];
    TIERKV_UNROLL for (int j = 0; j < kVecs; ++j) v[j] = load_pairs(from + j * 2 * kVecFloats);
    TIERKV_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512bh pair = broadcast_pair(weights + r * kPageTokens + t);
      TIERKV_UNROLL for (int j = 0; j < kVecs; ++j) {
        sum[r][j] = _mm512_dpbf16_ps(sum[r][j], v[j], pair);
      }
    }
  }
  TIERKV_UNROLL for (int r = 0; r < kRows; ++r) {
    TIERKV_UNROLL for (int j = 0; j < kVecs; ++j) {
      vec_store(out + r * head_dim + d + j * kVecFloats, Vec{sum[r][j]});
    }
  }
}

template <int kRows, int kVecs>
void add_values(const uint16_t* values, int64_t head_dim, TokenRange seen, const uint16_t* weights,
                const float* keep, int64_t d, float* out) {
  for (; d + kVecs * kVecFloats <= head_dim; d += kVecs * kVecFloats) {
    add_value_vecs<kRows, kVecs>(values, head_dim, seen, weights, keep, d, out);
  }
  if constexpr (kVecs > 1) {
    if (d < head_dim) add_values<kRows, kVecs / 2>(values, head_dim, seen, weights, keep, d, out);
  }
}

// What lies between a tile's scores and its sums of values.
template <int kRows>
struct TileWeights {
  alignas(64) float scores[kRows * kPageTokens];
  alignas(64) uint16_t weights[kRows * kPageTokens];
  float keep[kRows];

  void soften(const AttentionRows& rows, int first_row, int r) {
    keep[r] = soften_row(rows, first_row + r, scores + r * kPageTokens, weights + r * kPageTokens);
  }
  void add(const PackedBlock& block, const AttentionRows& rows, int first_row) const {
    add_values<kRows, kTileVecs>(block.values, rows.head_dim, seen_tokens(rows, first_row, kRows),
                                 weights, keep, 0, rows.out + first_row * rows.head_dim);
  }
};

template <int kRows>
void attend_tile(const PackedBlock& block, const AttentionRows& rows, const uint16_t* q, int row) {
  const int64_t dim = rows.head_dim;
  TileWeights<kRows> tile;
  __m512 sum[kRows][kTileVecs];
  clear(sum);
  add_scores(block.keys, q + row * dim, dim, 0, dim, sum);
  store_scores(sum, tile.scores);
  for (int r = 0; r < kRows; ++r) tile.soften(rows, row, r);
  tile.add(block, rows, row);
}

// The scores of a tile at `row`; between its products the tile before becomes weights, which waits
// for other things than they do.
template <int kRows>
[[gnu::noinline]] void score_and_soften(const PackedBlock& block, const AttentionRows& rows,
                                        const uint16_t* q, int row, TileWeights<kRows>& tile,
                                        TileWeights<kRows>& before) {
  const int64_t dim = rows.head_dim, part = dim / kRows;
  __m512 sum[kRows][kTileVecs];
  clear(sum);
  for (int r = 0; r < kRows; ++r) {
    before.soften(rows, row - kRows, r);
    add_scores(block.keys, q + row * dim, dim, r * part, (r + 1) * part, sum);
  }
  store_scores(sum, tile.scores);
}

// n_tiles neighbouring tiles from `row` on. To the bit what attend_tile() makes of them.
template <int kRows>
void attend_chain(const PackedBlock& block, const AttentionRows& rows, const uint16_t* q, int row,
                  int n_tiles) {
  const int64_t dim = rows.head_dim;
  TileWeights<kRows> tiles[2];
  __m512 sum[kRows][kTileVecs];
  clear(sum);
  add_scores(block.keys, q + row * dim, dim, 0, dim, sum);
  store_scores(sum, tiles[0].scores);
  for (int i = 1; i < n_tiles; ++i, row += kRows) {
    score_and_soften(block, rows, q, row + kRows, tiles[i % 2], tiles[1 - i % 2]);
    tiles[1 - i % 2].add(block, rows, row);
  }
  TileWeights<kRows>& last = tiles[(n_tiles - 1) % 2];
  for (int r = 0; r < kRows; ++r) last.soften(rows, row, r);
  last.add(block, rows, row);
}

template <int kMostRows>
void attend_tiles(const PackedBlock& block, const AttentionRows& rows, const uint16_t* q, int row,
                  int n_rows) {
  if (n_rows == kMostRows) return attend_tile<kMostRows>(block, rows, q, row);
  if constexpr (kMostRows > 1) attend_tiles<kMostRows - 1>(block, rows, q, row, n_rows);
}

// Tiles of neighbouring rows that all see something.
void attend(const uint16_t* exact, const AttentionRows& rows, const uint16_t* q,
            std::byte* scratch) {
  const TokenRange seen = seen_tokens(rows, 0, rows.n_rows);
  if (seen.first >= seen.last) return;
  const PackedBlock block = pack(exact, rows.head_dim, seen, scratch);
  const auto sees = [&](int r) { return r < rows.n_rows && rows.first[r] < rows.last[r]; };
  const bool chained = rows.head_dim <= kMostChainedDim;
  for (int row = 0; row < rows.n_rows;) {
    int n = 0;
    while ((chained || n < kTileRows) && sees(row + n)) ++n;
    if (chained && n >= kChainedRows) {
      n = n / kChainedRows * kChainedRows;
      attend_chain<kChainedRows>(block, rows, q, row, n / kChainedRows);
    } else if (n > 0) {
      attend_tiles<kTileRows>(block, rows, q, row, n);
    }
    row += larger(n, 1);
  }
}

}  // namespace

const Bf16AttentionKernels kBf16AttentionAvx512 = {prepare, attend};

}  // namespace tierkv
#endif
