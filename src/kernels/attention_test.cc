#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/attention_oracle.h"
#include "kernels/isa.h"

namespace tierkv {
namespace {

using namespace attention_oracle;

constexpr uint16_t kPoison = 0x7e00;  // float16 NaN

const AttentionKernels& attention_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return kAttentionAvx2;
  if (isa == Isa::kAvx512) return kAttentionAvx512;
#endif
  (void)isa;
  return kAttentionScalar;
}

// States of a problem's rows, and the kernel calls on them.
class Runner {
 public:
  Runner(Isa isa, const Problem& problem)
      : kernels_(attention_for(isa)),
        problem_(problem),
        max(problem.n_rows),
        sum(problem.n_rows),
        out(problem.n_rows * problem.head_dim),
        scratch_(static_cast<std::byte*>(
            ::operator new (attention_scratch_bytes(problem.head_dim), std::align_val_t{64}))) {
    kernels_.init(rows(0, 0, problem.n_rows));
  }
  ~Runner() { ::operator delete (scratch_, std::align_val_t{64}); }
  Runner(const Runner&) = delete;

  AttentionRows rows(int page, int row, int n) {
    const int64_t at = row * problem_.head_dim;
    return {.n_rows = n,
            .head_dim = problem_.head_dim,
            .q = problem_.q.data() + at,
            .first = problem_.first[page].data() + row,
            .last = problem_.last[page].data() + row,
            .softcap = problem_.softcap,
            .max = max.data() + row,
            .sum = sum.data() + row,
            .out = out.data() + at};
  }
  // Attends to a page with all rows, `rows_per_call` at a time.
  void attend(int page, int rows_per_call = kMaxAttentionRows) {
    attend_block(problem_.blocks[page].data(), page, rows_per_call);
  }
  void attend_block(const uint16_t* block, int page, int rows_per_call) {
    for (int row = 0; row < problem_.n_rows; row += rows_per_call) {
      const int n = std::min(rows_per_call, problem_.n_rows - row);
      kernels_.attend_exact(block, rows(page, row, n), scratch_);
    }
  }
  void attend_all(int rows_per_call = kMaxAttentionRows) {
    for (int page = 0; page < problem_.n_pages; ++page) attend(page, rows_per_call);
  }
  void merge_into(Runner& into) { kernels_.merge(all(), into.all()); }
  void finish() { kernels_.finish(all()); }
  AttentionRows all() { return rows(0, 0, problem_.n_rows); }

  std::string bits() const {
    std::string bytes;
    for (const auto* v : {&max, &sum, &out}) {
      bytes.append(reinterpret_cast<const char*>(v->data()), v->size() * sizeof(float));
    }
    return bytes;
  }

 private:
  const AttentionKernels& kernels_;
  const Problem& problem_;

 public:
  std::vector<float> max, sum, out;

