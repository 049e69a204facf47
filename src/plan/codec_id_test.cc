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

TEST(CodecId, NonsenseIsRefusedWithTheChoices) {
  for (const char* name : {"", "k", "k5", "k5v", "k5v4 ", " k5v4", "k2v4", "k7v4", "k5v7", "k5v1",
                           "k5v9", "k0v0", "K5V4", "v5k4", "k5x4", "k05v4", "EXACT",
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
