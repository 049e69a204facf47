// Cosines and sines of the rotary embedding for the positions of one chunk, for each kind of layer
// (base, scale and factors differ between local and global layers). Angles are computed in double.
// RoFormer (arXiv 2104.09864), equation 15: theta_i = base^(-2i/d); Llama 3 divides theta_i by a
// factor from the file.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_spec.h"

namespace tierkv {

class RopeTable {
 public:
  RopeTable(const ModelSpec& spec, const float* rope_freqs);

  // Radians per position of each pair of a layer's heads, [head_dim / 2].
  const std::vector<double>& frequencies(int layer) const {
    return kinds_[kind_of_layer_[layer]].frequency;
  }

  // Floats of memory for chunks of max_chunk tokens.
  static int64_t memory_floats(const ModelSpec& spec, int64_t max_chunk);
  void set_memory(float* memory, int64_t max_chunk);

  // Fills row `row` for a token at `position`.
  void fill(int64_t row, int64_t position);

  // [head_dim / 2] for a layer's kind.
  const float* cosines(int layer, int64_t row) const { return at(layer, row); }
  const float* sines(int layer, int64_t row) const {
    return at(layer, row) + kinds_[kind_of_layer_[layer]].n_pairs;
  }

 private:
  struct Kind {
    float base, scale;
    bool factors;
    int64_t n_pairs;
    std::vector<double> frequency;  // radians per position
    float* memory = nullptr;        // [max_chunk][2][n_pairs]
  };

  static std::vector<Kind> list_kinds(const ModelSpec& spec, std::vector<int>* kind_of_layer);
  const float* at(int layer, int64_t row) const {
    const Kind& kind = kinds_[kind_of_layer_[layer]];
    return kind.memory + row * 2 * kind.n_pairs;
  }

  std::vector<int> kind_of_layer_;
  std::vector<Kind> kinds_;
};

}  // namespace tierkv
