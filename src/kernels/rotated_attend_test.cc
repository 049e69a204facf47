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

// A block's rotated K and V in double, and its V scales: by decoding, and rotating again.
struct Rotated {
  std::vector<std::vector<double>> k, v;  // [kPageTokens][head_dim]
  std::vector<double> v_scale;
};

constexpr uint8_t kScaleByteOfOne = kScaleCodeOfOne;

void set_header(const Bytes& block, const BlockHeader& header) {
  std::memcpy(block.get(), &header, sizeof header);
}

float value_scale(const Bytes& block, int t) {
  BlockHeader header;
  std::memcpy(&header, block.get(), sizeof header);
  const int byte = std::to_integer<int>(block[kScalesAt + kPageTokens + t]);
  const float size = std::ldexp(1 + static_cast<float>(byte & 15) / 16, (byte >> 4 & 7) - 7);
  return byte == 0 ? 0 : (byte & 0x80 ? -size : size) * header.v_base;
}

Rotated rotate_block(RotatedFormat format, const Bytes& block, int64_t dim,
                     const float* key_balance = nullptr) {
  const Exact exact = decode(Isa::kScalar, format, block, dim, key_balance);
  Rotated rotated;
  for (int t = 0; t < kPageTokens; ++t) {
    std::vector<double> k(dim), v(dim);
    for (int64_t d = 0; d < dim; ++d) {
      k[d] = f16_to_f32(exact[key_at(dim, t, d)]) * (key_balance ? key_balance[d] : 1);
      v[d] = f16_to_f32(exact[value_at(dim, t, d)]);
    }
    rotated.k.push_back(hadamard(k));
    rotated.v.push_back(hadamard(v));
    rotated.v_scale.push_back(std::abs(value_scale(block, t)));
  }
  return rotated;
}

// One row over several blocks in double, with the query codes as they are, and how far the kernels
// may be from it:
//   score_error  decode() rounds K to float16: 2^-11 of every product; and float32 sums
//   out_error    root mean square over dims. A 7-bit weight is off by at most half a step of its
//   half of
//                its page: at most step^2 / 4 in variance where a weight rounds to nothing, step^2
//                / 12 for most. And a wrong score changes its weight in proportion.
struct Oracle {
  double max = kNoScore, sum = 0, score_error = 0, out_error = 0;
  std::vector<double> out;
};

struct Seen {
  double score;
  int page, token;
};

std::vector<Seen> scores(const Rows& rows, int r, const std::vector<Rotated>& pages,
                         Oracle& oracle) {
  std::vector<Seen> seen;
  const auto* codes = reinterpret_cast<const int8_t*>(rows.codes.get()) + r * rows.head_dim;
  for (size_t page = 0; page < pages.size(); ++page) {
    for (int t = rows.first[r]; t < rows.last[r]; ++t) {
      double score = 0, size = 0;
      for (int64_t d = 0; d < rows.head_dim; ++d) {
        const double product = codes[d] * double{rows.scale[r]} * pages[page].k[t][d];
        score += product, size += std::abs(product);
      }
      if (rows.softcap > 0) score = rows.softcap * std::tanh(score / rows.softcap);
      oracle.score_error = std::max(oracle.score_error, size * 0x1p-11 + std::abs(score) * 0x1p-20);
      oracle.max = std::max(oracle.max, score);
      seen.push_back({score, static_cast<int>(page), t});
    }
  }
  return seen;
}

Oracle attend(const Rows& rows, int r, const std::vector<Rotated>& pages) {
  Oracle oracle;
  oracle.out.assign(rows.head_dim, 0);
  const std::vector<Seen> seen = scores(rows, r, pages, oracle);
  std::vector<double> step(pages.size() * 2, 0), size(pages.size() * 2, 0);
  for (const auto& [score, page, t] : seen) {
    const double p = std::exp(score - oracle.max);
    double square = 0;
    for (int64_t d = 0; d < rows.head_dim; ++d) {
      oracle.out[d] += p * pages[page].v[t][d];
      square += pages[page].v[t][d] * pages[page].v[t][d];
    }
    const double scale = pages[page].v_scale[t] + 1e-12;
    double& widest = step[page * 2 + t / 32];
    widest = std::max(widest, p * scale / 127);
    size[page * 2 + t / 32] += square / rows.head_dim / (scale * scale);
    oracle.sum += p;
    oracle.out_error += p * std::sqrt(square / rows.head_dim) * 2 * oracle.score_error;
  }
  double variance = 0;
  for (size_t i = 0; i < step.size(); ++i) variance += step[i] * step[i] * size[i] / 4;
  oracle.out_error += std::sqrt(variance);
  return oracle;
}

