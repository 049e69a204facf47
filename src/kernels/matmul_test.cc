#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/matmul_layout.h"
#include "kernels/matmul_testing.h"

namespace tierkv {
namespace {

constexpr double kUnit = 0x1p-24;  // of float32 rounding
constexpr int64_t kGap = 5;        // unwritten floats between the output's rows
const float kUntouched = -12345.5f;

// A product with everything it needs, and its result by `kernels`.
struct Product {
  TestMatrix weights;
  std::vector<float> x;
  int64_t n_tokens;
  TestBuffer quantized, scratch;
  std::vector<float> out;

  Product(TensorType type, int64_t n_rows, int64_t n_cols, int64_t tokens)
      : weights(type, n_rows, n_cols, 7),
        x(random_floats(tokens * n_cols, 11)),
        n_tokens(tokens),
        quantized(quantized_bytes(tokens, n_cols)),
        scratch(matmul_scratch_bytes(n_cols)) {}

  const PackedMatrix& w() const { return weights.matrix; }
  int64_t ld() const { return w().n_rows + kGap; }
  float at(int64_t token, int64_t row) const {
    return out[static_cast<size_t>(token * ld() + row)];
  }
  const InputBlock& input(int64_t token, int64_t block) {
    const InputBlock* blocks = reinterpret_cast<const InputBlock*>(quantized.data());
    return blocks[token * ((w().n_cols + 31) / 32) + block];
  }

