#include "model/rope_table.h"

#include <algorithm>
#include <cmath>

namespace tierkv {

std::vector<RopeTable::Kind> RopeTable::list_kinds(const ModelSpec& spec,
                                                   std::vector<int>* kind_of_layer) {
  std::vector<Kind> kinds;
  for (const LayerSpec& layer : spec.layers) {
    const Kind wanted = {
        layer.rope_base, layer.rope_scale, layer.rope_factors, layer.attention.head_dim / 2, {}};
    const auto same = [&](const Kind& k) {
      return k.base == wanted.base && k.scale == wanted.scale && k.factors == wanted.factors &&
             k.n_pairs == wanted.n_pairs;
    };
    auto found = std::find_if(kinds.begin(), kinds.end(), same);
    if (found == kinds.end()) found = kinds.insert(kinds.end(), wanted);
    kind_of_layer->push_back(static_cast<int>(found - kinds.begin()));
  }
  return kinds;
}

RopeTable::RopeTable(const ModelSpec& spec, const float* rope_freqs) {
  kinds_ = list_kinds(spec, &kind_of_layer_);
  for (Kind& kind : kinds_) {
    for (int64_t i = 0; i < kind.n_pairs; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(kind.n_pairs);
      double frequency = std::pow(static_cast<double>(kind.base), exponent) * kind.scale;
      if (kind.factors && rope_freqs != nullptr) frequency /= rope_freqs[i];
      kind.frequency.push_back(frequency);
    }
  }
}

int64_t RopeTable::memory_floats(const ModelSpec& spec, int64_t max_chunk) {
  std::vector<int> unused;
  int64_t floats = 0;
  for (const Kind& kind : list_kinds(spec, &unused)) floats += max_chunk * 2 * kind.n_pairs;
  return floats;
}

void RopeTable::set_memory(float* memory, int64_t max_chunk) {
  for (Kind& kind : kinds_) {
    kind.memory = memory;
    memory += max_chunk * 2 * kind.n_pairs;
  }
}

void RopeTable::fill(int64_t row, int64_t position) {
  for (Kind& kind : kinds_) {
    float* out = kind.memory + row * 2 * kind.n_pairs;
    for (int64_t i = 0; i < kind.n_pairs; ++i) {
      const double angle = static_cast<double>(position) * kind.frequency[i];
      out[i] = static_cast<float>(std::cos(angle));
      out[kind.n_pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace tierkv
