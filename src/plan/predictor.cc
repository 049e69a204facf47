#include "plan/predictor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/half.h"

namespace tierkv {
namespace {

using Direction = std::array<float, kFingerprintDims>;

Direction widen(const Fingerprint& fingerprint) {
  Direction out;
  for (int i = 0; i < kFingerprintDims; ++i) out[i] = f16_to_f32(fingerprint[i]);
  return out;
}

Direction mean_direction(std::span<const Observation> seen) {
  std::array<double, kFingerprintDims> sum{};
  for (const Observation& o : seen) {
    for (int i = 0; i < kFingerprintDims; ++i) sum[i] += f16_to_f32(o.fingerprint[i]);
  }
  Direction mean;
  for (int i = 0; i < kFingerprintDims; ++i) {
    mean[i] = static_cast<float>(sum[i] / static_cast<double>(seen.size()));
  }
  return mean;
}

// Without `mean`, at unit length; zero where nothing is left.
Direction centred(const Fingerprint& fingerprint, const Direction& mean) {
  constexpr float kLeastSquares = 1e-8f;  // below this float16's roundings are all there is
  Direction d = widen(fingerprint);
  float squares = 0;
  for (int i = 0; i < kFingerprintDims; ++i) {
    d[i] -= mean[i];
    squares += d[i] * d[i];
  }
  const float scale = squares > kLeastSquares ? 1 / std::sqrt(squares) : 0;
  for (float& x : d) x *= scale;
  return d;
}

WeightedLength weighted(const Observation& o, double weight) {
  return {o.output_tokens, weight, o.censored};
}

Prediction from_history(std::span<const Observation> seen, double quantile) {
  std::vector<WeightedLength> lengths;
  for (const Observation& o : seen) lengths.push_back(weighted(o, 1));
  return {length_quantile(std::move(lengths), quantile), PredictionSource::kHistory, 0};
}

// Indices of the `n` most similar ones that are alike, most similar first; of equals the newer.
std::vector<size_t> nearest(const std::vector<float>& similarity, size_t n, double least) {
  std::vector<size_t> order(similarity.size());
  std::iota(order.begin(), order.end(), size_t{0});
  n = std::min(n, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(),
                    [&](size_t a, size_t b) {
                      return similarity[a] != similarity[b] ? similarity[a] > similarity[b] : a > b;
                    });
  order.resize(n);
  while (!order.empty() && similarity[order.back()] < least) order.pop_back();
  return order;
}

}  // namespace

std::vector<float> similarities(std::span<const Observation> seen, const Fingerprint& fingerprint) {
  std::vector<float> out;
  if (seen.empty()) return out;
  const Direction mean = mean_direction(seen), wanted = centred(fingerprint, mean);
  out.reserve(seen.size());
  for (const Observation& o : seen) {
    const Direction d = centred(o.fingerprint, mean);
    out.push_back(std::inner_product(d.begin(), d.end(), wanted.begin(), 0.0f));
  }
  return out;
}

int64_t length_quantile(std::vector<WeightedLength> lengths, double quantile) {
  // At equal lengths those that ended come first: the others were still at risk.
  std::sort(lengths.begin(), lengths.end(), [](const WeightedLength& a, const WeightedLength& b) {
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.censored < b.censored;
  });
  double at_risk = 0;
  for (const WeightedLength& l : lengths) at_risk += l.weight;
  constexpr double kRounding = 1e-9;
  double longer = 1;  // share of answers that are longer
  for (const WeightedLength& l : lengths) {
    if (!l.censored) longer *= 1 - std::min(l.weight / at_risk, 1.0);
    if (longer <= 1 - quantile + kRounding) return l.tokens;
    at_risk -= l.weight;
  }
  return lengths.back().tokens;
}

Prediction predict_output(std::span<const Observation> seen, const Fingerprint& fingerprint,
                          int64_t fallback, const PredictorOptions& options) {
  Prediction prediction = {fallback, PredictionSource::kDefault, 0};
  if (!seen.empty()) {
    const std::vector<float> similarity = similarities(seen, fingerprint);
    const std::vector<size_t> found =
        nearest(similarity, static_cast<size_t>(options.n_neighbours), options.least_similarity);
    if (static_cast<int>(found.size()) < options.least_neighbours) {
      prediction = from_history(seen, options.quantile);
    } else {
      std::vector<WeightedLength> lengths;
      for (const size_t i : found) lengths.push_back(weighted(seen[i], similarity[i]));
      prediction = {length_quantile(std::move(lengths), options.quantile),
                    PredictionSource::kNeighbours, static_cast<int>(found.size())};
    }
  }
  prediction.tokens = std::max<int64_t>(prediction.tokens, 1);
  return prediction;
}

int64_t predict_static_mean(std::span<const Observation> seen, int64_t fallback) {
  if (seen.empty()) return fallback;
  double sum = 0;
  for (const Observation& o : seen) sum += o.output_tokens;
  return std::max<int64_t>(std::llround(sum / static_cast<double>(seen.size())), 1);
}

}  // namespace tierkv
