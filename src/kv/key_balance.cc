#include "kv/key_balance.h"

#include <algorithm>
#include <cmath>

namespace tierkv {
namespace {

constexpr float kMostFactor = 1024;    // and its inverse the least
constexpr double kLeastEnergy = 1e-6;  // of a dimension, relative to the largest

// Energies of both dimensions that RoPE mixes are taken together: which of them has how much
// changes with the position.
void share_pairs(std::span<double> energies, RopePairing pairing) {
  const size_t half = energies.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const bool adjacent = pairing == RopePairing::kAdjacent;
    double& a = energies[adjacent ? 2 * i : i];
    double& b = energies[adjacent ? 2 * i + 1 : i + half];
    a = b = (a + b) / 2;
  }
}

double least_of(std::span<const double> energies) {
  return *std::max_element(energies.begin(), energies.end()) * kLeastEnergy;
}

void find_factors(std::span<double> queries, std::span<double> keys, RopePairing pairing,
                  std::span<float> out) {
  share_pairs(queries, pairing);
  share_pairs(keys, pairing);
  const double least_query = least_of(queries), least_key = least_of(keys);
  std::fill(out.begin(), out.end(), 1.0f);
  if (!(least_query > 0) || !(least_key > 0)) return;
  std::vector<double> logs(out.size());
  double mean = 0;
  for (size_t d = 0; d < out.size(); ++d) {
    logs[d] = std::log(std::max(queries[d], least_query) / std::max(keys[d], least_key)) / 4;
    mean += logs[d] / static_cast<double>(out.size());
  }
  for (size_t d = 0; d < out.size(); ++d) {
    const auto factor = static_cast<float>(std::exp(logs[d] - mean));
    if (!std::isfinite(factor)) return std::fill(out.begin(), out.end(), 1.0f);
    out[d] = std::clamp(factor, 1 / kMostFactor, kMostFactor);
  }
}

}  // namespace

bool key_balance_plausible(std::span<const float> factors) {
  return std::all_of(factors.begin(), factors.end(),
                     [](float x) { return x >= 1 / kMostFactor && x <= kMostFactor; });
}

KeyBalance::KeyBalance(const KvLayout& layout) : layout_(layout), at_(layout.shapes.size()) {
  for (const int layer : layout.full_layers) {
    at_[layer] = n_factors_;
    n_factors_ += layout.shapes[layer].n_kv_heads * layout.shapes[layer].head_dim;
  }
  forget();
}

void KeyBalance::reset() {
  factors_.clear();
  forget();
}

void KeyBalance::forget() {
  sums_.assign(layout_.shapes.size(), {});
  for (const int layer : layout_.full_layers) {
    const KvLayerShape& shape = layout_.shapes[layer];
    const auto size = static_cast<size_t>(shape.n_kv_heads * shape.head_dim);
    sums_[layer] = {std::vector<double>(size), std::vector<double>(size), 0};
  }
}

void KeyBalance::count(const VectorKernels& kernels, int layer, const float* q, const float* k,
                       int64_t n_tokens) {
  if (fixed() || !layout_.is_full(layer)) return;
  Sums& sums = sums_[layer];
  const int64_t room = std::min(n_tokens, kMostTokens - sums.n_tokens);
  if (room < kLeastTokens) return;
  const KvLayerShape& shape = layout_.shapes[layer];
  const int64_t q_width = shape.n_heads * shape.head_dim;
  const int64_t k_width = shape.n_kv_heads * shape.head_dim;
  std::vector<float> sum(q_width), square(q_width);
  for (int64_t end = kLeastTokens; end <= room; end += kLeastTokens) {
    kernels.column_sums(q, kLeastTokens, q_width, sum.data(), square.data());
    for (int64_t i = 0; i < q_width; ++i) {
      const int64_t kv_head = i / shape.head_dim / shape.group();
      sums.queries[kv_head * shape.head_dim + i % shape.head_dim] += square[i];
    }
    // Groups as long as a page, whose mean a codec takes out.
    kernels.column_sums(k, kLeastTokens, k_width, sum.data(), square.data());
    for (int64_t i = 0; i < k_width; ++i) {
      const double mean_part = static_cast<double>(sum[i]) * sum[i] / kLeastTokens;
      sums.keys[i] += std::max(square[i] - mean_part, 0.0);
    }
    q += kLeastTokens * q_width;
    k += kLeastTokens * k_width;
    sums.n_tokens += kLeastTokens;
  }
}

bool KeyBalance::full() const {
  return !fixed() && !layout_.full_layers.empty() &&
         sums_[layout_.full_layers.back()].n_tokens == kMostTokens;
}

bool KeyBalance::fix(const std::vector<RopePairing>& pairings, bool whatever) {
  if (fixed()) return true;
  const bool enough = std::all_of(layout_.full_layers.begin(), layout_.full_layers.end(),
                                  [&](int layer) { return sums_[layer].n_tokens >= kLeastTokens; });
  if (!enough && !whatever) {
    forget();
    return false;
  }
  factors_.assign(n_factors_, 1.0f);
  for (const int layer : layout_.full_layers) {
    if (!enough || layout_.shapes[layer].head_dim % 2 != 0) continue;
    const auto dim = static_cast<size_t>(layout_.shapes[layer].head_dim);
    for (size_t at = 0; at < sums_[layer].queries.size(); at += dim) {
      find_factors(std::span(sums_[layer].queries).subspan(at, dim),
                   std::span(sums_[layer].keys).subspan(at, dim), pairings[layer],
                   std::span(factors_).subspan(at_[layer] + at, dim));
    }
  }
  sums_.clear();
  return true;
}

const float* KeyBalance::factors(int layer, int kv_head) const {
  if (!fixed()) return nullptr;
  return factors_.data() + at_[layer] + kv_head * layout_.shapes[layer].head_dim;
}

bool KeyBalance::restore(std::span<const float> factors) {
  if (factors.size() != n_factors_ || factors.empty() || !key_balance_plausible(factors)) {
    return false;
  }
  factors_.assign(factors.begin(), factors.end());
  sums_.clear();
  return true;
}

}  // namespace tierkv
