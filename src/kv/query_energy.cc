#include "kv/query_energy.h"

#include <algorithm>

namespace tierkv {

bool query_sums_plausible(std::span<const double> sums) {
  return std::all_of(sums.begin(), sums.end(), [](double x) { return x >= 0 && x < 0x1p62; });
}

QueryEnergy::QueryEnergy(const KvLayout& layout) : layout_(layout) {
  for (const KvLayerShape& shape : layout.shapes) {
    layers_.push_back({std::vector<double>(shape.n_kv_heads * shape.head_dim), 0});
  }
}

void QueryEnergy::add(int layer, const float* q, int64_t n_tokens) {
  const KvLayerShape& shape = layout_.shapes[layer];
  std::vector<float> sums(shape.n_kv_heads * shape.head_dim);
  for (int64_t token = 0; token < n_tokens; ++token) {
    for (int head = 0; head < shape.n_heads; ++head, q += shape.head_dim) {
      float* sum = sums.data() + head / shape.group() * shape.head_dim;
      for (int d = 0; d < shape.head_dim; ++d) sum[d] += q[d] * q[d];
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) layers_[layer].squares[i] += sums[i];
  layers_[layer].n += n_tokens * shape.group();
}

size_t QueryEnergy::n_sums() const {
  size_t n = 0;
  for (const int layer : layout_.full_layers) n += layers_[layer].squares.size() + 1;
  return n;
}

std::vector<double> QueryEnergy::sums() const {
  std::vector<double> sums;
  bool any = false;
  for (const int layer : layout_.full_layers) {
    const Sums& of_layer = layers_[layer];
    sums.insert(sums.end(), of_layer.squares.begin(), of_layer.squares.end());
    sums.push_back(static_cast<double>(of_layer.n));
    any |= of_layer.n > 0;
  }
  return any && query_sums_plausible(sums) ? sums : std::vector<double>{};
}

bool QueryEnergy::restore(std::span<const double> sums) {
  if (sums.size() != n_sums() || !query_sums_plausible(sums)) return false;
  auto from = sums.begin();
  for (const int layer : layout_.full_layers) {
    Sums& to = layers_[layer];
    for (double& square : to.squares) square = *from++;
    to.n = static_cast<int64_t>(*from++);
  }
  return true;
}

std::vector<float> QueryEnergy::columns(int layer, RopePairing pairing) const {
  const KvLayerShape& shape = layout_.shapes[layer];
  const Sums& sums = layers_[layer];
  std::vector<float> columns(sums.squares.size());
  if (sums.n == 0) return columns;
  const int64_t half = shape.head_dim / 2;
  const double per_query = shape.scale * shape.scale / static_cast<double>(sums.n);
  for (int head = 0; head < shape.n_kv_heads; ++head) {
    const double* squares = sums.squares.data() + head * shape.head_dim;
    float* out = columns.data() + head * shape.head_dim;
    for (int64_t i = 0; i < half; ++i) {
      const bool adjacent = pairing == RopePairing::kAdjacent;
      const double both =
          adjacent ? squares[2 * i] + squares[2 * i + 1] : squares[i] + squares[i + half];
      out[i] = out[half + i] = static_cast<float>(both / 2 * per_query);
    }
  }
  return columns;
}

}  // namespace tierkv
