// Against brute force: the product-limit quantile by redistribution of cut-off answers' weight
// (Efron 1967), neighbours by sorting everything in double precision.
#include "plan/predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/half.h"

namespace tierkv {
namespace {

using Random = std::minstd_rand;

int64_t pick(Random& random, int64_t n) { return static_cast<int64_t>(random() % n); }

// What a cut-off answer weighs is given to the longer ones, in proportion to their weights.
int64_t quantile_by_redistribution(std::vector<WeightedLength> lengths, double quantile) {
  std::sort(lengths.begin(), lengths.end(), [](const auto& a, const auto& b) {
    return std::pair(a.tokens, a.censored) < std::pair(b.tokens, b.censored);
  });
  double total = 0, seen = 0;
  for (const auto& l : lengths) total += l.weight;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (!lengths[i].censored) {
      seen += lengths[i].weight;
      if (seen >= (quantile - 1e-9) * total) return lengths[i].tokens;
      continue;
    }
    double later = 0;
    for (size_t j = i + 1; j < lengths.size(); ++j) later += lengths[j].weight;
    for (size_t j = i + 1; j < lengths.size(); ++j) {
      lengths[j].weight *= 1 + lengths[i].weight / later;
    }
  }
  return lengths.back().tokens;
}

TEST(LengthQuantile, EqualsRedistribution) {
  Random random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<WeightedLength> lengths;
    const int64_t n = 1 + pick(random, 12);
    for (int64_t i = 0; i < n; ++i) {
      lengths.push_back(
          {pick(random, 9), 0.25 * static_cast<double>(1 + pick(random, 8)), pick(random, 3) == 0});
    }
    const double quantile = 0.05 * static_cast<double>(1 + pick(random, 19)) + 0.003;
    ASSERT_EQ(length_quantile(lengths, quantile), quantile_by_redistribution(lengths, quantile))
        << "round " << round;
  }
}

TEST(LengthQuantile, WithoutCensoringIsTheOrdinaryOne) {
  std::vector<WeightedLength> lengths;
  for (int64_t i = 10; i >= 1; --i) lengths.push_back({10 * i});
  EXPECT_EQ(length_quantile(lengths, 0.8), 80);
  EXPECT_EQ(length_quantile(lengths, 0.81), 90);
  EXPECT_EQ(length_quantile(lengths, 1), 100);
}

TEST(LengthQuantile, AnswersCutOffAreAtLeastSoLong) {
  // Half are cut off at 10: the others tell how long they might have become.
  const std::vector<WeightedLength> cut = {{10, 1, true}, {10, 1, true}, {50}, {90}};
  EXPECT_EQ(length_quantile(cut, 0.5), 50);
  EXPECT_EQ(length_quantile({{10}, {10}, {50}, {90}}, 0.5), 10);
  EXPECT_EQ(length_quantile({{10, 1, true}, {400, 1, true}}, 0.8), 400);  // nothing better is known
}

Fingerprint direction(Random& random, int peak = -1) {
  Fingerprint out;
  for (int i = 0; i < kFingerprintDims; ++i) {
    const float noise = static_cast<float>(pick(random, 2001) - 1000) / 20000;
    out[i] = f32_to_f16(noise + (i == peak ? 1.0f : 0.0f));
  }
  return out;
}

double cosine(const Fingerprint& a, const Fingerprint& b, const std::vector<double>& mean) {
  double dot = 0, aa = 0, bb = 0;
  for (int i = 0; i < kFingerprintDims; ++i) {
    const double x = f16_to_f32(a[i]) - mean[i], y = f16_to_f32(b[i]) - mean[i];
    dot += x * y;
    aa += x * x;
    bb += y * y;
  }
  return dot / std::sqrt(aa * bb);
}