void expect_near(const Rows& rows, const std::vector<Rotated>& pages, const std::string& what) {
  for (int r = 0; r < rows.n; ++r) {
    const Oracle oracle = attend(rows, r, pages);
    EXPECT_NEAR(rows.max[r], oracle.max, oracle.score_error) << what << " row " << r;
    EXPECT_NEAR(rows.sum[r], oracle.sum, oracle.sum * (2.2 * oracle.score_error + 1e-5)) << what;
    double error = 0;
    for (int64_t d = 0; d < rows.head_dim; ++d) {
      const double e = rows.out[r * rows.head_dim + d] - oracle.out[d];
      error += e * e / rows.head_dim;
    }
    EXPECT_LE(std::sqrt(error), oracle.out_error * 1.05 + 1e-6) << what << " row " << r;
  }
}

void expect_same_rows(const Rows& few, const Rows& many, const std::string& what) {
  for (int r = 0; r < few.n; ++r) {
    EXPECT_EQ(few.max[r], many.max[r]) << what;
    EXPECT_EQ(few.sum[r], many.sum[r]) << what;
  }
  EXPECT_EQ(std::memcmp(few.out.data(), many.out.data(), few.out.size() * 4), 0) << what;
}

TEST(RotatedAttend, MatchesDoubleForEveryFormatAndIsNoDifferentForFewRows) {
  for (const int64_t dim : {32, 64, 128, 256}) {
    const Exact first = gaussian_block(dim, 11), second = gaussian_block(dim, 12, 1.5f);
    for (const RotatedFormat format : dim == 64 ? all_formats() : every_width_once()) {
      const Bytes a = encode(Isa::kScalar, format, first, 64, dim);
      const Bytes b = encode(Isa::kScalar, format, second, 64, dim);
      const std::vector<Rotated> pages = {rotate_block(format, a, dim),
                                          rotate_block(format, b, dim)};
      for (const Isa isa : available_isas()) {
        const std::string what = std::string(isa_name(isa)) + " K" + std::to_string(format.k_bits) +
                                 "V" + std::to_string(format.v_bits) + " d" + std::to_string(dim);
        const auto run = [&](int n) {
          Rows rows(n, dim, 2 / std::sqrt(static_cast<float>(dim)));
          rows.mix_ranges();
          rows.prepare(isa);
          rows.attend(isa, format, a);
          rows.attend(isa, format, b);
          return rows;
        };
        const Rows many = run(dim == 64 ? 64 : 11);
        expect_near(many, pages, what);
        for (const int n : {1, 2, 3, 4, 5, 7, 8, 9}) expect_same_rows(run(n), many, what);
      }
    }
  }
}

TEST(RotatedAttend, ARunIsItsBlocksInTurn) {
  constexpr int64_t kDim = 64;
  for (const RotatedFormat format : {RotatedFormat{5, 4}, {8, 2}, {3, 6}}) {
    std::vector<Bytes> blocks;
    for (int i = 0; i < kMaxRun + kBlocksAhead; ++i) {
      blocks.push_back(encode(Isa::kScalar, format, gaussian_block(kDim, 20 + i), 64, kDim));
    }
    for (const Isa isa : available_isas()) {
      for (const int n_rows : {1, 2, 3, 4, 8, 13}) {
        for (int n = 1; n <= kMaxRun; ++n) {
          Rows in_turn(n_rows, kDim, 0.3f), at_once(n_rows, kDim, 0.3f);
          in_turn.prepare(isa);
          at_once.prepare(isa);
          RotatedRun run{.n = n};
          for (int i = 0; i < n + kBlocksAhead; ++i) run.blocks[i] = blocks[i].get();
          for (int i = 0; i < n; ++i) in_turn.attend(isa, format, blocks[i]);
          kernels(isa).attend(format, run, at_once.rows(), at_once.query());
          expect_same_rows(at_once, in_turn, std::string(isa_name(isa)) + std::to_string(n));
        }
      }
    }
  }
}