 private:
  std::byte* scratch_;
};

void expect_exact(const Problem& p, const std::vector<float>& out) {
  for (int r = 0; r < p.n_rows; ++r) {
    const Exact exact = exact_row(p, r);
    for (int64_t d = 0; d < p.head_dim; ++d) {
      const double error = std::abs(out[r * p.head_dim + d] - exact.out[d]);
      // Written so that NaN fails.
      ASSERT_TRUE(error <= exact.bound[d])
          << "row " << r << " of " << p.n_rows << ", dimension " << d << " of " << p.head_dim
          << ": " << out[r * p.head_dim + d] << " for " << exact.out[d] << ", bound "
          << exact.bound[d];
    }
  }
}

class AttentionTest : public testing::TestWithParam<Isa> {
 protected:
  void expect_finished_exact(const Problem& p) {
    Runner runner(GetParam(), p);
    runner.attend_all();
    runner.finish();
    expect_exact(p, runner.out);
  }
};

TEST_P(AttentionTest, EveryHeadDimAgreesWithDouble) {
  for (const int64_t dim : {16, 48, 64, 80, 96, 128, 256, 512}) {
    for (const int n_rows : {1, 4, 20}) {
      Problem p = random_problem(n_rows, dim, 3, 1);
      expect_finished_exact(p);
      randomise_ranges(p, 2);
      expect_finished_exact(p);
    }
  }
}

TEST_P(AttentionTest, EveryRowCountAgreesWithDouble) {
  for (int n_rows = 1; n_rows <= 20; ++n_rows) {
    Problem p = random_problem(n_rows, 32, 2, n_rows);
    randomise_ranges(p, n_rows);
    expect_finished_exact(p);
  }
}

TEST_P(AttentionTest, CausalChunkAgreesWithDouble) {
  Problem p = random_problem(256, 64, 4, 5);
  make_causal(p, 3, 100);
  expect_finished_exact(p);
}

TEST_P(AttentionTest, SoftcapAgreesWithDouble) {
  for (const float cap : {0.5f, 5.0f, 50.0f}) {
    Problem p = random_problem(12, 64, 2, 6, 0.5f);
    p.softcap = cap;
    expect_finished_exact(p);
  }
}

TEST_P(AttentionTest, ScoresOfTenThousandStayFinite) {
  Problem p = random_problem(12, 64, 3, 7, 500.0f);
  randomise_ranges(p, 8);
  expect_finished_exact(p);
  for (float& x : p.q) x = 1e4f;  // all of one sign: scores far below and above those before
  expect_finished_exact(p);
}

TEST_P(AttentionTest, BitsDependOnTheRowOnly) {
  for (const float cap : {0.0f, 20.0f}) {
    Problem p = random_problem(200, 64, 3, 9);
    p.softcap = cap;
    randomise_ranges(p, 10);
    Runner together(GetParam(), p);
    together.attend_all();
    for (const int rows_per_call : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 64, 191}) {
      Runner apart(GetParam(), p);
      apart.attend_all(rows_per_call);
      EXPECT_TRUE(together.bits() == apart.bits()) << rows_per_call << " rows a call";
    }
  }
}

