// Which extents are read: tables.
#include "kv/selective_read.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tierkv {
namespace {

using Indices = std::vector<size_t>;
constexpr double kAlways = std::numeric_limits<double>::infinity();

TEST(WorthReading, FewestWhoseAbsenceIsAllowed) {
  const std::vector<double> effects = {1, 8, 2, 4};
  EXPECT_EQ(worth_reading(effects, 0), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(worth_reading(effects, -1), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(worth_reading(effects, 0.5), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(worth_reading(effects, 1), (Indices{1, 2, 3}));
  EXPECT_EQ(worth_reading(effects, 3), (Indices{1, 3}));
  EXPECT_EQ(worth_reading(effects, 7), (Indices{1}));
  EXPECT_EQ(worth_reading(effects, 14.9), (Indices{1}));
  EXPECT_EQ(worth_reading(effects, 15), Indices{});
  EXPECT_EQ(worth_reading({}, 0), Indices{});
}

TEST(WorthReading, TiesGoToTheFirst) {
  EXPECT_EQ(worth_reading(std::vector<double>{1, 1, 1, 1}, 2), (Indices{0, 1}));
}

TEST(WorthReading, WhatMustBeReadAlwaysIs) {
  EXPECT_EQ(worth_reading(std::vector<double>{0, kAlways, 0}, 1e300), (Indices{1}));
  EXPECT_EQ(worth_reading(std::vector<double>{std::nan("")}, 1), (Indices{0}));
}

// Two layers with heads, one without between them. What a layer leaves the next one may use.
TEST(SelectiveRead, LayersShareTheBudgetOfAStep) {
  SelectiveRead rule({{1, 1}, {}, {1}}, 10);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(rule.choose(0, std::vector<double>{4, 2}), (Indices{0}));  // 5 allowed
    EXPECT_EQ(rule.choose(2, std::vector<double>{6, 3}), (Indices{0}));  // 8: 9 are too many
  }
  EXPECT_EQ(rule.n_judged(), 8);
  EXPECT_EQ(rule.n_skipped(), 4);
}

TEST(SelectiveRead, NothingAllowedReadsAll) {
  SelectiveRead rule({{1}}, 0);
  EXPECT_EQ(rule.choose(0, std::vector<double>{0, 0}), (Indices{0, 1}));
}

TEST(SelectiveRead, AWeightIsTheHeadsPartOfTheKld) {
  const SelectiveRead rule({{1e-3, 2e-3}}, 1);
  EXPECT_DOUBLE_EQ(rule.weight(0, 1), 2 * rule.weight(0, 0));
  EXPECT_DOUBLE_EQ(rule.weight(0, 0) * SelectiveRead::kMeanWeight, 1e-3);
}

}  // namespace
}  // namespace tierkv
