// Factors for the dimensions of keys, so that what a codec loses of them comes to where queries are
// small (kernels/rotated.h, `key_balance`). An error of a rotated key is spread evenly over its
// dimensions; of factors sqrt(size of queries / spread of keys), dimension by dimension, the scores
// suffer least. They are found from the first tokens that are read, and stay as they are: codes are
// made with them, and made again after a saved session comes back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/vector.h"
#include "kv/kv_layout.h"

namespace tierkv {

// Whether these can be factors: within what KeyBalance::fix() makes.
bool key_balance_plausible(std::span<const float> factors);

class KeyBalance {
 public:
  // Of the first tokens of a prompt, as many are counted; fewer than kLeastTokens say nothing.
  static constexpr int64_t kMostTokens = 512, kLeastTokens = 64;

  explicit KeyBalance(const KvLayout& layout);  // must outlive the object

  // Counts a chunk's queries [n_tokens, n_heads, head_dim], before they are scaled, and keys
  // [n_tokens, n_kv_heads, head_dim] of a layer. Nothing once it is fixed, or for other layers than
  // full-attention ones.
  void count(const VectorKernels& kernels, int layer, const float* q, const float* k,
             int64_t n_tokens);

  // Whether kMostTokens have been counted: nothing is gained by waiting.
  bool full() const;

  // Finds the factors from what was counted. False if that is too little: then it is forgotten,
  // since a prompt is counted alone, and `whatever` makes all factors one.
  bool fix(const std::vector<RopePairing>& pairings, bool whatever);

  // As new: another prompt begins, and no code is left that was made with the factors.
  void reset();

  bool fixed() const { return !factors_.empty(); }
  // [head_dim] of a full-attention layer. Null: all are one.
  const float* factors(int layer, int kv_head) const;

  // All factors, layer by layer; none before they are fixed. restore() is false, and changes
  // nothing, if they are of another layout.
  const std::vector<float>& values() const { return factors_; }
  bool restore(std::span<const float> factors);

 private:
  struct Sums {
    std::vector<double> queries, keys;  // [n_kv_heads, head_dim]: squares, and about groups' means
    int64_t n_tokens = 0;
  };

  void forget();

  const KvLayout& layout_;
  std::vector<size_t> at_;  // of a layer's factors; layers that have none: their number
  size_t n_factors_ = 0;
  std::vector<Sums> sums_;
  std::vector<float> factors_;
};

}  // namespace tierkv
