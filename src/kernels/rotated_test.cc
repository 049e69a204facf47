#include "kernels/rotated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/rotated_layout.h"
#include "kernels/rotated_test_util.h"

namespace tierkv {
namespace {

using namespace rotated_test;

TEST(RotatedFormat, Validity) {
  EXPECT_TRUE(rotated_format_valid({8, 2}));
  EXPECT_TRUE(rotated_format_valid({3, 8}));
  for (const RotatedFormat bad : {RotatedFormat{2, 4}, {7, 4}, {4, 7}, {0, 0}, {4, 1}, {16, 4}}) {
    EXPECT_FALSE(rotated_format_valid(bad));
  }
  for (const int64_t dim : {32, 64, 128, 256, 512}) EXPECT_TRUE(rotated_head_dim_valid(dim));
  for (const int64_t dim : {-64, 0, 16, 80, 96, 1024}) EXPECT_FALSE(rotated_head_dim_valid(dim));
}

TEST(RotatedFormat, BlockBytesAreCodesScalesAndMean) {
  for (const RotatedFormat f : all_formats()) {
    for (const int64_t dim : {32, 64, 128, 256, 512}) {
      // K5V4, d = 64: 4.75 bits an element.
      const int64_t codes = (f.k_bits + f.v_bits) * dim * kPageTokens / 8;
      const int64_t header = 64, scales = 2 * kPageTokens, mean = std::max<int64_t>(dim, 64);
      const uint64_t bytes = rotated_block_bytes(f, dim);
      EXPECT_EQ(bytes, static_cast<uint64_t>(codes + header + scales + mean));
      EXPECT_EQ(bytes % 64, 0u);
    }
  }
}

// Largest squared error over squared size that Gaussian vectors may show, of 64 and of 256 dims:
// some 5 % above what is measured (docs/decisions.md). A wrong level, plane or
// scale shows at once.
struct ErrorBound {
  uint8_t bits;
  double d64, d256;
};
constexpr ErrorBound kErrorBounds[] = {{2, 0.114, 0.1235},    {3, 0.0294, 0.0341},
                                       {4, 0.0071, 0.0087},   {5, 0.00172, 0.00219},
                                       {6, 0.00056, 0.00078}, {8, 0.0000357, 0.0000505}};

double bound_of(int bits, int64_t dim) {
  for (const ErrorBound& bound : kErrorBounds) {
    if (bound.bits == bits) return dim == 64 ? bound.d64 : bound.d256;
  }
  return 0;
}

double relative_error(const Exact& a, const Exact& b, bool values) {
  double error = 0, size = 0;
  const size_t half = a.size() / 2, begin = values ? half : 0;
  for (size_t i = begin; i < begin + half; ++i) {
    const double x = f16_to_f32(a[i]), e = x - f16_to_f32(b[i]);
    error += e * e, size += x * x;
  }
  return error / size;
}

TEST(RotatedCodec, GaussianErrorPerWidth) {
  for (const Isa isa : available_isas()) {
    for (const int64_t dim : {64, 256}) {
      for (const auto& [bits, d64, d256] : kErrorBounds) {
        const RotatedFormat format = {std::max<uint8_t>(bits, 3), bits};
        double keys = 0, values = 0;
        constexpr int kBlocks = 4;
        for (unsigned seed = 0; seed < kBlocks; ++seed) {
          const Exact exact = gaussian_block(dim, seed, seed % 2 ? 1e-2f : 30.0f);
          const Exact back = decode(isa, format, encode(isa, format, exact, 64, dim), dim);
          keys += relative_error(exact, back, false) / kBlocks;
          values += relative_error(exact, back, true) / kBlocks;
        }
        const double bound = bound_of(bits, dim);
        if (bits > 2) {
          EXPECT_LT(keys, bound) << isa_name(isa) << " K" << int{bits} << " d" << dim;
        }
        EXPECT_LT(values, bound) << isa_name(isa) << " V" << int{bits} << " d" << dim;
        EXPECT_GT(values, bound * 0.8) << "better than the best scales: the test measures nothing";
      }
    }
  }
}

TEST(RotatedCodec, EveryIsaEncodesAndDecodesTheSameBits) {
  std::mt19937 random(3);
  for (const int64_t dim : {32, 64, 128, 512}) {
    Exact exact = gaussian_block(dim, 1);
    for (size_t i = 0; i < exact.size(); i += 5) exact[i] = static_cast<uint16_t>(random());
    for (const RotatedFormat f : {RotatedFormat{3, 2}, {4, 3}, {5, 4}, {6, 5}, {8, 6}, {4, 8}}) {
      for (const int n_tokens : {0, 1, 17, 64}) {
        const Bytes expected = encode(Isa::kScalar, f, exact, n_tokens, dim);
        const Exact back = decode(Isa::kScalar, f, expected, dim);
        for (const Isa isa : available_isas()) {
          const Bytes block = encode(isa, f, exact, n_tokens, dim);
          EXPECT_EQ(std::memcmp(block.get(), expected.get(), rotated_block_bytes(f, dim)), 0)
              << isa_name(isa) << " d" << dim << " tokens " << n_tokens;
          EXPECT_EQ(decode(isa, f, block, dim), back) << isa_name(isa);
        }
      }
    }
  }
}

// Absent tokens are not seen, but what they decode to is no rubbish: no more than a key's error.
TEST(RotatedCodec, ZeroValuesStayZeroAndZeroKeysNearlySo) {
  for (const Isa isa : available_isas()) {
    Exact exact = gaussian_block(64, 1);
    for (int64_t d = 0; d < 64; ++d) exact[key_at(64, 3, d)] = exact[value_at(64, 3, d)] = 0;
    for (const RotatedFormat f : {RotatedFormat{3, 2}, {4, 4}, {8, 8}}) {
      const Exact back = decode(isa, f, encode(isa, f, exact, 40, 64), 64);
      for (int t = 0; t < kPageTokens; ++t) {
        double keys = 0, values = 0;
        for (int64_t d = 0; d < 64; ++d) {
          keys += std::pow(f16_to_f32(back[key_at(64, t, d)]), 2);
          values += std::pow(f16_to_f32(back[value_at(64, t, d)]), 2);
        }
        const bool zero = t == 3 || t >= 40;
        EXPECT_EQ(values == 0, zero) << isa_name(isa) << " token " << t;
        EXPECT_EQ(keys < 0.2, zero) << isa_name(isa) << " token " << t << ": " << keys;
      }
    }
  }
}

// A NaN costs no other token anything to speak of; infinities and the largest float16 may spoil
// their page, but all of it stays finite.
TEST(RotatedCodec, BrokenValuesGiveFiniteBlocks) {
  for (const Isa isa : available_isas()) {
    for (const RotatedFormat f : {RotatedFormat{3, 2}, {5, 4}, {8, 8}}) {
      const Exact clean = gaussian_block(128, 5);
      Exact broken = clean;
      broken[key_at(128, 2, 0)] = broken[value_at(128, 2, 7)] = 0x7e01;  // NaN
      Exact back = decode(isa, f, encode(isa, f, broken, 64, 128), 128);
      broken[key_at(128, 2, 0)] = broken[value_at(128, 2, 7)] = 0;
      EXPECT_EQ(back, decode(isa, f, encode(isa, f, broken, 64, 128), 128)) << isa_name(isa);
      for (int64_t d = 0; d < 128; ++d)
        broken[key_at(128, 9, d)] = broken[value_at(128, 9, d)] = 0x7bff;
      broken[key_at(128, 2, 1)] = broken[value_at(128, 2, 8)] = 0xfc00;  // -infinity
      back = decode(isa, f, encode(isa, f, broken, 64, 128), 128);
      for (const uint16_t h : back) EXPECT_TRUE(std::isfinite(f16_to_f32(h))) << isa_name(isa);
    }
  }
}

// Keys far from zero and of uneven sizes lose, as queries see them, what centred even ones do.
TEST(RotatedCodec, MeanAndBalanceTakeOffsetsAndSizesOutOfTheError) {
  for (const int64_t dim : {64, 256}) {
    const Exact exact = off_centre_block(dim, 3);
    const std::vector<float> balance = inverse_sizes(dim);
    for (const uint8_t bits : {3, 4, 5, 6}) {
      const RotatedFormat f = {bits, 2};
      const auto error = [&](const float* factors) {
        const Exact back =
            decode(Isa::kScalar, f, encode(Isa::kScalar, f, exact, 64, dim, factors), dim, factors);
        double sum = 0;
        for (int t = 0; t < kPageTokens; ++t) {
          for (int64_t d = 0; d < dim; ++d) {
            const int64_t at = key_at(dim, t, d);
            sum += std::pow((f16_to_f32(back[at]) - f16_to_f32(exact[at])) * balance[d], 2);
          }
        }
        return sum / static_cast<double>(kPageTokens * dim);
      };
      const double bound = bound_of(bits, dim);
      EXPECT_LT(error(balance.data()), bound * 1.02) << int{bits} << " bits, d " << dim;
      EXPECT_GT(error(nullptr), bound * 3);
    }
  }
}

// Curved levels are sorted whole numbers that a signed byte and AVX2's sums bear, the outermost one
// 127 so that none of the range is lost.
TEST(RotatedLayout, LevelsAreSortedBytes) {
  for (const int bits : {3, 4, 5}) {
    const LevelTable table = level_table(bits);
    EXPECT_EQ(table.level[0], -kMaxLevel);
    for (int c = 1; c < 1 << bits; ++c) {
      EXPECT_GT(table.level[c], table.level[c - 1]) << bits;
      EXPECT_LE(table.level[c], kMaxLevel);
    }
  }
}

TEST(RotatedQuery, IsTheRotatedRowWithinHalfAStep) {
  for (const Isa isa : available_isas()) {
    for (const int64_t dim : {32, 64, 128, 256, 512}) {
      Rows rows(5, dim, 3), reference(5, dim, 3);
      std::fill_n(rows.q.begin() + dim, dim, 0.0f);  // a zero row
      reference.q = rows.q;
      rows.prepare(isa);
      reference.prepare(Isa::kScalar);
      EXPECT_EQ(std::memcmp(rows.code(), reference.code(), 5 * dim), 0) << isa_name(isa);
      EXPECT_EQ(rows.scale, reference.scale);
      for (int r = 0; r < 5; ++r) {
        const std::vector<double> row(&rows.q[r * dim], &rows.q[r * dim] + dim);
        const std::vector<double> rotated = hadamard(row);
        int32_t sum = 0;
        for (int64_t d = 0; d < dim; ++d) {
          const int code = rows.code()[r * dim + d];
          sum += code;
          EXPECT_NEAR(code * rows.scale[r], rotated[d], rows.scale[r] * 0.5001 + 1e-30);
          EXPECT_GT(code, -128);
        }
        EXPECT_EQ(sum, rows.code_sum[r]);
      }
    }
  }
}

TEST(RotatedQuery, UnrotateIsTheTransform) {
  for (const Isa isa : available_isas()) {
    for (const int64_t dim : {32, 64, 128, 256, 512}) {
      Rows rows(2, dim, 1);
      rows.out = rows.q;
      rows.unrotate(isa);
      for (int r = 0; r < 2; ++r) {
        const std::vector<double> row(&rows.q[r * dim], &rows.q[r * dim] + dim);
        const std::vector<double> expected = hadamard(row);
        for (int64_t d = 0; d < dim; ++d) EXPECT_NEAR(rows.out[r * dim + d], expected[d], 4e-6);
      }
    }
  }
}

}  // namespace
}  // namespace tierkv