  void start(const MatmulKernels& kernels) {
    kernels.quantize(x.data(), n_tokens, w().n_cols, 0, n_tokens, quantized.data());
    out.assign(static_cast<size_t>(n_tokens * ld()), kUntouched);
  }
  void part(const MatmulKernels& kernels, int64_t token_begin, int64_t token_end,
            int64_t panel_begin, int64_t panel_end) {
    const MatmulInput in = {x.data(), quantized.data(), n_tokens, w().n_cols};
    kernels.matmul(w(), in, token_begin, token_end, panel_begin, panel_end, out.data(), ld(),
                   scratch.data(), w().data);
  }
  void run(const MatmulKernels& kernels) {
    start(kernels);
    part(kernels, 0, n_tokens, 0, w().n_panels());
  }
};

struct Case {
  Isa isa;
  TensorTypeInfo type;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Isa isa : available_isas()) {
    for (const TensorTypeInfo& type : kTensorTypes) cases.push_back({isa, type});
  }
  return cases;
}

class MatmulTest : public testing::TestWithParam<Case> {
 protected:
  TensorType type() const { return GetParam().type.type; }
  const MatmulKernels& kernels() const { return *kernels_for(GetParam().isa).matmul; }
  int64_t columns(int64_t blocks) const {
    return blocks * std::max<int64_t>(GetParam().type.block, kBlockColumns);
  }
};

// What the kernel computes, without rounding: weights times quantised inputs. `magnitude` bounds
// the sum of the absolute values of what it adds up.
struct Exact {
  double value = 0, magnitude = 0, float_value = 0, step = 0;
};

Exact exact_output(Product& p, const std::vector<float>& weight, int64_t token) {
  const bool quantized = uses_quantized_input(p.w().type);
  const double minimum = packed_format(p.w().type).has_min ? kMaxTestScale * 63.0 : 0;
  Exact e;
  for (int64_t c = 0; c < p.w().n_cols; ++c) {
    const double w = weight[static_cast<size_t>(c)];
    const double x = p.x[static_cast<size_t>(token * p.w().n_cols + c)];
    const InputBlock& block = p.input(token, c / kBlockColumns);
    const double in = quantized ? static_cast<double>(block.d) * block.q[c % kBlockColumns] : x;
    e.value += w * in;
    e.float_value += w * x;
    e.magnitude += (std::abs(w) + 2 * minimum) * std::abs(in);
    if (quantized) e.step += std::abs(w) * block.d * (0.5 + 128 * 4 * kUnit);
  }
  return e;
}

// Roundings on the way to one output: two for each multiply-add (the scalar kernels don't fuse),
// and a few for the product of scales.
double rounding_count(TensorType type, int64_t n_cols) {
  if (!uses_quantized_input(type)) return 2.0 * (64 + n_cols / 64 + 2);
  const PackedFormat format = packed_format(type);
  const int per_block = (format.sub_columns == 16 ? 2 : 1) + (format.has_min ? 1 : 0);
  return 2.0 * static_cast<double>(n_cols / kBlockColumns * per_block) + 6;
}

void expect_accurate(Product& p) {
  std::vector<float> weight(static_cast<size_t>(p.w().n_cols));
  const double roundings = rounding_count(p.w().type, p.w().n_cols);
  for (int64_t row = 0; row < p.w().n_rows; ++row) {
    unpack_row(p.w(), row, weight.data());
    for (int64_t token = 0; token < p.n_tokens; ++token) {
      const Exact e = exact_output(p, weight, token);
      const double bound = roundings * kUnit * e.magnitude;
      ASSERT_NEAR(p.at(token, row), e.value, bound) << "row " << row << " token " << token;
      ASSERT_NEAR(p.at(token, row), e.float_value, bound + e.step)
          << "row " << row << " token " << token;
    }
  }
}

void expect_gaps_untouched(const Product& p) {
  for (int64_t token = 0; token < p.n_tokens; ++token) {
    for (int64_t i = p.w().n_rows; i < p.ld(); ++i) ASSERT_EQ(p.at(token, i), kUntouched);
  }
}

TEST_P(MatmulTest, EqualsExactSumWithinRounding) {
  for (const int64_t n_rows : {1, 15, 16, 17, 33, 64}) {
    for (const int64_t n_tokens : {1, 2, 3, 5, 6, 13}) {
      Product p(type(), n_rows, columns(n_rows == 33 ? 4 : 1 + n_tokens % 3), n_tokens);
      SCOPED_TRACE(std::to_string(n_rows) + " x " + std::to_string(p.w().n_cols) + ", tokens " +
                   std::to_string(n_tokens));
      p.run(kernels());
      expect_accurate(p);
      expect_gaps_untouched(p);
    }
  }
}

TEST_P(MatmulTest, LongRows) {
  Product p(type(), 18, 1024, 7);
  p.run(kernels());
  expect_accurate(p);
}

// However the work is split, each output is the same to the bit.
TEST_P(MatmulTest, SplitsChangeNothing) {
  Product p(type(), 77, columns(3), 13);
  p.run(kernels());
  const std::vector<float> whole = p.out;
  for (const int64_t token_step : {1, 2, 4, 5, 6, 7, 12}) {
    for (const int64_t panel_step : {1, 2, 3}) {
      p.start(kernels());
      for (int64_t t = 0; t < p.n_tokens; t += token_step) {
        for (int64_t i = 0; i < p.w().n_panels(); i += panel_step) {
          p.part(kernels(), t, std::min(t + token_step, p.n_tokens), i,
                 std::min(i + panel_step, p.w().n_panels()));
        }
      }
      ASSERT_EQ(std::memcmp(whole.data(), p.out.data(), whole.size() * sizeof(float)), 0)
          << "tokens by " << token_step << ", panels by " << panel_step;
    }
  }
}

// More tokens than a pass over the inputs holds.
TEST_P(MatmulTest, ManyTokensEqualOneAtATime) {
  Product p(type(), 17, 2048, 180);
  p.run(kernels());
  const std::vector<float> whole = p.out;
  p.start(kernels());
  for (int64_t t = 0; t < p.n_tokens; ++t) p.part(kernels(), t, t + 1, 0, p.w().n_panels());
  ASSERT_EQ(std::memcmp(whole.data(), p.out.data(), whole.size() * sizeof(float)), 0);
}

TEST_P(MatmulTest, NotANumberStaysInItsToken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, -nan, std::numeric_limits<float>::infinity()}) {
    Product p(type(), 17, columns(2), 8);
    p.run(kernels());
    const std::vector<float> good = p.out;
    p.x[static_cast<size_t>(3 * p.w().n_cols + 9)] = bad;
    p.run(kernels());
    for (int64_t row = 0; row < p.w().n_rows; ++row) {
      ASSERT_FALSE(std::isfinite(p.at(3, row)));
      for (const int64_t token : {2, 4}) {
        ASSERT_EQ(p.at(token, row), good[static_cast<size_t>(token * p.ld() + row)]);
      }
    }
  }
}

// Whatever bytes a file has, nothing crashes and nothing is written out of place.
TEST_P(MatmulTest, SurvivesAnyWeights) {
  Product p(type(), 17, columns(2), 8);
  std::vector<std::byte> rows(p.weights.file_rows.size(), std::byte{0xff});
  TestBuffer packed(packed_matrix_bytes(type(), 16, p.w().n_cols));
  pack_panel(type(), rows.data(), 16, p.w().n_cols, packed.data());
  p.weights.matrix.n_rows = 16;
  p.weights.matrix.data = packed.data();
  p.run(kernels());
  expect_gaps_untouched(p);
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTest, testing::ValuesIn(all_cases()), [](const auto& info) {
  return std::string(isa_name(info.param.isa)) + "_" + info.param.type.name;
});

class FloatMatmulTest : public testing::TestWithParam<Isa> {};

