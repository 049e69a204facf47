#include "kv/query_energy.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tierkv {
namespace {

// Two KV heads of four dimensions, two query heads each.
KvLayout layout() {
  return make_kv_layout(
      {{.n_heads = 4, .n_kv_heads = 2, .head_dim = 4, .window = 0, .scale = 0.5f, .softcap = 0}});
}

TEST(QueryEnergy, AveragesOverTokensHeadsAndPairs) {
  const KvLayout shapes = layout();
  QueryEnergy energy(shapes);
  const float q[2][4][4] = {{{1, 2, 3, 4}, {0, 0, 0, 2}, {5, 5, 5, 5}, {5, 5, 5, 5}},
                            {{1, 0, 1, 0}, {0, 0, 0, 0}, {5, 5, 5, 5}, {5, 5, 5, 5}}};
  energy.add(0, q[0][0], 1);
  energy.add(0, q[1][0], 1);
  // Squares of KV head 0 by dimension: 2, 4, 10, 20 over four queries; scale^2 is 1/4.
  const std::vector<float> halves = energy.columns(0, RopePairing::kHalves);
  EXPECT_EQ(halves, (std::vector<float>{6 / 16.f, 12 / 16.f, 6 / 16.f, 12 / 16.f,  //
                                        25 / 4.f, 25 / 4.f, 25 / 4.f, 25 / 4.f}));
  const std::vector<float> adjacent = energy.columns(0, RopePairing::kAdjacent);
  EXPECT_EQ(adjacent, (std::vector<float>{3 / 16.f, 15 / 16.f, 3 / 16.f, 15 / 16.f,  //
                                          25 / 4.f, 25 / 4.f, 25 / 4.f, 25 / 4.f}));
}

TEST(QueryEnergy, IsZeroWithoutQueries) {
  const KvLayout shapes = layout();
  EXPECT_EQ(QueryEnergy(shapes).columns(0, RopePairing::kHalves), std::vector<float>(8));
}

TEST(QueryEnergy, GoesOnFromItsSums) {
  const KvLayout shapes = layout();
  QueryEnergy whole(shapes), before(shapes), after(shapes);
  EXPECT_TRUE(before.sums().empty());
  std::vector<float> q(3 * 16);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 7);
  whole.add(0, q.data(), 2);
  before.add(0, q.data(), 2);
  ASSERT_TRUE(after.restore(before.sums()));
  whole.add(0, q.data() + 32, 1);
  after.add(0, q.data() + 32, 1);
  EXPECT_EQ(after.sums(), whole.sums());
  EXPECT_EQ(after.columns(0, RopePairing::kHalves), whole.columns(0, RopePairing::kHalves));
}

TEST(QueryEnergy, RefusesSumsOfNoneOrOfAnotherLayout) {
  const KvLayout shapes = layout();
  QueryEnergy energy(shapes);
  const float q[16] = {1};
  energy.add(0, q, 1);
  std::vector<double> sums = energy.sums();
  for (const double wrong : {-1.0, 1e300, std::nan("")}) {
    std::vector<double> others = sums;
    others[3] = wrong;
    EXPECT_FALSE(energy.restore(others));
  }
  EXPECT_FALSE(energy.restore(std::span(sums).first(8)));
  EXPECT_FALSE(energy.restore({}));
  EXPECT_EQ(energy.sums(), sums);
}

}  // namespace
}  // namespace tierkv
