// The low-rank codec (TierKV paper, arXiv 2609.21172): a page of one layer, all its KV heads
// jointly, as latents z = W x of
//   x = [k_scale * K of head 0, .., v_scale * V of head 0, ..]   K before RoPE, 2 n_kv_heads
//   head_dim
// whose rows W are orthonormal (kv/low_rank_basis.h finds them), so that K = W_k^T z / k_scale and
// V likewise. Both dimensions that RoPE turns as a pair have the same scale. Keys are rebuilt in
// cache, one KV head and page at a time, and scored; values are weighted as latents, of which
// project() makes an output once a step.
//
// Inside x, K's dimensions are in the order that RoPE pairs as halves, whatever the model's
// pairing: a permutation of K and query alike changes no score, and the kernels have one way to
// rotate. A page's rotation is that of its first token (page angles) and then that of the offset in
// it: rebuilt keys take only the latter, from one small table, and queries the former, backwards.
//
// Block of one layer and page: float16 latents [kPageTokens][rank], or
//   int8 latents [kPageTokens][rank], float16 scales [kPageTokens][groups of kLatentGroup latents]
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/vector.h"

namespace tierkv {

inline constexpr int kRankStep = 16;  // ranks are multiples of this
inline constexpr int kLatentGroup = 32;
inline constexpr int64_t kMostLowRankHeadDim = 512;

// What all blocks of one layer share.
struct LowRankLayer {
  int64_t rank = 0, head_dim = 0, n_kv_heads = 0;
  int latent_bits = 16;  // or 8
  RopePairing pairing = RopePairing::kAdjacent;
  float v_scale = 1;
  const float* k_scale = nullptr;  // [n_kv_heads][head_dim / 2]
  const uint16_t* w = nullptr;  // float16 [2 n_kv_heads][rank][head_dim]: W of each K, then each V
  const float* offset_angles = nullptr;  // [kPageTokens][head_dim]: cosines, sines of each offset

  int64_t width() const { return 2 * n_kv_heads * head_dim; }  // of x
  const float* pair_scales(int kv_head) const { return k_scale + kv_head * head_dim / 2; }
  const uint16_t* w_k(int kv_head) const { return w + kv_head * rank * head_dim; }
  const uint16_t* w_v(int kv_head) const { return w_k(static_cast<int>(n_kv_heads) + kv_head); }
};

bool low_rank_head_dim_valid(int64_t head_dim);
// The rank that is `permille` of the width: rounded to kRankStep, at least that.
int64_t low_rank_of(int64_t n_kv_heads, int64_t head_dim, int permille);
// Bytes of one layer's block, a multiple of 64.
uint64_t low_rank_block_bytes(int64_t rank, int latent_bits);
// Of attend(), encode() and decode().
uint64_t low_rank_scratch_bytes(int64_t rank, int64_t head_dim);

// `page_angles`: [head_dim], cosines and sines of the page's first position.
struct LowRankKernels {
  // Columns of one KV head, K and V, of x [kPageTokens][width], from its exact block.
  void (*gather)(const LowRankLayer& layer, const uint16_t* exact_block, int kv_head,
                 const float* page_angles, float* x);
  // gram[i][j] += sum over the page of x[i] x[j] for i in [begin, end), multiples of kRankStep, and
  // at least all j >= i. gram: [width][width].
  void (*add_gram)(const float* x, int64_t width, int64_t begin, int64_t end, float* gram);
  // Latents of tokens [first, last), multiples of 8, into `block`.
  void (*encode)(const LowRankLayer& layer, const float* x, int first, int last, std::byte* block,
                 std::byte* scratch);
  // As AttentionKernels::attend_exact for one KV head, but rows.out is [n_rows][rank] and
  // accumulates latents.
  void (*attend)(const LowRankLayer& layer, const std::byte* block, int kv_head,
                 const float* page_angles, const AttentionRows& rows, std::byte* scratch);
  // out [n_rows, head_dim] from such latents [n_rows, rank].
  void (*project)(const LowRankLayer& layer, int kv_head, const float* latents, int n_rows,
                  float* out);
  // The approximation that the block stands for, as one KV head's exact block.
  void (*decode)(const LowRankLayer& layer, const std::byte* block, int kv_head,
                 const float* page_angles, uint16_t* exact_block, std::byte* scratch);
};

extern const LowRankKernels kLowRankScalar;
#if defined(__x86_64__)
extern const LowRankKernels kLowRankAvx2;
extern const LowRankKernels kLowRankAvx512;
#endif

}  // namespace tierkv
