// A model's weights, packed for the kernels. Read tensor by tensor from the file, in slices, each
// packed into its place before the next is read: never two copies, and the file's pages leave the
// page cache's share of this process as they are used.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "gguf/gguf.h"
#include "kernels/matmul.h"
#include "model/model_spec.h"

namespace tierkv {

struct LayerWeights {
  const float* attn_norm = nullptr;     // [n_embd]
  PackedMatrix attn_q, attn_k, attn_v;  // [n_heads * head_dim, n_embd] and for KV heads
  const float *attn_q_bias = nullptr, *attn_k_bias = nullptr, *attn_v_bias = nullptr;  // or null
  const float *attn_q_norm = nullptr, *attn_k_norm = nullptr;  // [head_dim], with qk_norm
  PackedMatrix attn_output;                                    // [n_embd, n_heads * head_dim]
  const float* post_attention_norm = nullptr;                  // [n_embd], with post_norms
  const float* ffn_norm = nullptr;                             // [n_embd]
  PackedMatrix ffn_gate, ffn_up;                               // [n_ff, n_embd]
  PackedMatrix ffn_down;                                       // [n_embd, n_ff]
  const float* post_ffw_norm = nullptr;                        // [n_embd], with post_norms
};

// Bytes done and in all, while loading. Returning false cancels.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

class Weights {
 public:
  // Bytes that load() will take from the budget for good, and the most it takes for a while.
  static uint64_t resident_bytes(const GgufFile& file, const ModelSpec& spec);
  static constexpr uint64_t kLoadSliceBytes = 2 << 20;

  static Result<Weights> load(const GgufFile& file, const ModelSpec& spec, MemoryBudget& budget,
                              ThreadPool& pool, const LoadProgress& progress = {});

  PackedMatrix token_embd;             // [n_vocab, n_embd]
  PackedMatrix output;                 // [n_vocab, n_embd]; token_embd itself when tied
  const float* output_norm = nullptr;  // [n_embd]
  const float* rope_freqs = nullptr;   // [head_dim / 2] or null
  std::vector<LayerWeights> layers;

  // All of the above, packed.
  std::span<const std::byte> memory() const { return {memory_.data(), memory_.size()}; }

 private:
  Buffer memory_;
};

}  // namespace tierkv
