// The rotated-integer codec (docs/decisions.md): K and V of one KV head and page, Hadamard-rotated
// over the head dimension, b-bit codes, a scale for each token's K and V, and the keys' mean.
// Queries are rotated once and quantised to int8; scores and values accumulate in integers without
// rebuilding K or V; the output stays rotated until unrotate(), once a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace tierkv {

// Bits of a code: K in {3,4,5,6,8}, V in {2,3,4,5,6,8}. head_dim: a power of two, 32 to 512.
struct RotatedFormat {
  uint8_t k_bits = 0;
  uint8_t v_bits = 0;
  friend bool operator==(const RotatedFormat&, const RotatedFormat&) = default;
};

bool rotated_format_valid(RotatedFormat format);
bool rotated_head_dim_valid(int64_t head_dim);

// Bytes of one KV head's block (kPageTokens tokens, K and V, scales included), a multiple of 64.
uint64_t rotated_block_bytes(RotatedFormat format, int64_t head_dim);

// Query rows in rotated int8 form: buffers given by the caller.
struct RotatedQuery {
  int8_t* codes = nullptr;  // [n_rows, head_dim], 64-aligned
  float* scale = nullptr;   // [n_rows]
  int32_t* sum = nullptr;   // [n_rows]: sum of the codes
};

inline constexpr int kMaxRun = 4;       // blocks attended to in one call
inline constexpr int kBlocksAhead = 2;  // that it helps to know of beforehand

// n blocks of one KV head, in the order in which they are attended to, and behind them those that
// will be next, null where unknown: hints, of no effect on results, without which few rows (decode)
// wait mostly for memory.
struct RotatedRun {
  const std::byte* blocks[kMaxRun + kBlocksAhead] = {};
  int n = 0;
};

struct RotatedKernels {
  // Encodes a whole exact head block; tokens from n_tokens on stand for next to nothing.
  // `key_balance` [head_dim], positive, or null for ones: keys are multiplied with it, and queries
  // divided by it, so that errors of keys come to where queries are small. The same one belongs to
  // all functions. `scratch`: rotated_scratch_bytes(head_dim) bytes, 64-aligned.
  void (*encode)(RotatedFormat format, const uint16_t* exact_block, int n_tokens, int64_t head_dim,
                 const float* key_balance, std::byte* block, std::byte* scratch);
  // The approximation the block stands for, as an exact head block (rotation undone).
  void (*decode)(RotatedFormat format, const std::byte* block, int64_t head_dim,
                 const float* key_balance, uint16_t* exact_block, std::byte* scratch);
  // Rotates and quantises rows.q (already scaled) into `query`.
  void (*prepare)(const AttentionRows& rows, const float* key_balance, const RotatedQuery& query,
                  std::byte* scratch);
  // As AttentionKernels::attend_exact with each block of the run in turn, all with the same ranges
  // of tokens, to the last bit; but rows.out accumulates in rotated space, and neither rows.q nor
  // rows.next_block is read.
  void (*attend)(RotatedFormat format, const RotatedRun& run, const AttentionRows& rows,
                 const RotatedQuery& query);
  // Undoes the rotation of rows.out, after which the state merges with exact ones.
  void (*unrotate)(const AttentionRows& rows, std::byte* scratch);
};

uint64_t rotated_scratch_bytes(int64_t head_dim);

extern const RotatedKernels kRotatedScalar;
#if defined(__x86_64__)
extern const RotatedKernels kRotatedAvx2;
extern const RotatedKernels kRotatedAvx512;
#endif

}  // namespace tierkv
