#include "kernels/attention_bf16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernels/attention_oracle.h"
#include "kernels/kernels.h"

namespace tierkv {
namespace {

using namespace attention_oracle;

constexpr double kBf16Unit = 0x1p-8;  // relative error of one rounding
constexpr uint16_t kNaN = 0x7e00;

struct Free {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};

class Bf16Attention : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_multiplies_bf16()) GTEST_SKIP() << "this CPU has no AVX512_BF16";
    kernels_ = kernels_for(Isa::kAvx512).bf16_attention;
    ASSERT_NE(kernels_, nullptr);
  }

  // The finished output of a problem, its rows given `rows_per_call` at a time.
  std::vector<float> output(const Problem& p, int rows_per_call = kMaxAttentionRows) {
    std::vector<float> max(p.n_rows), sum(p.n_rows), out(p.n_rows * p.head_dim);
    std::vector<uint16_t> q(p.q.size());
    const std::unique_ptr<std::byte, Free> scratch(static_cast<std::byte*>(
        ::operator new (attention_scratch_bytes(p.head_dim), std::align_val_t{64})));
    const auto rows = [&](int page, int row, int n) {
      const int64_t at = row * p.head_dim;
      AttentionRows r;
      r.n_rows = n, r.head_dim = p.head_dim, r.softcap = p.softcap, r.q = p.q.data() + at;
      r.first = p.first[page].data() + row, r.last = p.last[page].data() + row;
      r.max = max.data() + row, r.sum = sum.data() + row, r.out = out.data() + at;
      return r;
    };
    const AttentionRows all = rows(0, 0, p.n_rows);
    kAttentionScalar.init(all);
    kernels_->prepare(all, q.data());
    for (int page = 0; page < p.n_pages; ++page) {
      for (int row = 0; row < p.n_rows; row += rows_per_call) {
        const int n = std::min(rows_per_call, p.n_rows - row);
        kernels_->attend(p.blocks[page].data(), rows(page, row, n), q.data() + row * p.head_dim,
                         scratch.get());
      }
    }
    kAttentionScalar.finish(all);
    return out;
  }

  const Bf16AttentionKernels* kernels_ = nullptr;
};

// How far weights may be off: a score is the dot product of two rounded vectors, at most |q| |k|
// times twice the unit off, and enters numerator and denominator; a weight is rounded itself.
double weight_error(const Problem& p, int r) {
  double longest = 0, q = 0;
  for (int64_t d = 0; d < p.head_dim; ++d) q += std::pow(p.q[r * p.head_dim + d], 2);
  for (const auto& block : p.blocks) {
    for (int slot = 0; slot < kPageTokens; ++slot) {
      double k = 0;
      for (int64_t d = 0; d < p.head_dim; ++d) {
        k += std::pow(f16_to_f32(block[k_index(p.head_dim, slot, d)]), 2);
      }
      longest = std::max(longest, k);
    }
  }
  return 2 * 2.1 * kBf16Unit * std::sqrt(q * longest) + 2 * kBf16Unit;
}

void expect_close(const Problem& p, const std::vector<float>& out) {
  double squares = 0, error_squares = 0;
  for (int r = 0; r < p.n_rows; ++r) {
    const Exact exact = exact_row(p, r);
    const Exact weighted = [&] {  // sum of weight * |v|, from the same oracle
      Problem positive = p;
      for (auto& block : positive.blocks) {
        for (int64_t i = kPageTokens * p.head_dim; i < exact_block_elements(p.head_dim); ++i) {
          block[i] &= 0x7fff;
        }
      }
      return exact_row(positive, r);
    }();
    const double relative = std::expm1(weight_error(p, r)) + kBf16Unit;
    for (int64_t d = 0; d < p.head_dim; ++d) {
      const double error = std::abs(out[r * p.head_dim + d] - exact.out[d]);
      ASSERT_TRUE(error <= weighted.out[d] * relative + 1e-37)  // so that NaN fails
          << "row " << r << ", dimension " << d << ": " << out[r * p.head_dim + d] << " for "
          << exact.out[d];
      squares += exact.out[d] * exact.out[d];
      error_squares += error * error;
    }
  }
  // Roundings are independent, so all in all the error is far below its worst case.
  EXPECT_LE(std::sqrt(error_squares), 0.01 * std::sqrt(squares));
}

