#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan.h"

namespace tierkv {
namespace {

TEST(CodecId, EveryCodecComesBackFromItsName) {
  int n = 0;
  for (const int k : {3, 4, 5, 6, 8}) {
    for (const int v : {2, 3, 4, 5, 6, 8}) {
      const CodecId codec{static_cast<uint8_t>(k), static_cast<uint8_t>(v)};
      const auto parsed = parse_codec(codec_name(codec));
      ASSERT_TRUE(parsed.ok()) << codec_name(codec);
      EXPECT_EQ(*parsed, codec);
      ++n;
    }
  }
  EXPECT_EQ(n, 30);
  EXPECT_EQ(codec_name({5, 4}), "k5v4");
  EXPECT_EQ(codec_name({}), "exact");
  EXPECT_EQ(*parse_codec("exact"), CodecId{});
}

TEST(CodecId, LowRanksComeBackFromTheirNames) {
  for (const uint8_t bits : {8, 16}) {
    for (uint16_t permille = 50; permille <= 1000; ++permille) {
      const CodecId codec{.rank_permille = permille, .latent_bits = bits};
      const auto parsed = parse_codec(codec_name(codec));
      ASSERT_TRUE(parsed.ok()) << codec_name(codec);
      EXPECT_EQ(*parsed, codec);
      EXPECT_TRUE(parsed->is_low_rank());
    }
  }
  EXPECT_EQ(codec_name({.rank_permille = 500, .latent_bits = 16}), "lr50");
  EXPECT_EQ(codec_name({.rank_permille = 375, .latent_bits = 8}), "lr37.5i8");
  EXPECT_FALSE(CodecId({5, 4}).is_low_rank());
}

TEST(CodecId, NonsenseIsRefusedWithTheChoices) {
  for (const char* name : {"",
                           "k",
                           "k5",
                           "k5v",
                           "k5v4 ",
                           " k5v4",
                           "k2v4",
                           "k7v4",
                           "k5v7",
                           "k5v1",
                           "k5v9",
                           "k0v0",
                           "K5V4",
                           "v5k4",
                           "k5x4",
                           "k05v4",
                           "EXACT",
                           "lr",
                           "lri8",
                           "lr4.9",
                           "lr0",
                           "lr050",
                           "lr100.1",
                           "lr101",
                           "lr50.",
                           "lr50.0",
                           "lr50.05",
                           "lr.5",
                           "lr50i4",
                           "lr50i16",
                           "lr50 ",
                           "lr-50",
                           "lr+50",
                           "LR50",
                           "lr1000000",
                           "k\xff"
                           "v4"}) {
    const auto parsed = parse_codec(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(parsed.status().message(), ::testing::HasSubstr("k5v4"));
  }
}

}  // namespace
}  // namespace tierkv
