#include "kernels/vector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/matmul_testing.h"

namespace tierkv {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kExpError = 4 * kUnit;  // relative, of the vector exp: 2.4e-7
const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

class VectorTest : public testing::TestWithParam<Isa> {
 protected:
  const VectorKernels& k() const { return *kernels_for(GetParam()).vector; }
  // Every remainder of every vector width, and some that unroll.
  static std::vector<int64_t> lengths() {
    std::vector<int64_t> all = {64, 65, 127, 576, 1000};
    for (int64_t n = 1; n <= 34; ++n) all.push_back(n);
    return all;
  }
};

TEST_P(VectorTest, RmsNorm) {
  for (const int64_t n : lengths()) {
    const std::vector<float> x = random_floats(n, 1), weight = random_floats(n, 2);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    std::vector<float> out(x), plain(x.size());
    k().rms_norm(out.data(), weight.data(), 1e-5f, n, out.data());
    k().rms_norm(x.data(), nullptr, 1e-5f, n, plain.data());
    // n positive terms in a row, halved by the root; then a handful of roundings.
    const double relative = (static_cast<double>(n) / 2 + 8) * kUnit;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = x[i] * factor;
      ASSERT_NEAR(plain[i], want, relative * std::abs(want)) << n;
      ASSERT_NEAR(out[i], want * weight[i], relative * std::abs(want * weight[i])) << n;
    }
  }
}

double silu(double z) { return z / (1 + std::exp(-z)); }
double gelu_angle(double z) { return std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z); }
// z/2 (1 + tanh t) without its cancellation: (1 + tanh t) / 2 = 1 / (1 + exp(-2t)).
double gelu(double z) { return z / (1 + std::exp(-2 * gelu_angle(z))); }

TEST(GeluTest, OracleIsTheDefinition) {
  for (double z = -5; z < 5; z += 0.01) {
    EXPECT_NEAR(gelu(z), z / 2 * (1 + std::tanh(gelu_angle(z))), 1e-14);
  }
}

TEST_P(VectorTest, SiluAndGelu) {
  for (const int64_t n : lengths()) {
    std::vector<float> gate = random_floats(n, 3), up = random_floats(n, 4);
    for (float& z : gate) z *= 4;
    std::vector<float> s(up), g(up);
    k().silu_mul(gate.data(), s.data(), n, s.data());
    k().gelu_mul(gate.data(), g.data(), n, g.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double z = gate[i], u = up[i];
      ASSERT_NEAR(s[i], silu(z) * u, (kExpError + 6 * kUnit) * std::abs(silu(z) * u)) << z;
      // gelu's exponent is rounded too, which moves exp(-2t) by 4 units of |2t|.
      const double relative = kExpError + (6 + 8 * std::abs(gelu_angle(z))) * kUnit;
      const double underflow = std::abs(u) * 0x1p-126;
      ASSERT_NEAR(g[i], gelu(z) * u, relative * std::abs(gelu(z) * u) + underflow) << z;
    }
  }
}

TEST_P(VectorTest, ActivationsAtExtremes) {
  const std::vector<float> gate = {0, -0.0f, 1e30f, -1e30f, -200, 200, kInfinity, kNan, 3, 4};
  const std::vector<float> up(gate.size(), 2);
  std::vector<float> s(gate.size()), g(gate.size());
  const int64_t n = static_cast<int64_t>(gate.size());
  k().silu_mul(gate.data(), up.data(), n, s.data());
  k().gelu_mul(gate.data(), up.data(), n, g.data());
  for (const std::vector<float>& out : {s, g}) {
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], 0);
    EXPECT_EQ(out[2], 2e30f);
    EXPECT_EQ(out[3], 0);
    EXPECT_EQ(out[4], 0);
    EXPECT_EQ(out[5], 400);
    EXPECT_EQ(out[6], kInfinity);
    EXPECT_TRUE(std::isnan(out[7]));
  }
}

TEST_P(VectorTest, AddAndScale) {
  for (const int64_t n : lengths()) {
    const std::vector<float> a = random_floats(n, 5), b = random_floats(n, 6);
    std::vector<float> sum(b), scaled(a);
    k().add(a.data(), sum.data(), n, sum.data());
    k().scale(scaled.data(), 1.7f, n, scaled.data());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_EQ(scaled[i], a[i] * 1.7f);
    }
  }
}

TEST_P(VectorTest, Rope) {
  for (const int64_t head_dim : {2, 6, 16, 20, 36, 64, 80, 128, 256}) {
    const int64_t half = head_dim / 2;
    const std::vector<float> head = random_floats(head_dim, 7), angle = random_floats(half, 8);
    std::vector<float> cosines(angle), sines(angle);
    for (float& c : cosines) c = std::cos(c);
    for (float& s : sines) s = std::sin(s);
    for (const RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalves}) {
      std::vector<float> out(head);
      k().rope(out.data(), cosines.data(), sines.data(), head_dim, pairing);
      const bool adjacent = pairing == RopePairing::kAdjacent;
      for (int64_t i = 0; i < half; ++i) {
        const size_t a = static_cast<size_t>(adjacent ? 2 * i : i);
        const size_t b = static_cast<size_t>(adjacent ? 2 * i + 1 : half + i);
        const double c = cosines[static_cast<size_t>(i)], s = sines[static_cast<size_t>(i)];
        const double bound = 2 * kUnit * (std::abs(head[a]) + std::abs(head[b]));
        ASSERT_NEAR(out[a], head[a] * c - head[b] * s, bound) << head_dim << " at " << i;
        ASSERT_NEAR(out[b], head[a] * s + head[b] * c, bound) << head_dim << " at " << i;
      }
    }
  }
}

