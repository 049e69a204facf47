#include "kv/query_energy.h"

namespace tierkv {

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