TEST(Predictor, EqualsBruteForce) {
  Random random(7);
  int by_neighbours = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Observation> seen;
    const int64_t n = 1 + pick(random, 40);
    for (int64_t i = 0; i < n; ++i) {
      const int peak = static_cast<int>(pick(random, 5));
      seen.push_back({direction(random, peak), 10, static_cast<int32_t>(1 + pick(random, 400)),
                      pick(random, 4) == 0});
    }
    const Fingerprint wanted = direction(random, static_cast<int>(pick(random, 6)));
    const PredictorOptions options;
    std::vector<double> mean(kFingerprintDims);
    for (const auto& o : seen) {
      for (int i = 0; i < kFingerprintDims; ++i) {
        mean[i] += f16_to_f32(o.fingerprint[i]) / static_cast<double>(n);
      }
    }
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < seen.size(); ++i) {
      const double c = n == 1 ? 0 : cosine(seen[i].fingerprint, wanted, mean);
      if (c >= options.least_similarity) order.emplace_back(c, i);
    }
    std::sort(order.rbegin(), order.rend());
    if (order.size() > 8) order.resize(static_cast<size_t>(options.n_neighbours));
    const bool enough = static_cast<int>(order.size()) >= options.least_neighbours;
    std::vector<WeightedLength> lengths;
    for (const auto& [c, i] : order)
      lengths.push_back({seen[i].output_tokens, c, seen[i].censored});
    if (!enough) {
      lengths.clear();
      for (const auto& o : seen) lengths.push_back({o.output_tokens, 1, o.censored});
    }
    const Prediction got = predict_output(seen, wanted, 256);
    by_neighbours += enough;
    EXPECT_EQ(got.source, enough ? PredictionSource::kNeighbours : PredictionSource::kHistory);
    EXPECT_EQ(got.n_neighbours, enough ? static_cast<int>(order.size()) : 0);
    EXPECT_EQ(got.tokens, quantile_by_redistribution(lengths, options.quantile)) << round;
  }
  EXPECT_GT(by_neighbours, 100);
  EXPECT_LT(by_neighbours, 290);
}

TEST(Predictor, TellsKindsApartWhateverAllShare) {
  Random random(3);
  std::vector<Observation> seen;
  for (int i = 0; i < 40; ++i) {
    Observation o = {direction(random, i % 2), 10, i % 2 == 0 ? 5 + i : 300 + i, false};
    o.fingerprint[100] = f32_to_f16(8);  // the common direction, much larger than the rest
    seen.push_back(o);
  }
  Fingerprint wanted = direction(random, 0);
  wanted[100] = f32_to_f16(8);
  const Prediction prediction = predict_output(seen, wanted, 256);
  EXPECT_EQ(prediction.source, PredictionSource::kNeighbours);
  EXPECT_EQ(prediction.n_neighbours, 8);
  EXPECT_LT(prediction.tokens, 50);
}

TEST(Predictor, KnowsWhatItDoesNotKnow) {
  Random random(5);
  const Fingerprint wanted = direction(random, 3);
  EXPECT_EQ(predict_output({}, wanted, 256).tokens, 256);
  EXPECT_EQ(predict_output({}, wanted, 256).source, PredictionSource::kDefault);
  // One request is all its own mean: alike to nothing.
  const std::vector<Observation> one = {{wanted, 10, 77, false}};
  EXPECT_EQ(predict_output(one, wanted, 256).source, PredictionSource::kHistory);
  EXPECT_EQ(predict_output(one, wanted, 256).tokens, 77);
  const std::vector<Observation> blank(9, {Fingerprint{}, 10, 33, false});
  EXPECT_EQ(predict_output(blank, Fingerprint{}, 256).source, PredictionSource::kHistory);
  const std::vector<Observation> silent(5, {wanted, 10, 0, false});
  EXPECT_EQ(predict_output(silent, wanted, 256).tokens, 1);
}

TEST(Predictor, NotANumberIsAlikeToNothing) {
  Random random(9);
  std::vector<Observation> seen(6, {direction(random, 2), 10, 50, false});
  seen[3].fingerprint[5] = 0x7e00;
  EXPECT_EQ(predict_output(seen, direction(random, 2), 256).tokens, 50);
}

TEST(StaticMean, CountsAllAlike) {
  EXPECT_EQ(predict_static_mean({}, 256), 256);
  const std::vector<Observation> seen = {{{}, 1, 10, false}, {{}, 1, 31, true}};
  EXPECT_EQ(predict_static_mean(seen, 256), 21);  // 20.5, away from zero
}

}  // namespace
}  // namespace tierkv