TEST_F(Bf16Attention, EveryHeadDimAgreesWithDouble) {
  for (const int64_t dim : {16, 32, 48, 64, 80, 96, 128, 256, 512}) {
    for (const int n_rows : {1, 4, 20}) {
      Problem p = random_problem(n_rows, dim, 3, 1);
      expect_close(p, output(p));
      randomise_ranges(p, 2);
      expect_close(p, output(p));
    }
  }
}

TEST_F(Bf16Attention, CausalChunkAgreesWithDouble) {
  Problem p = random_problem(200, 64, 4, 5);
  make_causal(p, 3, 100);
  expect_close(p, output(p));
}

TEST_F(Bf16Attention, SoftcapAgreesWithDouble) {
  for (const float cap : {0.5f, 5.0f, 50.0f}) {
    Problem p = random_problem(12, 64, 2, 6, 0.5f);
    p.softcap = cap;
    expect_close(p, output(p));
  }
}

// One dimension is large in keys and queries, as in real models: without the rotation its rounding
// would be most of the error, here 0.2.
TEST_F(Bf16Attention, LargeKeyDimensionsCostNoAccuracy) {
  Problem p = random_problem(24, 64, 2, 8);
  for (int r = 0; r < p.n_rows; ++r) p.q[r * 64 + 7] = 2;
  for (auto& block : p.blocks) {
    for (int slot = 0; slot < kPageTokens; ++slot) {
      uint16_t& k = block[k_index(64, slot, 7)];
      k = f32_to_f16(100 + f16_to_f32(k));
    }
  }
  double squares = 0, error_squares = 0;
  const std::vector<float> out = output(p);
  for (int r = 0; r < p.n_rows; ++r) {
    const Exact exact = exact_row(p, r);
    for (int64_t d = 0; d < 64; ++d) {
      squares += exact.out[d] * exact.out[d];
      error_squares += std::pow(out[r * 64 + d] - exact.out[d], 2);
    }
  }
  EXPECT_LE(std::sqrt(error_squares), 0.05 * std::sqrt(squares));
}

TEST_F(Bf16Attention, TheResultDependsOnTheRowOnly) {
  for (const int64_t dim : {64, 80}) {
    Problem p = random_problem(200, dim, 3, 9);
    randomise_ranges(p, 10);
    const std::vector<float> together = output(p);
    for (const int rows_per_call : {1, 2, 5, 6, 7, 64, 191}) {
      EXPECT_EQ(together, output(p, rows_per_call)) << rows_per_call << " rows a call";
    }
  }
}

TEST_F(Bf16Attention, TokensThatNoRowSeesMayHoldAnything) {
  Problem p = random_problem(12, 64, 1, 11);
  for (int r = 0; r < p.n_rows; ++r) p.first[0][r] = 5, p.last[0][r] = 30 + r % 2;
  const std::vector<float> clean = output(p);
  for (int slot = 0; slot < kPageTokens; ++slot) {
    if (slot >= 5 && slot < 31) continue;
    for (int64_t d = 0; d < 64; ++d) {
      p.blocks[0][k_index(64, slot, d)] = p.blocks[0][v_index(64, slot, d)] = kNaN;
    }
  }
  EXPECT_EQ(clean, output(p));
}

TEST_F(Bf16Attention, RowsThatSawNothingBecomeZero) {
  Problem p = random_problem(7, 64, 2, 12);
  for (int page = 0; page < 2; ++page) p.first[page][3] = p.last[page][3] = 9;
  const std::vector<float> out = output(p);
  for (int64_t d = 0; d < 64; ++d) EXPECT_EQ(out[3 * 64 + d], 0);
  expect_close(p, out);
}

}  // namespace
}  // namespace tierkv