// Codes at the top of their range with queries at theirs would overflow careless 16-bit sums;
// random bytes are every code. Scores are one rounding of an exact integer on every instruction
// set.
TEST(RotatedAttend, ScoresAreExactIntegersWhateverTheBytes) {
  std::mt19937 random(5);
  for (const RotatedFormat format : all_formats()) {
    for (const int64_t dim : {32, 512}) {
      for (const int query : {127, -127, 0}) {
        Bytes block = aligned(rotated_block_bytes(format, dim));
        auto* bytes = reinterpret_cast<uint8_t*>(block.get());
        for (uint64_t i = 0; i < rotated_block_bytes(format, dim); ++i) {
          bytes[i] = query != 0 ? 0xff : static_cast<uint8_t>(random());
        }
        set_header(block, {.k_base = 0.01f, .v_base = 0.01f, .mean_scale = 0, .unused = {}});
        for (int t = 0; t < 2 * kPageTokens; ++t) bytes[kScalesAt + t] = kScaleByteOfOne;
        const auto run = [&](Isa isa) {
          Rows rows(8, dim, 1);
          for (int i = 0; i < 8 * dim; ++i) {
            const int code = query != 0 ? query : static_cast<int>(random() % 255) - 127;
            rows.code()[i] = static_cast<int8_t>(code);
            rows.code_sum[i / dim] += code;
          }
          std::fill(rows.scale.begin(), rows.scale.end(), 1e-3f);
          rows.attend(isa, format, block);
          return rows;
        };
        const std::mt19937 saved = random;
        const Rows expected = run(Isa::kScalar);
        for (const Isa isa : available_isas()) {
          random = saved;
          const Rows rows = run(isa);
          EXPECT_EQ(rows.max, expected.max) << isa_name(isa) << " K" << int{format.k_bits};
        }
      }
    }
  }
}

// With all scores equal the weights are the V scales' alone, and the output an exact integer sum.
TEST(RotatedAttend, ValuesAreExactIntegersWhateverTheBytes) {
  std::mt19937 random(6);
  for (const RotatedFormat format : all_formats()) {
    for (const bool full : {true, false}) {
      constexpr int64_t kDim = 128;
      Bytes block = aligned(rotated_block_bytes(format, kDim));
      auto* bytes = reinterpret_cast<uint8_t*>(block.get());
      for (uint64_t i = 0; i < rotated_block_bytes(format, kDim); ++i) {
        bytes[i] = full ? 0xff : static_cast<uint8_t>(random());
      }
      set_header(block, {.k_base = 0, .v_base = full ? 0.5f : 515, .mean_scale = 0, .unused = {}});
      for (int t = 0; t < kPageTokens; ++t) {
        bytes[kScalesAt + kPageTokens + t] =
            full ? kScaleByteOfOne : static_cast<uint8_t>(random());
      }
      const auto run = [&](Isa isa) {
        Rows rows(5, kDim, 1);
        rows.prepare(isa);
        rows.attend(isa, format, block);
        return rows;
      };
      const Rows expected = run(Isa::kScalar);
      for (const Isa isa : available_isas()) {
        const Rows rows = run(isa);
        for (size_t i = 0; i < rows.out.size(); ++i) {
          const float size = std::abs(expected.out[i]) + (full ? 0 : 1000);
          EXPECT_NEAR(rows.out[i], expected.out[i], size * 1e-5) << isa_name(isa);
        }
        EXPECT_EQ(rows.sum, std::vector<float>(5, 64.0f));
      }
    }
  }
}

// Keys far from zero, in dimensions of very different sizes, where queries are small: the mean and
// the balance are part of the scores.
TEST(RotatedAttend, MeanAndBalanceEnterTheScores) {
  for (const int64_t dim : {64, 256}) {
    const Exact exact = off_centre_block(dim, 4);
    const std::vector<float> balance = inverse_sizes(dim);
    for (const RotatedFormat format : {RotatedFormat{8, 4}, {5, 3}, {4, 4}, {3, 2}}) {
      const Bytes block = encode(Isa::kScalar, format, exact, 64, dim, balance.data());
      const Rotated page = rotate_block(format, block, dim, balance.data());
      for (const Isa isa : available_isas()) {
        Rows rows(4, dim, 0.3f);
        for (int64_t i = 0; i < 4 * dim; ++i) rows.q[i] *= balance[i % dim];
        rows.prepare(isa, balance.data());
        rows.attend(isa, format, block);
        expect_near(rows, {page}, isa_name(isa));
      }
    }
  }
}