TEST_P(FloatMatmulTest, AnyNumberOfColumns) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    for (const int64_t n_cols : {1, 3, 63, 65, 100}) {
      Product p(type, 17, n_cols, 3);
      p.run(*kernels_for(GetParam()).matmul);
      expect_accurate(p);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, FloatMatmulTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

class QuantizeTest : public testing::TestWithParam<Isa> {
 protected:
  // Four blocks at once, two alone and a partial one.
  static constexpr int64_t kTokens = 5, kColumns = 203, kBlocks = 7;
  std::vector<InputBlock> quantize(const std::vector<float>& x) const {
    std::vector<InputBlock> out(kTokens * kBlocks);
    EXPECT_EQ(quantized_bytes(kTokens, kColumns), out.size() * sizeof(InputBlock));
    std::byte* bytes = reinterpret_cast<std::byte*>(out.data());
    const MatmulKernels& kernels = *kernels_for(GetParam()).matmul;
    kernels.quantize(x.data(), kTokens, kColumns, 0, 2, bytes);
    kernels.quantize(x.data(), kTokens, kColumns, 2, kTokens, bytes);
    return out;
  }
};

TEST_P(QuantizeTest, IsTheNearestCode) {
  const std::vector<float> x = random_floats(kTokens * kColumns, 3);
  const std::vector<InputBlock> blocks = quantize(x);
  for (int64_t i = 0; i < kTokens * kColumns; ++i) {
    const InputBlock& block =
        blocks[static_cast<size_t>(i / kColumns * kBlocks + i % kColumns / 32)];
    const int q = block.q[i % kColumns % 32];
    ASSERT_LE(std::abs(q), 127);
    const double error = std::abs(static_cast<double>(block.d) * q - x[static_cast<size_t>(i)]);
    ASSERT_LE(error, block.d * (0.5 + 128 * 4 * kUnit));
  }
  for (const InputBlock& block : blocks) {
    int sum = 0, half = 0, largest = 0;
    for (int j = 0; j < 32; ++j) {
      sum += block.q[j];
      half += j < 16 ? block.q[j] : 0;
      largest = std::max(largest, std::abs(block.q[j]));
    }
    EXPECT_EQ(block.neg_sum, -sum);
    EXPECT_EQ(block.neg_half, -half);
    EXPECT_EQ(block.d_sum, block.d * static_cast<float>(sum));
    EXPECT_EQ(largest, 127);  // the whole range is used
  }
}

TEST_P(QuantizeTest, SameBytesOnEveryIsa) {
  std::vector<float> x = random_floats(kTokens * kColumns, 5);
  x[3] = std::numeric_limits<float>::infinity();
  x[40] = std::numeric_limits<float>::quiet_NaN();
  std::fill(x.begin() + kColumns, x.begin() + kColumns + 32, 0.0f);
  std::fill(x.begin() + kColumns + 32, x.begin() + kColumns + 64, 1e-42f);
  for (int i = 0; i < 32; ++i)
    x[static_cast<size_t>(2 * kColumns + i)] = static_cast<float>(i) - 0.5f;
  x[2 * kColumns] = 127;  // scale 1: halves round to even
  const std::vector<InputBlock> blocks = quantize(x);
  const MatmulKernels& reference = *kernels_for(Isa::kScalar).matmul;
  std::vector<InputBlock> expected(blocks.size());
  reference.quantize(x.data(), kTokens, kColumns, 0, kTokens,
                     reinterpret_cast<std::byte*>(expected.data()));
  EXPECT_EQ(std::memcmp(blocks.data(), expected.data(), blocks.size() * sizeof(InputBlock)), 0);
  EXPECT_TRUE(std::isnan(blocks[0].d) && std::isnan(blocks[1].d));
  EXPECT_EQ(blocks[kBlocks].d, 0);
  EXPECT_EQ(blocks[2 * kBlocks].q[2], 2);
  EXPECT_EQ(blocks[2 * kBlocks].q[3], 2);
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantizeTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

#if defined(__x86_64__) && defined(__linux__)
bool cpu_lists(const std::vector<std::string>& words, std::initializer_list<const char*> flags) {
  return std::all_of(flags.begin(), flags.end(), [&](const char* flag) {
    return std::find(words.begin(), words.end(), flag) != words.end();
  });
}

// The tests above walk available_isas(): one that is missing there would pass them all.
TEST(IsaTest, NoneOfThisCpuIsSkipped) {
  std::ifstream file("/proc/cpuinfo");
  const std::vector<std::string> cpuinfo{std::istream_iterator<std::string>(file), {}};
  const auto has = [](Isa isa) {
    return std::count(available_isas().begin(), available_isas().end(), isa) == 1;
  };
  const bool avx2 = cpu_lists(cpuinfo, {"avx2", "fma", "f16c", "bmi2"});
  const bool avx512 = avx2 && cpu_lists(cpuinfo, {"avx512f", "avx512bw", "avx512vl", "avx512dq",
                                                  "avx512vbmi", "avx512_vnni"});
  EXPECT_EQ(has(Isa::kAvx2), avx2);
  EXPECT_EQ(has(Isa::kAvx512), avx512);
}
#endif

}  // namespace
}  // namespace tierkv
