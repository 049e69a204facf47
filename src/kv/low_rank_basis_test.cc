#include "kv/low_rank_basis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/low_rank.h"

namespace tierkv {
namespace {

constexpr int64_t kHeadDim = 32, kWidth = 128;  // two KV heads
constexpr double kHalfUnit = 0x1p-11;

using Rows = std::vector<std::vector<double>>;

// Rows of a given rank; V is `v_size` times as large as K.
Rows rows_of_rank(int64_t n, int64_t rank, double v_size = 1) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  Rows directions(rank, std::vector<double>(kWidth)), rows(n, std::vector<double>(kWidth));
  for (auto& direction : directions) {
    for (double& x : direction) x = normal(random);
  }
  for (auto& row : rows) {
    for (const auto& direction : directions) {
      const double z = normal(random);
      for (int64_t i = 0; i < kWidth; ++i) row[i] += z * direction[i];
    }
    for (int64_t i = kWidth / 2; i < kWidth; ++i) row[i] *= v_size;
  }
  return rows;
}

std::vector<float> gram_of(const Rows& rows) {
  std::vector<float> gram(kWidth * kWidth, std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < kWidth; ++i) {
    for (int64_t j = i; j < kWidth; ++j) {  // what lies left of the diagonal is not looked at
      double sum = 0;
      for (const auto& row : rows) sum += row[i] * row[j];
      gram[i * kWidth + j] = static_cast<float>(sum);
    }
  }
  return gram;
}

std::vector<float> scales_of(float keys, float values) {
  std::vector<float> scales(kWidth, values);
  std::fill_n(scales.begin(), kWidth / 2, keys);
  return scales;
}
const std::vector<float> kOnes = scales_of(1, 1);

struct Basis {
  std::vector<uint16_t> w;
  int64_t rank;
  LowRankSpectrum spectrum;
  double at(int64_t r, int64_t i) const {
    return f16_to_f32(w[(i / kHeadDim * rank + r) * kHeadDim + i % kHeadDim]);
  }
};

Basis basis_of(std::vector<float> gram, const std::vector<float>& scales, int64_t rank) {
  MemoryBudget budget;
  Basis basis{std::vector<uint16_t>(kWidth * rank), rank, {}};
  const Status status = find_low_rank_basis({gram.data(), kWidth, kHeadDim}, scales, rank, budget,
                                            basis.w.data(), basis.spectrum);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(budget.used(), 0u);
  return basis;
}

// The share of the rows' energy that the basis does not keep.
double lost(const Basis& basis, const Rows& rows) {
  double error = 0, energy = 0;
  for (const auto& x : rows) {
    std::vector<double> rest = x;
    for (int64_t r = 0; r < basis.rank; ++r) {
      double z = 0;
      for (int64_t i = 0; i < kWidth; ++i) z += basis.at(r, i) * x[i];
      for (int64_t i = 0; i < kWidth; ++i) rest[i] -= z * basis.at(r, i);
    }
    for (int64_t i = 0; i < kWidth; ++i) error += rest[i] * rest[i], energy += x[i] * x[i];
  }
  return error / energy;
}

TEST(LowRankBasis, RowsAreOrthonormal) {
  const Basis basis = basis_of(gram_of(rows_of_rank(500, kWidth)), kOnes, 48);
  for (int64_t a = 0; a < 48; ++a) {
    for (int64_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (int64_t i = 0; i < kWidth; ++i) dot += basis.at(a, i) * basis.at(b, i);
      ASSERT_NEAR(dot, a == b, 2 * kHalfUnit);
    }
  }
}

TEST(LowRankBasis, KeepsAllOfRowsOfItsRank) {
  const Rows rows = rows_of_rank(300, 24);
  // What is left are roundings of W, each 2^-11 of an entry at the most.
  EXPECT_LT(lost(basis_of(gram_of(rows), kOnes, 32), rows), 4 * kHalfUnit * kHalfUnit);
  EXPECT_GT(lost(basis_of(gram_of(rows), kOnes, 16), rows), .1);
}

TEST(LowRankBasis, LosesNoMoreThanAnyOtherBasisOfItsRank) {
  Rows rows = rows_of_rank(400, kWidth);
  for (auto& row : rows) {  // energies 2^-i
    for (int64_t i = 0; i < kWidth; ++i) row[i] *= std::exp2(-.5 * static_cast<double>(i));
  }
  double error = 0, energy = 0;  // of keeping the first 16 columns
  for (const auto& row : rows) {
    for (int64_t i = 0; i < kWidth; ++i) energy += row[i] * row[i];
    for (int64_t i = 16; i < kWidth; ++i) error += row[i] * row[i];
  }
  EXPECT_LT(lost(basis_of(gram_of(rows), kOnes, 16), rows), error / energy + 1e-6);
}

TEST(LowRankBasis, ScalesDecideWhoseDirectionsComeFirst) {
  const Rows rows = rows_of_rank(400, kWidth);
  const auto keys_share = [&](const std::vector<float>& scales) {
    const Basis basis = basis_of(gram_of(rows), scales, 32);
    double keys = 0, all = 0;
    for (int64_t r = 0; r < 32; ++r) {
      for (int64_t i = 0; i < kWidth; ++i) {
        all += basis.at(r, i) * basis.at(r, i);
        if (i < kWidth / 2) keys += basis.at(r, i) * basis.at(r, i);
      }
    }
    return keys / all;
  };
  EXPECT_GT(keys_share(scales_of(100, 1)), .99);
  EXPECT_LT(keys_share(scales_of(1, 100)), .01);
}

// With the scales, moving K by dk and V by dv along a scaled row's unit vectors moves outputs
// alike.
TEST(LowRankScales, AreWhatErrorsCost) {
  const Rows rows = rows_of_rank(400, kWidth, 3);
  std::vector<float> gram = gram_of(rows);
  std::vector<float> queries(kWidth / 2);
  for (int64_t i = 0; i < kWidth / 2; ++i) queries[i] = static_cast<float>(1 + i % 7);
  const std::vector<float> scales =
      choose_low_rank_scales({gram.data(), kWidth, kHeadDim, 400}, queries);
  double rms = 0;
  for (int64_t i = 0; i < kWidth; ++i) {
    double column = 0, values = 0;  // mean squares: of column i, of the values of its head
    const int64_t head = i / kHeadDim % 2;
    for (const auto& row : rows) {
      column += row[i] * row[i] / 400;
      for (int64_t d = 0; d < kHeadDim; ++d) {
        const double v = row[kWidth / 2 + head * kHeadDim + d];
        values += v * v / 400;
      }
    }
    rms += column * scales[i] * scales[i];
    const double ratio = scales[i] / scales.back();
    if (i < kWidth / 2) {
      EXPECT_NEAR(ratio * ratio, queries[i] * values, 1e-5 * ratio * ratio) << i;
    } else {
      EXPECT_EQ(ratio, 1) << i;
    }
  }
  EXPECT_NEAR(rms, kWidth, 1e-3);
}

TEST(LowRankScales, AreOneWhereNothingIsKnown) {
  std::vector<float> gram(kWidth * kWidth);
  const std::vector<float> none(kWidth / 2);
  EXPECT_EQ(choose_low_rank_scales({gram.data(), kWidth, kHeadDim, 0}, none), kOnes);
}

// The share of all squares that 32 directions lose, known before and after.
TEST(LowRankBasis, SpectrumTellsWhatRanksLose) {
  const Rows rows = rows_of_rank(400, kWidth, 2);
  const Basis basis = basis_of(gram_of(rows), scales_of(3, 1), 32);
  Rows scaled = rows;
  double all = 0, values = 0, rest = 0;
  for (auto& row : scaled) {
    for (int64_t i = 0; i < kWidth / 2; ++i) row[i] *= 3;
    for (int64_t i = 0; i < kWidth; ++i) {
      all += row[i] * row[i];
      if (i >= kWidth / 2) values += row[i] * row[i];
    }
  }
  ASSERT_EQ(basis.spectrum.size(), static_cast<size_t>(kWidth / kRankStep));
  for (size_t i = 2; i < basis.spectrum.size(); ++i) rest += basis.spectrum[i];
  EXPECT_NEAR(rest * values / all, lost(basis, scaled), 1e-5);
  EXPECT_TRUE(std::is_sorted(basis.spectrum.rbegin(), basis.spectrum.rend()));
}

TEST(LowRankBasis, RefusesWhatItCantDo) {
  std::vector<float> gram = gram_of(rows_of_rank(100, 8));
  std::vector<uint16_t> w(kWidth * 16);
  LowRankSpectrum spectrum;
  const auto find = [&](MemoryBudget& budget) {
    return find_low_rank_basis({gram.data(), kWidth, kHeadDim}, kOnes, 16, budget, w.data(),
                               spectrum)
        .code();
  };
  MemoryBudget little(low_rank_basis_bytes(kWidth) - 1), enough(low_rank_basis_bytes(kWidth));
  EXPECT_EQ(find(little), StatusCode::kResourceExhausted);
  EXPECT_EQ(find(enough), StatusCode::kOk);
  gram[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(find(enough), StatusCode::kCorrupt);
  EXPECT_EQ(enough.used(), 0u);
}

}  // namespace
}  // namespace tierkv
