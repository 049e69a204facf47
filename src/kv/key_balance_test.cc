#include "kv/key_balance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tierkv {
namespace {

constexpr int kDim = 4, kHeads = 4, kKvHeads = 2;
const std::vector<RopePairing> kHalves = {RopePairing::kHalves, RopePairing::kHalves};

// A full-attention layer and a window-only one.
KvLayout layout() {
  const KvLayerShape full = {.n_heads = kHeads,
                             .n_kv_heads = kKvHeads,
                             .head_dim = kDim,
                             .window = 0,
                             .scale = 0.5f,
                             .softcap = 0};
  KvLayerShape window = full;
  window.window = 128;
  return make_kv_layout({window, full});
}

// Queries of sizes q_sizes, and keys about `centre` with spreads k_sizes, by dimension; KV head 1
// has all alike.
struct Chunk {
  std::vector<float> q, k;
  Chunk(int64_t n, const float (&q_sizes)[kDim], const float (&k_sizes)[kDim], float centre = 0)
      : q(n * kHeads * kDim, 1.0f), k(n * kKvHeads * kDim) {
    for (int64_t token = 0; token < n; ++token) {
      const float sign = token % 2 ? 1.0f : -1.0f;
      for (int d = 0; d < kDim; ++d) {
        for (int head = 0; head < kHeads / kKvHeads; ++head) {
          q[(token * kHeads + head) * kDim + d] = sign * q_sizes[d];
        }
        k[token * kKvHeads * kDim + d] = centre + sign * k_sizes[d];
        k[(token * kKvHeads + 1) * kDim + d] = sign;
      }
    }
  }
};

KeyBalance counted(const KvLayout& layout, const Chunk& chunk, int64_t n) {
  KeyBalance balance(layout);
  balance.count(kVectorScalar, 1, chunk.q.data(), chunk.k.data(), n);
  return balance;
}

TEST(KeyBalance, IsTheRootOfQueriesOverKeysAboutTheirMean) {
  const KvLayout shapes = layout();
  for (const float centre : {0.0f, 100.0f}) {
    KeyBalance balance = counted(shapes, {64, {4, 1, 4, 1}, {1, 1, 1, 1}, centre}, 64);
    EXPECT_FALSE(balance.fixed());
    EXPECT_EQ(balance.factors(1, 0), nullptr);
    ASSERT_TRUE(balance.fix(kHalves, false));
    const float* factors = balance.factors(1, 0);
    for (int d = 0; d < kDim; ++d) {
      EXPECT_NEAR(factors[d], d % 2 ? std::sqrt(0.5f) : std::sqrt(2.0f), 1e-3) << d;
      EXPECT_NEAR(balance.factors(1, 1)[d], 1, 1e-6);
    }
  }
}

TEST(KeyBalance, PairsShareAFactor) {
  const KvLayout shapes = layout();
  const Chunk chunk(64, {4, 4, 1, 1}, {1, 1, 1, 1});
  KeyBalance halves = counted(shapes, chunk, 64), adjacent = counted(shapes, chunk, 64);
  ASSERT_TRUE(halves.fix(kHalves, false));
  ASSERT_TRUE(adjacent.fix({RopePairing::kAdjacent, RopePairing::kAdjacent}, false));
  for (int d = 0; d < kDim; ++d) EXPECT_NEAR(halves.factors(1, 0)[d], 1, 1e-6);
  EXPECT_NEAR(adjacent.factors(1, 0)[0] / adjacent.factors(1, 0)[2], 2, 1e-5);
}

TEST(KeyBalance, TooFewTokensSayNothingAndAreForgotten) {
  const KvLayout shapes = layout();
  const Chunk some(63, {4, 1, 4, 1}, {1, 1, 1, 1}), enough(64, {1, 4, 1, 4}, {1, 1, 1, 1});
  KeyBalance balance(shapes);
  balance.count(kVectorScalar, 1, some.q.data(), some.k.data(), 63);
  EXPECT_FALSE(balance.fix(kHalves, false));
  balance.count(kVectorScalar, 1, enough.q.data(), enough.k.data(), 64);
  ASSERT_TRUE(balance.fix(kHalves, false));
  EXPECT_NEAR(balance.factors(1, 0)[1] / balance.factors(1, 0)[0], 2, 1e-5);

  KeyBalance none(shapes);
  ASSERT_TRUE(none.fix(kHalves, true));
  EXPECT_EQ(none.values(), std::vector<float>(kKvHeads * kDim, 1.0f));
}

TEST(KeyBalance, StaysAsItWasFixedUntilItIsReset) {
  const KvLayout shapes = layout();
  const Chunk first(512, {4, 1, 4, 1}, {1, 1, 1, 1}), later(512, {1, 9, 1, 9}, {1, 1, 1, 1});
  KeyBalance balance = counted(shapes, first, 512);
  balance.count(kVectorScalar, 1, later.q.data(), later.k.data(), 512);  // more than are counted
  ASSERT_TRUE(balance.fix(kHalves, false));
  const std::vector<float> values = balance.values();
  EXPECT_NEAR(values[0] / values[1], 2, 1e-5);
  balance.count(kVectorScalar, 1, later.q.data(), later.k.data(), 512);
  EXPECT_TRUE(balance.fix(kHalves, true));
  EXPECT_EQ(balance.values(), values);

  balance.reset();
  EXPECT_FALSE(balance.fixed());
  EXPECT_EQ(balance.factors(1, 0), nullptr);
  balance.count(kVectorScalar, 1, later.q.data(), later.k.data(), 512);
  ASSERT_TRUE(balance.fix(kHalves, false));
  EXPECT_NEAR(balance.values()[0] / balance.values()[1], 1.0 / 3, 1e-5);

  KeyBalance restored(shapes);
  ASSERT_TRUE(restored.restore(values));
  EXPECT_EQ(restored.values(), values);
}

TEST(KeyBalance, BrokenNumbersGiveOnes) {
  const KvLayout shapes = layout();
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const Chunk& chunk :
       {Chunk(64, {0, 0, 0, 0}, {1, 1, 1, 1}), Chunk(64, {1, 1, 1, 1}, {0, 0, 0, 0}),
        Chunk(64, {inf, 1, 1, 1}, {1, 1, 1, 1}), Chunk(64, {nan, 1, 1, 1}, {1, nan, 1, 1}),
        Chunk(64, {1, 1, 1, 1}, {inf, 1, 1, inf})}) {
    KeyBalance balance = counted(shapes, chunk, 64);
    ASSERT_TRUE(balance.fix(kHalves, false));
    EXPECT_TRUE(key_balance_plausible(balance.values()));
  }
  KeyBalance balance(shapes);
  EXPECT_FALSE(balance.restore(std::vector<float>(kKvHeads * kDim, 0.0f)));
  EXPECT_FALSE(balance.restore(std::vector<float>(kKvHeads * kDim, nan)));
  EXPECT_FALSE(balance.restore(std::vector<float>(3, 1.0f)));
  EXPECT_FALSE(balance.fixed());
}

}  // namespace
}  // namespace tierkv