TEST_P(AttentionTest, BitsOfACausalChunkDependOnTheRowOnly) {
  for (const int64_t dim : {80, 128}) {
    Problem p = random_problem(256, dim, 2, 11);
    make_causal(p, 4, 20);
    Runner together(GetParam(), p), apart(GetParam(), p);
    together.attend_all();
    apart.attend_all(1);
    EXPECT_TRUE(together.bits() == apart.bits());
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnWhereTheBlockLiesNorOnTheHint) {
  Problem p = random_problem(20, 64, 1, 12);
  Runner expected(GetParam(), p);
  expected.attend(0);
  for (const int offset : {1, 7, 16, 31}) {
    std::vector<uint16_t> moved(offset, kPoison);
    moved.insert(moved.end(), p.blocks[0].begin(), p.blocks[0].end());
    for (const int rows_per_call : {3, 20}) {
      Runner runner(GetParam(), p);
      runner.attend_block(moved.data() + offset, 0, rows_per_call);
      EXPECT_TRUE(expected.bits() == runner.bits()) << offset;
    }
  }
  Runner hinted(GetParam(), p);
  AttentionRows rows = hinted.rows(0, 0, 4);
  rows.next_block = p.blocks[0].data() + 64;
  std::vector<std::byte> unused(attention_scratch_bytes(64) + 64);
  attention_for(GetParam()).attend_exact(p.blocks[0].data(), rows, unused.data());
  EXPECT_TRUE(std::equal(hinted.out.begin(), hinted.out.begin() + 4 * 64, expected.out.begin()));
}

TEST_P(AttentionTest, UnseenTokensMayHoldAnything) {
  for (const int n_rows : {1, 5, 60}) {
    Problem p = random_problem(n_rows, 64, 1, 13);
    make_causal(p, 2, 10);
    Runner expected(GetParam(), p);
    expected.attend_all(1);
    // What the last row of all doesn't see is poisoned for all; what each row doesn't, for that
    // row.
    for (int r = 0; r < n_rows; ++r) {
      Problem poisoned = p;
      for (int slot = p.last[0][r]; slot < kPageTokens; ++slot) {
        for (int64_t d = 0; d < 64; ++d) {
          poisoned.blocks[0][k_index(64, slot, d)] = kPoison;
          poisoned.blocks[0][v_index(64, slot, d)] = slot % 2 ? kPoison : 0x7c00;
        }
      }
      Runner runner(GetParam(), poisoned);
      runner.attend_all();
      EXPECT_EQ(runner.max[r], expected.max[r]);
      EXPECT_EQ(runner.sum[r], expected.sum[r]);
      for (int64_t i = r * 64; i < (r + 1) * 64; ++i) ASSERT_EQ(runner.out[i], expected.out[i]);
    }
  }
}

TEST_P(AttentionTest, AnEmptyRangeLeavesTheState) {
  for (const int n_rows : {3, 30}) {
    Problem p = random_problem(n_rows, 64, 2, 14);
    p.first[1].assign(n_rows, 17);
    p.last[1].assign(n_rows, 17);
    Runner runner(GetParam(), p);
    runner.attend(0);
    const std::string before = runner.bits();
    runner.attend(1);
    EXPECT_TRUE(before == runner.bits());
  }
}

TEST_P(AttentionTest, RowsThatSawNothingBecomeZero) {
  Problem p = random_problem(3, 80, 1, 15);
  p.last[0][1] = 0;
  Runner runner(GetParam(), p);
  EXPECT_THAT(runner.max, testing::Each(kNoScore));
  EXPECT_THAT(runner.sum, testing::Each(0.0f));
  EXPECT_THAT(runner.out, testing::Each(0.0f));
  runner.attend(0);
  runner.finish();
  expect_exact(p, runner.out);  // its sum over no keys is zero, with a bound of zero
}

TEST_P(AttentionTest, MergedStatesAgreeWithDouble) {
  for (const float q_scale : {0.25f, 100.0f}) {
    Problem p = random_problem(9, 96, 4, 16, q_scale);
    randomise_ranges(p, 17);
    Runner one(GetParam(), p), two(GetParam(), p);
    one.attend(0), one.attend(2);
    two.attend(1), two.attend(3);
    two.merge_into(one);
    one.finish();
    expect_exact(p, one.out);
  }
}

TEST_P(AttentionTest, MergeWithAnEmptyStateIsExact) {
  Problem p = random_problem(5, 64, 1, 18);
  Runner seen(GetParam(), p), empty(GetParam(), p), target(GetParam(), p);
  seen.attend(0);
  seen.out[3] = -0.0f;
  const std::string before = seen.bits();
  empty.merge_into(seen);
  EXPECT_TRUE(before == seen.bits());
  seen.merge_into(target);
  EXPECT_TRUE(before == target.bits());
}

// Token 0 scores 0 and has value 0; token t scores x_t <= 0 and has value 1 in dimension t: so the
// state's output is exp(x_t), or with a cap exp(cap * tanh(x_t / cap)).
std::vector<float> weights_of(Isa isa, const std::vector<float>& x, float softcap) {
  Problem p = random_problem(1, 64, 1, 0);
  p.softcap = softcap;
  std::fill(p.blocks[0].begin(), p.blocks[0].end(), uint16_t{0});
  for (int t = 1; t < kPageTokens; ++t) {
    p.q[t] = x[t];
    p.blocks[0][k_index(64, t, t)] = p.blocks[0][v_index(64, t, t)] = f32_to_f16(1.0f);
  }
  Runner runner(isa, p);
  runner.attend(0);
  return runner.out;
}

TEST_P(AttentionTest, ExpKeepsItsBound) {
  std::mt19937 random(19);
  std::uniform_real_distribution<float> wide(-86.9f, 0.0f), log2_magnitude(-30.0f, 0.0f);
  double worst = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> x(kPageTokens);
    for (float& value : x) value = round % 2 ? wide(random) : -std::exp2(log2_magnitude(random));
    const std::vector<float> weights = weights_of(GetParam(), x, 0);
    for (int t = 1; t < kPageTokens; ++t) {
      const double exact = std::exp(static_cast<double>(x[t]));
      worst = std::max(worst, std::abs(weights[t] / exact - 1));
    }
  }
  EXPECT_LE(worst, kExpError);
  RecordProperty("worst", std::to_string(worst * 1e7) + "e-7");
}

