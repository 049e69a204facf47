#include "base/size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tierkv {
namespace {

struct SizeCase {
  const char* text;
  uint64_t bytes;
};

TEST(Size, ParsesWhatPeopleWrite) {
  constexpr uint64_t kKi = 1024, kMi = kKi * 1024, kGi = kMi * 1024, kTi = kGi * 1024;
  for (const SizeCase& c :
       {SizeCase{"1", 1}, SizeCase{"4096", 4096}, SizeCase{"7B", 7}, SizeCase{"7b", 7},
        SizeCase{"1K", kKi}, SizeCase{"1k", kKi}, SizeCase{"1KB", kKi}, SizeCase{"1KiB", kKi},
        SizeCase{"300M", 300 * kMi}, SizeCase{"300 MiB", 300 * kMi}, SizeCase{"300m", 300 * kMi},
        SizeCase{"1.5G", kGi + kGi / 2}, SizeCase{"2GiB", 2 * kGi}, SizeCase{"2Gi", 2 * kGi},
        SizeCase{"0.25T", kTi / 4}, SizeCase{"1.0009765625K", 1025}, SizeCase{"1e3", 1000},
        SizeCase{"1023.9K", 1048473}, SizeCase{"4194303T", 4194303 * kTi}}) {
    const auto parsed = parse_size(c.text);
    ASSERT_TRUE(parsed.ok()) << c.text << ": " << parsed.status().message();
    EXPECT_EQ(*parsed, c.bytes) << c.text;
  }
}

TEST(Size, RefusesTheRestWithAnExample) {
  for (const char* text : {"",      " ",      "M",        "lots",  "-1",   "-1G", "+1",    "0",
                           "0M",    "0.0001", "0.5",      "nan",   "nanM", "inf", "infG",  "-inf",
                           "1e999", "1e-999", "4194304T", "1e30G", "1X",   "1MM", "1MiBs", "1 M iB",
                           "1,5G",  "0x10",   "1M\n",     " 1M",   "1E",   "1P",  "1.2.3", "--"}) {
    const auto parsed = parse_size(text);
    ASSERT_FALSE(parsed.ok()) << text << " gave " << *parsed;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(parsed.status().message(), ::testing::HasSubstr("1.5G")) << text;
  }
}

TEST(Size, LongNonsenseIsNotRepeatedWhole) {
  const auto parsed = parse_size(std::string(100000, '9') + "Q");
  EXPECT_FALSE(parsed.ok());
  EXPECT_LT(parsed.status().message().size(), 200u);
}

TEST(Size, ReadsOnlyItsView) {
  const std::string text = "12345678";
  EXPECT_EQ(*parse_size(std::string_view(text).substr(0, 3)), 123u);
}

TEST(Size, FormatsForPeople) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1.0 KiB");
  EXPECT_EQ(format_size(1234567), "1.2 MiB");
  EXPECT_EQ(format_size(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(format_size(uint64_t{5000} << 40), "5000.0 TiB");
  EXPECT_EQ(format_size(UINT64_MAX), "unlimited");
}

// What a message tells people to give must be enough.
TEST(Size, ArgumentCoversTheBytesAndIsTheLeastToDoSo) {
  constexpr uint64_t kMi = 1 << 20;
  for (const uint64_t bytes : {uint64_t{1}, kMi - 1, kMi, kMi + 1, 118 * kMi,
                               (uint64_t{1} << 40) + 1, (uint64_t{1} << 61) - 1}) {
    const auto parsed = parse_size(format_size_argument(bytes));
    ASSERT_TRUE(parsed.ok()) << bytes;
    EXPECT_GE(*parsed, bytes);
    EXPECT_LT(*parsed - bytes, kMi);
  }
  EXPECT_EQ(format_size_argument(UINT64_MAX), "17592186044416M");
}

}  // namespace
}  // namespace tierkv
