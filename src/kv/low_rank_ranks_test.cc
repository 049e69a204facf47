#include "kv/low_rank_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace tierkv {
namespace {

using Spectra = std::vector<LowRankSpectrum>;
using Choices = std::vector<LowRankChoice>;

uint64_t total_bytes(const Choices& choices) {
  uint64_t bytes = 0;
  for (const LowRankChoice& choice : choices) {
    if (choice.rank > 0) bytes += low_rank_block_bytes(choice.rank, choice.latent_bits);
  }
  return bytes;
}

double kept(const Spectra& spectra, const Choices& choices) {
  double sum = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto begin = spectra[i].begin();
    sum += std::accumulate(begin, begin + choices[i].rank / kRankStep, 0.0);
  }
  return sum;
}

Spectra random_spectra(size_t n_layers, size_t steps, uint32_t seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> step;
  Spectra spectra(n_layers, LowRankSpectrum(steps));
  for (LowRankSpectrum& spectrum : spectra) {
    for (double& x : spectrum) x = step(random);
    std::sort(spectrum.rbegin(), spectrum.rend());
  }
  return spectra;
}

// Every way to give three layers ranks.
double best_kept(const Spectra& spectra, const Choices& nominal) {
  double best = 0;
  Choices choices = nominal;
  const int64_t most = most_low_rank(nominal[0].rank, kRankStep * spectra[0].size());
  const std::function<void(size_t)> choose = [&](size_t i) {
    if (i == choices.size()) {
      if (total_bytes(choices) <= total_bytes(nominal)) {
        best = std::max(best, kept(spectra, choices));
      }
      return;
    }
    for (choices[i].rank = kRankStep; choices[i].rank <= most; choices[i].rank += kRankStep) {
      choose(i + 1);
    }
    choices[i] = nominal[i];
  };
  choose(0);
  return best;
}

TEST(LowRankRanks, KeepAsMuchAsAnyRanksOfTheSameBytes) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Spectra spectra = random_spectra(3, 12, seed);
    const Choices nominal(3, {.rank = 6 * kRankStep, .latent_bits = 16});
    const Choices shared = share_ranks(spectra, nominal);
    EXPECT_EQ(total_bytes(shared), total_bytes(nominal));
    EXPECT_DOUBLE_EQ(kept(spectra, shared), best_kept(spectra, nominal)) << seed;
  }
}

TEST(LowRankRanks, NeverTakeMoreBytesThanTheCodecAnnounced) {
  for (const int bits : {8, 16}) {
    for (const int64_t rank : {16, 48, 80, 144, 192}) {
      const Choices nominal(7, {.rank = rank, .latent_bits = bits});
      const Choices shared = share_ranks(random_spectra(7, 12, 3), nominal);
      EXPECT_LE(total_bytes(shared), total_bytes(nominal)) << rank;
      EXPECT_GE(total_bytes(shared) + 2 * 64 * kRankStep * 2, total_bytes(nominal)) << rank;
      for (const LowRankChoice& choice : shared) {
        EXPECT_LE(choice.rank, most_low_rank(rank, 192));
        EXPECT_GE(choice.rank, kRankStep);
      }
    }
  }
}

TEST(LowRankRanks, AreTheSameWhereLayersAreAndFullWhereTheCodecIs) {
  const Spectra alike(4, random_spectra(1, 12, 1)[0]);
  const Choices half(4, {.rank = 96, .latent_bits = 16}), full(4, {.rank = 192, .latent_bits = 16});
  EXPECT_EQ(share_ranks(alike, half), half);
  EXPECT_EQ(share_ranks(random_spectra(4, 12, 2), full), full);
}

TEST(LowRankRanks, LayersOfOtherCodecsTakeNoPart) {
  Spectra spectra = random_spectra(3, 12, 4);
  spectra[1].clear();
  Choices nominal(3, {.rank = 96, .latent_bits = 16});
  nominal[1] = {};
  const Choices shared = share_ranks(spectra, nominal);
  EXPECT_EQ(shared[1], LowRankChoice{});
  EXPECT_EQ(shared[0].rank + shared[2].rank, 192);
  EXPECT_TRUE(share_ranks({}, {}).empty());
}

}  // namespace
}  // namespace tierkv
