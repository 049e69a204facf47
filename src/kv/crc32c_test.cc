#include "kv/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "kv/flash_store.h"

namespace tierkv {
namespace {

using Bytes = std::vector<std::byte>;

Bytes filled(size_t n, uint8_t value) { return Bytes(n, std::byte{value}); }

Bytes counting(int first, int step) {
  Bytes bytes;
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::byte>(first + i * step));
  return bytes;
}

Bytes text(std::string_view s) {
  const auto bytes = std::as_bytes(std::span(s));
  return Bytes(bytes.begin(), bytes.end());
}

struct Vector {
  const char* name;
  Bytes data;
  uint32_t crc;
};

// RFC 3720 (iSCSI), appendix B.4, and the customary check value of "123456789".
std::vector<Vector> known_vectors() {
  return {{"zeros", filled(32, 0), 0x8a9136aa},      {"ones", filled(32, 0xff), 0x62a8ab43},
          {"ascending", counting(0, 1), 0x46dd794e}, {"descending", counting(31, -1), 0x113fdb5c},
          {"check", text("123456789"), 0xe3069283},  {"empty", {}, 0}};
}

// One bit at a time, from the definition.
uint32_t slow_crc32c(std::span<const std::byte> data) {
  uint32_t crc = ~0u;
  for (const std::byte byte : data) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

Bytes random_bytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32c, KnownVectors) {
  for (const Vector& v : known_vectors()) {
    EXPECT_EQ(crc32c_table(v.data, 0), v.crc) << v.name;
    EXPECT_EQ(crc32c(v.data), v.crc) << v.name;
    if (crc32c_has_instruction()) {
      EXPECT_EQ(crc32c_instruction(v.data, 0), v.crc) << v.name;
    }
  }
}

TEST(Crc32c, InstructionIsThereOnEveryX86OfThisCentury) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "a CPU older than any we tune for";
  EXPECT_TRUE(crc32c_has_instruction());
#else
  GTEST_SKIP() << "optional on this architecture";
#endif
}

TEST(Crc32c, EveryLengthAndAlignment) {
  const Bytes data = random_bytes(80, 1);
  for (size_t from = 0; from < 9; ++from) {
    for (size_t n = 0; from + n <= data.size(); ++n) {
      const auto part = std::span(data).subspan(from, n);
      const uint32_t expected = slow_crc32c(part);
      ASSERT_EQ(crc32c_table(part, 0), expected) << from << " " << n;
      if (crc32c_has_instruction()) {
        ASSERT_EQ(crc32c_instruction(part, 0), expected);
      }
    }
  }
}

// Around the ends of the lanes that are computed side by side.
TEST(Crc32c, LongLengths) {
  const Bytes data = random_bytes(2 * 3 * 4096 + 3 * 256 + 30, 4);
  for (const size_t lanes : {3 * 256, 6 * 256, 3 * 4096, 6 * 4096, 3 * 4096 + 3 * 256}) {
    for (const size_t n : {lanes - 1, lanes, lanes + 1, lanes + 23}) {
      for (const size_t from : {0, 3}) {
        const auto part = std::span(data).subspan(from, n);
        ASSERT_EQ(crc32c(part, 77), crc32c_table(part, 77)) << from << " " << n;
        ASSERT_EQ(crc32c(part), slow_crc32c(part)) << from << " " << n;
      }
    }
  }
}

TEST(Crc32c, ContinuesFromAnEarlierPart) {
  const Bytes data = random_bytes(1000, 2);
  const auto all = std::span<const std::byte>(data);
  for (const size_t cut : {0, 1, 7, 8, 500, 999, 1000}) {
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), slow_crc32c(all)) << cut;
    EXPECT_EQ(crc32c_table(all.subspan(cut), crc32c_table(all.first(cut), 0)), slow_crc32c(all));
  }
}

TEST(Crc32c, SeesEverySingleBit) {
  Bytes data = random_bytes(64, 3);
  const uint32_t good = crc32c(data);
  for (size_t bit = 0; bit < 512; ++bit) {
    data[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_NE(crc32c(data), good) << bit;
    data[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

}  // namespace
}  // namespace tierkv
