#include "plan/fingerprint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/half.h"

namespace tierkv {
namespace {

constexpr int64_t kWidth = 96;

std::vector<float> hidden(int t) {
  std::vector<float> out;
  for (int i = 0; i < kWidth; ++i) {
    out.push_back(static_cast<float>((i * 37 + t * 11) % 101 - 50) / 50);
  }
  return out;
}

std::vector<float> noise(uint32_t seed, int64_t n) {
  std::minstd_rand random(seed);
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000);
  }
  return out;
}

double dot(const Fingerprint& a, const Fingerprint& b) {
  double sum = 0;
  for (int i = 0; i < kFingerprintDims; ++i) {
    sum += double{f16_to_f32(a[i])} * double{f16_to_f32(b[i])};
  }
  return sum;
}

Fingerprint of(const HiddenSum& sum) {
  const HiddenSum* const parts[] = {&sum};
  return make_fingerprint(parts);
}

Fingerprint of(const std::vector<float>& x) {
  HiddenSum sum(static_cast<int64_t>(x.size()));
  sum.add(x, 1);
  return of(sum);
}

// Computed by a few lines of Python with integers of its own: histories outlive builds and
// machines.
TEST(Fingerprint, IsTheSameEverywhere) {
  HiddenSum sum(kWidth);
  sum.add(hidden(0), 1.5);
  sum.add(hidden(1), 0.25);
  const Fingerprint got = of(sum);
  const uint16_t begin[] = {0xacf6, 0xadc0, 0xa6b9, 0x270c, 0xa9d0, 0xb423, 0xb104, 0x2a92};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(got[i], begin[i]) << i;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a of the numbers
  for (const uint16_t x : got) hash = (hash ^ x) * 0x100000001b3;
  EXPECT_EQ(hash, 0x33421ff4467bc9d4);
}

TEST(Fingerprint, HasUnitLengthWhateverTheScale) {
  std::vector<float> x = noise(1, 576);
  const Fingerprint small = of(x);
  EXPECT_NEAR(dot(small, small), 1, 1e-3);
  for (float& v : x) v *= 4096;
  EXPECT_EQ(of(x), small);
}

TEST(Fingerprint, UncertainTokensCountMore) {
  const std::vector<float> a = noise(1, 576), b = noise(2, 576);
  HiddenSum sum(576), certain(576);
  sum.add(a, entropy_weight(3));
  sum.add(b, entropy_weight(0.1));
  EXPECT_GT(dot(of(sum), of(a)), 0.98);
  certain.add(a, entropy_weight(0));  // no entropy anywhere: a plain mean
  EXPECT_EQ(of(certain), of(a));
}

TEST(Fingerprint, PartsCountTheSameWhateverTheirSize) {
  HiddenSum large(576), small(576), none(576);
  large.add(noise(1, 576), 1000);
  small.add(noise(2, 576), 0.001);
  const auto both = [](const HiddenSum& a, const HiddenSum& b) {
    const HiddenSum* const parts[] = {&a, &b};
    return make_fingerprint(parts);
  };
  // Of two orthogonal parts of equal length each makes up 1/sqrt(2), as far as projections keep it.
  EXPECT_NEAR(dot(both(large, small), both(large, none)), std::sqrt(0.5), 0.2);
  EXPECT_NEAR(dot(both(large, small), both(none, small)), std::sqrt(0.5), 0.2);
  EXPECT_NE(both(large, none), both(none, large));  // their signs differ
}

// Random projections keep angles up to a few times 1/sqrt(128) (Johnson and Lindenstrauss 1984).
TEST(Fingerprint, KeepsAngles) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const std::vector<float> a = noise(seed, 640), b = noise(seed + 100, 640);
    std::vector<float> mixed(640);
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < mixed.size(); ++i) {
      mixed[i] = a[i] + static_cast<float>(seed % 4) * b[i];
      ab += double{a[i]} * mixed[i];
      aa += double{a[i]} * a[i];
      bb += double{mixed[i]} * mixed[i];
    }
    EXPECT_NEAR(dot(of(a), of(mixed)), ab / std::sqrt(aa * bb), 4 / std::sqrt(128.0)) << seed;
  }
}

TEST(Fingerprint, SignsAreBalancedAndUnlikeEachOther) {
  int sum = 0, agree = 0;
  for (int64_t from = 0; from < 4096; ++from) {
    sum += projection_sign(from, 5);
    agree += projection_sign(from, 5) * projection_sign(from, 70);
  }
  EXPECT_LT(std::abs(sum), 5 * 64);  // five standard deviations
  EXPECT_LT(std::abs(agree), 5 * 64);
}

TEST(Fingerprint, NothingAndNotANumberGiveZeros) {
  EXPECT_EQ(of(HiddenSum(kWidth)), Fingerprint{});
  std::vector<float> bad = hidden(0);
  bad[3] = std::nanf("");
  EXPECT_EQ(of(bad), Fingerprint{});
}

}  // namespace
}  // namespace tierkv
