// Attention over one page of keys and values, for the query rows that share one KV head. The
// running state of each row is (max, sum, output), unnormalised, as in flash attention; states over
// different sets of keys merge, which is what lets tiers compose (flashinfer's cascade calls it the
// same).
//
// Page: kPageTokens consecutive tokens of one layer. Exact page, float16, per KV head one block of
//   K [kPageTokens / 16][head_dim][16 tokens]   then   V [kPageTokens][head_dim]
// so that scores of 16 tokens are one vector without horizontal sums, and values are rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tierkv {

inline constexpr int kPageTokens = 64;
inline constexpr int kPageLane = 16;  // tokens interleaved in K
inline constexpr int kMaxAttentionRows = 512;
inline constexpr float kNoScore = -1e30f;  // max of a state that has seen no key

// float16 elements of one KV head's block in an exact page, K and V.
constexpr int64_t exact_block_elements(int64_t head_dim) { return 2 * kPageTokens * head_dim; }
constexpr int64_t exact_block_bytes(int64_t head_dim) { return exact_block_elements(head_dim) * 2; }

// n_rows query rows and their running states. Row r sees the page's tokens [first[r], last[r]),
// 0 <= first <= last <= kPageTokens; an empty range leaves its state as it was.
struct AttentionRows {
  int n_rows = 0;            // at most kMaxAttentionRows
  int64_t head_dim = 0;      // 64, 128 or 256 are fast; any multiple of 16 up to 512 works
  const float* q = nullptr;  // [n_rows, head_dim], already scaled
  const int32_t* first = nullptr;
  const int32_t* last = nullptr;
  float softcap = 0;     // 0: none; else scores become softcap * tanh(score / softcap)
  float* max = nullptr;  // [n_rows], in and out
  float* sum = nullptr;  // [n_rows], in and out
  float* out = nullptr;  // [n_rows, head_dim], in and out, unnormalised
  // A hint, of no effect on results: where the block lies that will be attended to next, if known.
  // Few rows (decode) wait mostly for memory; with this they need not.
  const uint16_t* next_block = nullptr;
};

struct AttentionKernels {
  // Starts states: max = kNoScore, sum = 0, out = 0.
  void (*init)(const AttentionRows& rows);
  // Updates the rows' states with one head block of an exact page. The result for a row depends
  // only on that row, the block's contents and first/last: not on n_rows, nor where the block lies.
  // `scratch`: attention_scratch_bytes(head_dim) bytes, 64-aligned, one per thread.
  void (*attend_exact)(const uint16_t* block, const AttentionRows& rows, std::byte* scratch);
  // into <- into + from, both states over the same query rows.
  void (*merge)(const AttentionRows& from, const AttentionRows& into);
  // out /= sum: the attention output. Rows that saw nothing become zero.
  void (*finish)(const AttentionRows& rows);
  // Writes token `slot` of a block: k, v [head_dim] float32 -> float16.
  void (*store_token)(const float* k, const float* v, int64_t head_dim, int slot, uint16_t* block);
};

uint64_t attention_scratch_bytes(int64_t head_dim);

extern const AttentionKernels kAttentionScalar;
#if defined(__x86_64__)
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;
#endif

}  // namespace tierkv
