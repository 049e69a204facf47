#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace tierkv {
namespace {

const Kernels& kernels() { return kernels_for(available_isas().back()); }

SamplingOptions plain(float temperature) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  return options;
}

// Shares of each token over many draws.
std::vector<double> shares(const SamplingOptions& options, const std::vector<float>& logits) {
  Sampler sampler(options, kernels());
  std::vector<double> count(logits.size());
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> copy = logits;
    count[static_cast<size_t>(sampler.sample(copy, {}))] += 1.0 / kDraws;
  }
  return count;
}

TEST(Sampler, GreedyTakesTheFirstLargest) {
  std::vector<float> logits = {1, 5, 5, -2};
  EXPECT_EQ(Sampler(plain(0), kernels()).sample(logits, {}), 1);
}

TEST(Sampler, DrawsFromTheTemperedSoftmax) {
  const std::vector<float> logits = {0, 1, 2};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    const auto got = shares(plain(temperature), logits);
    double total = 0;
    for (const float x : logits) total += std::exp(x / temperature);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp(logits[i] / temperature) / total;
      EXPECT_NEAR(got[i], p, 5 * std::sqrt(p * (1 - p) / 40000)) << i;  // five standard errors
    }
  }
}

TEST(Sampler, TopKTopPAndMinPCutTheTail) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  SamplingOptions options = plain(1);
  options.top_k = 2;
  EXPECT_EQ(shares(options, logits)[2], 0);
  options = plain(1);
  options.top_p = 0.7f;  // 0.5 + 0.3 reaches it
  auto got = shares(options, logits);
  EXPECT_GT(got[1], 0);
  EXPECT_EQ(got[2], 0);
  options = plain(1);
  options.min_p = 0.2f;  // 0.15 is 0.3 of the best, 0.05 is 0.1
  got = shares(options, logits);
  EXPECT_GT(got[2], 0);
  EXPECT_EQ(got[3], 0);
}

// Many equal logits, spread over a vocabulary of many blocks: the best 16 are those that sorting
// all of them puts first, equal ones by their place.
TEST(Sampler, TopKOfALargeVocabularyIsThatOfSorting) {
  std::mt19937 random(3);
  std::vector<float> logits(5000);
  for (float& x : logits) x = static_cast<float>(random() % 300);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  SamplingOptions options = plain(100);  // almost uniform
  options.top_k = 16;
  const auto got = shares(options, logits);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(got[order[i]] > 0, i < 16) << i;
}

TEST(Sampler, RepetitionPenaltyLooksBackOnlySoFar) {
  SamplingOptions options = plain(0);
  options.repeat_penalty = 2;
  options.repeat_last_n = 2;
  Sampler sampler(options, kernels());
  std::vector<float> logits = {4, 3, 1};
  const int32_t recent[] = {0, 1, 1};
  EXPECT_EQ(sampler.sample(logits, recent), 0);  // 0 lies too far back, 1 is halved
  logits = {-4, -3, -7};
  const int32_t last[] = {1};
  EXPECT_EQ(sampler.sample(logits, last), 0);  // -3 doubles to -6
}

TEST(Sampler, SameSeedSameTokens) {
  SamplingOptions options = plain(1);
  options.seed = 42;
  Sampler a(options, kernels()), b(options, kernels());
  for (int i = 0; i < 50; ++i) {
    std::vector<float> x = {0, 0.1f, 0.2f, 0.3f}, y = x;
    EXPECT_EQ(a.sample(x, {}), b.sample(y, {}));
  }
}

TEST(Sampler, RefusesNonsense) {
  SamplingOptions options;
  options.temperature = NAN;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.top_p = 0;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.top_k = -1;
  EXPECT_FALSE(validate(options).ok());
  EXPECT_TRUE(validate(SamplingOptions{}).ok());
}

}  // namespace
}  // namespace tierkv