TEST_P(VectorTest, MaxAndFirstArgmax) {
  EXPECT_EQ(k().max(nullptr, 0), -kInfinity);
  EXPECT_EQ(k().argmax(nullptr, 0), 0);
  std::vector<int64_t> all = lengths();
  all.push_back(5000);  // a vocabulary is looked through in blocks
  for (const int64_t n : all) {
    std::vector<float> x = random_floats(n, 9);
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      std::vector<float> y(x);
      y[static_cast<size_t>(at)] = y.back() = 100;  // an equal one at the end
      EXPECT_EQ(k().max(y.data(), n), 100);
      EXPECT_EQ(k().argmax(y.data(), n), at) << n;
    }
    std::fill(x.begin(), x.end(), -kInfinity);
    EXPECT_EQ(k().argmax(x.data(), n), 0);
    x.back() = -3;
    x.front() = n > 1 ? kNan : -3;
    EXPECT_EQ(k().max(x.data(), n), -3);
    EXPECT_EQ(k().argmax(x.data(), n), n - 1);
  }
}

TEST_P(VectorTest, ExpSum) {
  for (const int64_t n : lengths()) {
    std::vector<float> x = random_floats(n, 10);
    for (float& v : x) v *= 8;
    const float shift = *std::max_element(x.begin(), x.end());
    std::vector<float> out(x);
    double want = 0;
    for (const float v : x) want += std::exp(static_cast<double>(v - shift));
    const double sum = k().exp_sum(x.data(), shift, n, out.data());
    EXPECT_NEAR(sum, want, kExpError * want) << n;
    EXPECT_EQ(k().exp_sum(x.data(), shift, n, nullptr), sum);
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = std::exp(static_cast<double>(x[i] - shift));
      ASSERT_NEAR(out[i], e, kExpError * e);
    }
  }
}

TEST_P(VectorTest, ExpOverItsWholeRange) {
  std::vector<float> x;
  for (double v = -110; v < 88.7; v += 0.00137) x.push_back(static_cast<float>(v));
  std::vector<float> out(x.size());
  k().exp_sum(x.data(), 0, static_cast<int64_t>(x.size()), out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double e = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(out[i], e, std::max(kExpError * e, 0x1p-149)) << x[i];  // one subnormal step
  }
  const std::vector<float> ends = {-kInfinity, -1000, 89, 1000, kInfinity, kNan};
  out.resize(ends.size());
  k().exp_sum(ends.data(), 0, 6, out.data());
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 0);
  for (const size_t i : {2, 3, 4}) EXPECT_EQ(out[i], kInfinity);
  EXPECT_TRUE(std::isnan(out[5]));
}

// Every float16 there is, there and back; and rounding where it matters.
TEST_P(VectorTest, ColumnSums) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(3, 2);
  for (const int64_t n_cols : {1, 7, 16, 17, 64, 100}) {
    for (const int64_t n_rows : {0, 1, 64}) {
      std::vector<float> x(n_rows * n_cols), sums(n_cols + 1, 9), squares(n_cols + 1, 9);
      for (float& value : x) value = normal(random);
      k().column_sums(x.data(), n_rows, n_cols, sums.data(), squares.data());
      for (int64_t i = 0; i < n_cols; ++i) {
        double sum = 0, square = 0;
        for (int64_t row = 0; row < n_rows; ++row) {
          sum += x[row * n_cols + i];
          square += double(x[row * n_cols + i]) * x[row * n_cols + i];
        }
        EXPECT_NEAR(sums[i], sum, 1e-4) << i;
        EXPECT_NEAR(squares[i], square, 1e-6 * square) << i;
      }
      EXPECT_EQ(sums[n_cols], 9);  // nothing beyond
      EXPECT_EQ(squares[n_cols], 9);
    }
  }
}

TEST_P(VectorTest, HalfConversions) {
  std::vector<uint16_t> halves(65536), back(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(halves.size());
  k().from_f16(halves.data(), 65536, wide.data());
  k().to_f16(wide.data(), 65536, back.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    const float want = f16_to_f32(halves[i]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(f16_to_f32(back[i])));
    } else {
      ASSERT_EQ(wide[i], want);
      ASSERT_EQ(back[i], halves[i]);
    }
  }
  std::vector<float> x = random_floats(1000, 12);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i % 46) - 28);
  for (const int64_t n : lengths()) {
    std::vector<uint16_t> out(static_cast<size_t>(n));
    k().to_f16(x.data(), n, out.data());
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], f32_to_f16(x[i])) << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, VectorTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace tierkv
