#include "runtime/device_costs.h"

#include <gtest/gtest.h>

namespace tierkv {
namespace {

KvLayerShape shape_of(int head_dim, int group) {
  KvLayerShape shape;
  shape.head_dim = head_dim;
  shape.n_kv_heads = 2;
  shape.n_heads = 2 * group;
  return shape;
}

DeviceCosts example() {
  DeviceCosts costs;
  costs.measured = costs.flash_measured = true;
  costs.step_seconds = .004;
  costs.flash_bytes_per_second = 1.25e9;
  costs.attention = {{64, 3, 8e-9, {{{5, 4}, 6e-9}, {{3, 2}, 4e-9}}}};
  return costs;
}

TEST(DeviceCosts, WhatWasMeasuredGoesBeforeTheDefaults) {
  const DeviceCosts costs = example();
  EXPECT_EQ(costs.exact_seconds(shape_of(64, 3)), 8e-9);
  EXPECT_EQ(costs.codec_seconds(shape_of(64, 3), {5, 4}), 6e-9);
  EXPECT_EQ(costs.codec_seconds(shape_of(64, 3), {}), 8e-9);
  const DeviceCosts none;
  EXPECT_EQ(costs.exact_seconds(shape_of(64, 1)), none.exact_seconds(shape_of(64, 1)));
  EXPECT_EQ(costs.codec_seconds(shape_of(64, 3), {8, 8}),
            none.codec_seconds(shape_of(64, 3), {8, 8}));
  EXPECT_NEAR(none.exact_seconds(shape_of(64, 1)), 256 / 12e9, 1e-15);  // K and V in float16
}

TEST(DeviceCosts, SurviveTheirFile) {
  const DeviceCosts costs = example();
  const std::string text = costs_to_json(costs, "this machine");
  const auto back = costs_from_json(text, "this machine");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(back->measured);
  EXPECT_EQ(costs_to_json(*back, "this machine"), text);
  EXPECT_EQ(costs_from_json(text, "another").status().code(), StatusCode::kNotFound);
}

TEST(DeviceCosts, DamagedFilesAreRefused) {
  const std::string text = costs_to_json(example(), "key");
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return costs_from_json(changed, "key").status().code();
  };
  EXPECT_EQ(broken("8e-09", "-1"), StatusCode::kCorrupt);
  EXPECT_EQ(broken("8e-09", "1e999"), StatusCode::kCorrupt);
  EXPECT_EQ(broken("k5v4", "k9v9"), StatusCode::kCorrupt);
  EXPECT_EQ(broken("1250000000.0", "0"), StatusCode::kCorrupt);
  EXPECT_EQ(broken("0.004", "\"much\""), StatusCode::kCorrupt);
  EXPECT_EQ(broken("step_seconds", "steps"), StatusCode::kCorrupt);
  for (size_t n = 0; n < text.size(); n += 7) {
    EXPECT_FALSE(costs_from_json(text.substr(0, n), "key").ok()) << n;
  }
}

}  // namespace
}  // namespace tierkv