TEST(RotatedAttend, EmptyRangesLeaveTheState) {
  for (const Isa isa : available_isas()) {
    const Bytes block = encode(isa, {5, 4}, gaussian_block(64, 1), 64, 64);
    Rows rows(9, 64, 0.3f);
    rows.prepare(isa);
    rows.attend(isa, {5, 4}, block);
    const Rows& before = rows;
    const std::vector<float> max = before.max, sum = before.sum, out = before.out;
    for (int r = 0; r < 9; ++r) rows.first[r] = rows.last[r] = r == 4 ? 0 : 7 * r;
    rows.last[6] = 64;  // one row of the group does see something
    rows.attend(isa, {5, 4}, block);
    for (int r = 0; r < 9; ++r) {
      const bool same = std::equal(&out[r * 64], &out[r * 64] + 64, &rows.out[r * 64]);
      EXPECT_EQ(same && rows.max[r] == max[r] && rows.sum[r] == sum[r], r != 6) << isa_name(isa);
    }
  }
}

TEST(RotatedAttend, SoftCap) {
  for (const Isa isa : available_isas()) {
    const Bytes block = encode(isa, {6, 4}, gaussian_block(64, 21, 3), 64, 64);
    Rows rows(4, 64, 2);
    rows.softcap = 5;
    rows.prepare(isa);
    rows.attend(isa, {6, 4}, block);
    expect_near(rows, {rotate_block({6, 4}, block, 64)}, isa_name(isa));
  }
}

// Zero tokens, an all-zero page and tokens of the largest float16 keep states finite.
TEST(RotatedAttend, ExtremesStayFinite) {
  for (const Isa isa : available_isas()) {
    for (const float size : {0.0f, 1e-8f, 1e-6f, 65504.0f}) {
      Exact exact = gaussian_block(64, 1);
      for (uint16_t& h : exact) h = f32_to_f16(std::copysign(size, f16_to_f32(h)));
      const Bytes block = encode(isa, {4, 3}, exact, 64, 64);
      Rows rows(3, 64, 4);
      rows.prepare(isa);
      rows.attend(isa, {4, 3}, block);
      rows.unrotate(isa);
      for (const float x : rows.out) EXPECT_TRUE(std::isfinite(x)) << isa_name(isa) << " " << size;
      for (const float x : rows.sum) EXPECT_TRUE(x >= 0.99f && x <= 64.0f) << isa_name(isa);
    }
  }
}

// End to end, from the original K and V: K8V8 attention is within 2 % of exact attention.
TEST(RotatedAttend, EightBitsAreCloseToTheOriginal) {
  constexpr int64_t kDim = 64;
  const Exact exact = gaussian_block(kDim, 31);
  for (const Isa isa : available_isas()) {
    Rows rows(4, kDim, 0.2f);
    rows.prepare(isa);
    rows.attend(isa, {8, 8}, encode(isa, {8, 8}, exact, 64, kDim));
    rows.unrotate(isa);
    double error = 0, size = 0;
    for (int r = 0; r < rows.n; ++r) {
      std::vector<double> out(kDim, 0);
      double sum = 0;
      for (int t = 0; t < kPageTokens; ++t) {
        double score = 0;
        for (int64_t d = 0; d < kDim; ++d) {
          score += double{rows.q[r * kDim + d]} * f16_to_f32(exact[key_at(kDim, t, d)]);
        }
        sum += std::exp(score);
        for (int64_t d = 0; d < kDim; ++d) {
          out[d] += std::exp(score) * f16_to_f32(exact[value_at(kDim, t, d)]);
        }
      }
      for (int64_t d = 0; d < kDim; ++d) {
        const double expected = out[d] / sum, e = rows.out[r * kDim + d] / rows.sum[r] - expected;
        error += e * e, size += expected * expected;
      }
    }
    EXPECT_LT(std::sqrt(error / size), 0.02) << isa_name(isa);
  }
}

}  // namespace
}  // namespace tierkv