TEST_P(AttentionTest, ExpOfFarBelowIsExactlyZeroAndOfZeroOne) {
  std::vector<float> x(kPageTokens, -87.01f);
  x[1] = 0, x[2] = -1e4f, x[3] = -1e30f, x[4] = -std::numeric_limits<float>::max();
  const std::vector<float> weights = weights_of(GetParam(), x, 0);
  EXPECT_EQ(weights[1], 1.0f);
  for (int t = 2; t < kPageTokens; ++t) EXPECT_EQ(weights[t], 0.0f);
}

TEST_P(AttentionTest, TanhKeepsItsBound) {
  std::mt19937 random(20);
  std::uniform_real_distribution<float> log2_magnitude(-20.0f, 6.0f);
  double worst = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<float> x(kPageTokens);
    for (float& value : x) value = -16 * std::exp2(log2_magnitude(random));
    const std::vector<float> weights = weights_of(GetParam(), x, 16.0f);
    for (int t = 1; t < kPageTokens; ++t) {
      const double capped = 16 * std::tanh(static_cast<double>(x[t]) / 16);
      // The cap is a power of two: only tanh and exp round.
      const double allowed = kExpError + kUnit + std::abs(capped) * kTanhError;
      worst = std::max(worst, std::abs(weights[t] / std::exp(capped) - 1) / allowed);
    }
  }
  EXPECT_LE(worst, 1);
}

TEST_P(AttentionTest, StoreTokenWritesTheDocumentedLayout) {
  std::mt19937 random(21);
  for (const int64_t dim : {16, 80, 128}) {
    std::vector<uint16_t> block(exact_block_elements(dim), kPoison), expected = block;
    for (const int slot : {0, 15, 16, 37, 63}) {
      std::vector<float> k(dim), v(dim);
      for (auto* row : {&k, &v}) {
        for (float& x : *row) {
          const float sign = random() % 2 ? 1.0f : -1.0f;
          x = sign * std::exp2(static_cast<float>(random() % 4600) / 100 - 28);  // past both ends
        }
      }
      k[0] = -0.0f, k[1] = 1e6f, k[2] = 65519.0f, k[3] = 1 + 0x1p-11f, k[4] = 1 + 0x3p-11f;
      k[5] = -std::numeric_limits<float>::infinity(), k[6] = 0x1p-25f, k[7] = 0x1.8p-24f;
      attention_for(GetParam()).store_token(k.data(), v.data(), dim, slot, block.data());
      for (int64_t d = 0; d < dim; ++d) {
        expected[k_index(dim, slot, d)] = f32_to_f16(k[d]);
        expected[v_index(dim, slot, d)] = f32_to_f16(v[d]);
      }
    }
    EXPECT_EQ(block, expected);
  }
}

TEST_P(AttentionTest, StoreTokenKeepsNaN) {
  std::vector<float> nan(16, std::numeric_limits<float>::quiet_NaN());
  std::vector<uint16_t> block(exact_block_elements(16), 0);
  attention_for(GetParam()).store_token(nan.data(), nan.data(), 16, 5, block.data());
  EXPECT_TRUE(std::isnan(f16_to_f32(block[k_index(16, 5, 9)])));
  EXPECT_TRUE(std::isnan(f16_to_f32(block[v_index(16, 5, 9)])));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttentionTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return isa_name(info.param); });

}  // namespace
}  // namespace tierkv
