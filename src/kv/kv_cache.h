// What a decoder asks of a KV cache, and the shape of the layers it serves. Which tier a token lies
// in is no concern of the decoder.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace tierkv {

struct KvLayerShape {
  int n_heads = 0;  // query heads; n_heads / n_kv_heads of them share a KV head
  int n_kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;  // 0: every earlier token is visible; else those with q_pos - k_pos < window
  float scale = 1;     // of the scores
  float softcap = 0;   // 0: none

  int group() const { return n_heads / n_kv_heads; }
};

// Every step-th token of a chunk, from `first` on.
struct ChunkTokens {
  int64_t first = 0;
  int64_t step = 1;

  int64_t count(int64_t n_tokens) const {
    return first < n_tokens ? (n_tokens - first + step - 1) / step : 0;
  }
  static ChunkTokens last_of(int64_t n_tokens) { return {n_tokens - 1, 1}; }
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual int64_t length() const = 0;  // tokens committed

  // A chunk: begin, attend once for each layer in order, commit. begin() makes room for n_tokens
  // more and fails before anything is lost; after a failed attend() the cache takes abandon() only.
  virtual Status begin(int64_t n_tokens) = 0;
  // Stores k, v [n_tokens, n_kv_heads, head_dim] (k after RoPE) at the chunk's positions, then
  // attends with those of q [n_tokens, n_heads, head_dim] that are `wanted`, at least one,
  // causally, to all tokens so far, these included: out [wanted, n_heads, head_dim].
  virtual Status attend(int layer, const float* q, const float* k, const float* v,
                        ChunkTokens wanted, float* out) = 0;
  virtual Status commit() = 0;
  // Forgets the chunk that was begun.
  virtual void abandon() = 0;
};

}  // namespace tierkv
