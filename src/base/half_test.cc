#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tierkv {
namespace {

constexpr uint16_t kInfinity = 0x7c00, kLargest = 0x7bff;
constexpr double kOverflow = 65520;  // halfway between 65504 and 2^16: rounds to infinity

// What a float16 means, by the standard's words: fields and powers of two, in double.
double half_value(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool is_nan(uint16_t h) { return (h & 0x7fff) > kInfinity; }

const std::vector<double>& finite_values() {
  static const std::vector<double> values = [] {
    std::vector<double> list;
    for (uint16_t h = 0; h <= kLargest; ++h) list.push_back(half_value(h));
    return list;
  }();
  return values;
}

// The nearest float16, the even one of two: by search among all of them.
uint16_t nearest_half(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (magnitude >= kOverflow) return sign | kInfinity;
  const std::vector<double>& all = finite_values();
  const auto above = std::lower_bound(all.begin(), all.end(), magnitude);
  if (above == all.end()) return sign | kLargest;
  uint16_t high = static_cast<uint16_t>(above - all.begin());
  if (*above == magnitude) return sign | high;
  const uint16_t low = high - 1;
  const double to_low = magnitude - all[low], to_high = all[high] - magnitude;
  if (to_low == to_high) return sign | (low % 2 == 0 ? low : high);
  return sign | (to_low < to_high ? low : high);
}

TEST(Half, EveryFloat16HasItsValueAndComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t h = static_cast<uint16_t>(i);
    const float value = f16_to_f32(h);
    if (is_nan(h)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(is_nan(f32_to_f16(value))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), half_value(h)) << i;
    ASSERT_EQ(std::signbit(value), (h & 0x8000) != 0) << i;
    ASSERT_EQ(f32_to_f16(value), h) << i;
  }
}

// Between each float16 and the next: the midpoint, and the floats just below and above it.
TEST(Half, RoundsToNearestAndTiesToEven) {
  for (uint32_t i = 0; i < kLargest; ++i) {
    const uint16_t low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const float middle = static_cast<float>((half_value(low) + half_value(high)) / 2);
    const float below = std::nextafter(middle, 0.f), above = std::nextafter(middle, 1e9f);
    ASSERT_EQ(f32_to_f16(middle), low % 2 == 0 ? low : high) << i;
    ASSERT_EQ(f32_to_f16(below), low) << i;
    ASSERT_EQ(f32_to_f16(above), high) << i;
    ASSERT_EQ(f32_to_f16(-middle), (low % 2 == 0 ? low : high) | 0x8000) << i;
  }
}

TEST(Half, RandomFloatsGoToTheNearest) {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    uint32_t bits = random();
    if (i % 2 == 0) bits = (bits & 0x807fffff) | (100 + bits % 45) << 23;  // where float16 lives
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_f16(value), nearest_half(value)) << value;
  }
}

TEST(Half, TheEdges) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(infinity), kInfinity);
  EXPECT_EQ(f32_to_f16(-infinity), kInfinity | 0x8000);
  EXPECT_EQ(f32_to_f16(65504), kLargest);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.f, 0.f)), kLargest);
  EXPECT_EQ(f32_to_f16(65520), kInfinity);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(f32_to_f16(-0.f), 0x8000);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0) << "a tie with zero";
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.f)), 1);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_TRUE(is_nan(f32_to_f16(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(is_nan(f32_to_f16(std::bit_cast<float>(0x7f800001u)))) << "not infinity";
}

TEST(Half, BFloat16IsTheUpperHalf) {
  for (const float value : {0.f, 1.f, -2.5f, 0x1p-126f, 0x1p100f}) {
    const uint16_t upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    EXPECT_EQ(bf16_to_f32(upper), value);
  }
}

}  // namespace
}  // namespace tierkv
