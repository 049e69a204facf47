// The low-rank kernels of every instruction set against their meaning in low_rank.h, computed in
// double. Bounds: n roundings of 2^-24 for a float32 sum of n terms (times the terms' sizes), 2^-11
// for a value stored as float16, half a step for one stored in int8.
#include "kernels/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/isa.h"
#include "kernels/kernels.h"
#include "kernels/rotated_test_util.h"

namespace tierkv {
namespace {

using rotated_test::aligned;
using rotated_test::Bytes;
using rotated_test::Exact;
using rotated_test::gaussian_block;
using rotated_test::key_at;
using rotated_test::value_at;

constexpr double kUnit = 0x1p-24, kHalfUnit = 0x1p-11;
constexpr int64_t kPage = 5;  // its first position is 320

struct Shape {
  int n_kv_heads;
  int64_t head_dim, rank;
  int latent_bits;
  RopePairing pairing;
};
const Shape kShapes[] = {{2, 32, 48, 16, RopePairing::kAdjacent},
                         {3, 64, 192, 8, RopePairing::kAdjacent},
                         {1, 128, 144, 8, RopePairing::kHalves},
                         {2, 96, 384, 16, RopePairing::kHalves}};

double theta(int64_t pair, int64_t head_dim) {
  return std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
}

std::vector<float> angles(int64_t position, int64_t head_dim) {
  std::vector<float> out(head_dim);
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double angle = static_cast<double>(position) * theta(i, head_dim);
    out[i] = static_cast<float>(std::cos(angle));
    out[head_dim / 2 + i] = static_cast<float>(std::sin(angle));
  }
  return out;
}

// Rows orthonormal by Gram and Schmidt, [rank][width].
std::vector<std::vector<double>> orthonormal(int64_t rank, int64_t width, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> rows(rank, std::vector<double>(width));
  for (int64_t r = 0; r < rank; ++r) {
    for (double& x : rows[r]) x = normal(random);
    for (int64_t other = 0; other <= r; ++other) {
      double dot = 0;
      for (int64_t i = 0; i < width; ++i) dot += rows[r][i] * rows[other][i];
      const double by = other == r ? 1 - 1 / std::sqrt(dot) : dot;
      for (int64_t i = 0; i < width; ++i) rows[r][i] -= by * rows[other][i];
    }
  }
  return rows;
}

class LowRank : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    const Shape s = GetParam();
    std::mt19937 random(3);
    layer_ = {s.rank, s.head_dim, s.n_kv_heads, s.latent_bits, s.pairing, 4.0f};
    for (int64_t i = 0; i < s.n_kv_heads * s.head_dim / 2; ++i) {
      k_scales_.push_back(0.5f + 0.25f * static_cast<float>(i % 5));
    }
    layer_.k_scale = k_scales_.data();
    for (int t = 0; t < kPageTokens; ++t) {
      const std::vector<float> row = angles(t, s.head_dim);
      offsets_.insert(offsets_.end(), row.begin(), row.end());
    }
    page_ = angles(kPage * kPageTokens, s.head_dim);
    const auto rows = orthonormal(s.rank, layer_.width(), random);
    for (int64_t part = 0; part < 2 * s.n_kv_heads; ++part) {
      for (int64_t r = 0; r < s.rank; ++r) {
        for (int64_t d = 0; d < s.head_dim; ++d) {
          w_.push_back(f32_to_f16(static_cast<float>(rows[r][part * s.head_dim + d])));
        }
      }
    }
    layer_.offset_angles = offsets_.data();
    layer_.w = w_.data();
    for (int h = 0; h < s.n_kv_heads; ++h) blocks_.push_back(gaussian_block(s.head_dim, 10 + h));
    scratch_ = aligned(low_rank_scratch_bytes(s.rank, s.head_dim));
  }

  double k_scale(int64_t head, int64_t dim) const {
    return k_scales_[head * layer_.head_dim / 2 + dim % (layer_.head_dim / 2)];
  }
  const LowRankKernels& kernels(Isa isa) { return *kernels_for(isa).low_rank; }

  double w(int64_t part, int64_t latent, int64_t d) const {
    return f16_to_f32(w_[(part * layer_.rank + latent) * layer_.head_dim + d]);
  }

  // The dimensions that a pair turns: in the model's order.
  std::pair<int64_t, int64_t> pair_dims(int64_t i) const {
    if (layer_.pairing == RopePairing::kAdjacent) return {2 * i, 2 * i + 1};
    return {i, i + layer_.head_dim / 2};
  }

  // x of a token in double.
  std::vector<double> row(int t) const {
    const int64_t dim = layer_.head_dim;
    std::vector<double> x(layer_.width());
    for (int h = 0; h < layer_.n_kv_heads; ++h) {
      for (int64_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(kPage * kPageTokens + t) * theta(i, dim);
        const auto [first, second] = pair_dims(i);
        const double a = f16_to_f32(blocks_[h][key_at(dim, t, first)]) * k_scale(h, i);
        const double b = f16_to_f32(blocks_[h][key_at(dim, t, second)]) * k_scale(h, i);
        x[h * dim + i] = a * std::cos(angle) + b * std::sin(angle);
        x[h * dim + dim / 2 + i] = b * std::cos(angle) - a * std::sin(angle);
      }
      for (int64_t d = 0; d < dim; ++d) {
        x[(layer_.n_kv_heads + h) * dim + d] =
            f16_to_f32(blocks_[h][value_at(dim, t, d)]) * layer_.v_scale;
      }
    }
    return x;
  }

  std::vector<float> gathered(Isa isa) {
    std::vector<float> x(kPageTokens * layer_.width());
    for (int h = 0; h < layer_.n_kv_heads; ++h) {
      kernels(isa).gather(layer_, blocks_[h].data(), h, page_.data(), x.data());
    }
    return x;
  }

  Bytes encoded(Isa isa) {
    Bytes block = aligned(low_rank_block_bytes(layer_.rank, layer_.latent_bits));
    const std::vector<float> x = gathered(isa);
    for (int t = 0; t < kPageTokens; t += 16) {
      kernels(isa).encode(layer_, x.data(), t, t + 16, block.get(), scratch_.get());
    }
    return block;
  }

  double latent(const Bytes& block, int t, int64_t i) const {
    const int64_t at = t * layer_.rank + i;
    if (layer_.latent_bits == 16) {
      return f16_to_f32(reinterpret_cast<const uint16_t*>(block.get())[at]);
    }
    return reinterpret_cast<const int8_t*>(block.get())[at] * scale(block, t, i);
  }
  double scale(const Bytes& block, int t, int64_t i) const {
    const auto* scales = reinterpret_cast<const uint16_t*>(block.get() + kPageTokens * layer_.rank);
    const int64_t groups = (layer_.rank + kLatentGroup - 1) / kLatentGroup;
    return f16_to_f32(scales[t * groups + i / kLatentGroup]);
  }

  // A head's K (after RoPE) and V that a block stands for, in double, in the exact block's order.
  std::vector<double> meant(const Bytes& block, int head) const {
    const int64_t dim = layer_.head_dim;
    std::vector<double> out(exact_block_elements(dim));
    for (int t = 0; t < kPageTokens; ++t) {
      std::vector<double> k(dim), v(dim);
      for (int64_t i = 0; i < layer_.rank; ++i) {
        const double z = latent(block, t, i);
        for (int64_t d = 0; d < dim; ++d) {
          k[d] += z * w(head, i, d) / k_scale(head, d);
          v[d] += z * w(layer_.n_kv_heads + head, i, d) / layer_.v_scale;
        }
      }
      for (int64_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(kPage * kPageTokens + t) * theta(i, dim);
        const double a = k[i], b = k[dim / 2 + i];
        const auto [first, second] = pair_dims(i);
        out[key_at(dim, t, first)] = a * std::cos(angle) - b * std::sin(angle);
        out[key_at(dim, t, second)] = a * std::sin(angle) + b * std::cos(angle);
      }
      for (int64_t d = 0; d < dim; ++d) out[value_at(dim, t, d)] = v[d];
    }
    return out;
  }

  LowRankLayer layer_;
  std::vector<float> offsets_, page_, k_scales_;
  std::vector<uint16_t> w_;
  std::vector<Exact> blocks_;
  Bytes scratch_;
};

TEST_P(LowRank, GatherUndoesScalesAndRotation) {
  for (const Isa isa : available_isas()) {
    const std::vector<float> x = gathered(isa);
    for (int t = 0; t < kPageTokens; ++t) {
      const std::vector<double> expected = row(t);
      for (int64_t i = 0; i < layer_.width(); ++i) {
        // Angles, their sum and the products: a handful of roundings of values below 5 * 4.
        ASSERT_NEAR(x[t * layer_.width() + i], expected[i], 20 * 8 * kUnit)
            << isa_name(isa) << " token " << t << " column " << i;
      }
    }
  }
}

TEST_P(LowRank, GramIsTheSumOfProducts) {
  for (const Isa isa : available_isas()) {
    const std::vector<float> x = gathered(isa);
    const int64_t width = layer_.width();
    std::vector<float> gram(width * width, 1.0f);  // it adds
    for (int64_t i = 0; i < width; i += kRankStep) {
      kernels(isa).add_gram(x.data(), width, i, i + kRankStep, gram.data());
    }
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = i; j < width; ++j) {
        double sum = 1, size = 1;
        for (int t = 0; t < kPageTokens; ++t) {
          const double product = static_cast<double>(x[t * width + i]) * x[t * width + j];
          sum += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(gram[i * width + j], sum, 2 * (kPageTokens + 1) * kUnit * size)
            << isa_name(isa) << " " << i << "," << j;
      }
    }
  }
}

TEST_P(LowRank, LatentsAreWx) {
  for (const Isa isa : available_isas()) {
    const Bytes block = encoded(isa);
    for (int t = 0; t < kPageTokens; ++t) {
      const std::vector<double> x = row(t);
      for (int64_t i = 0; i < layer_.rank; ++i) {
        double z = 0, size = 0;
        for (int64_t c = 0; c < layer_.width(); ++c) {
          const double product = x[c] * w(c / layer_.head_dim, i, c % layer_.head_dim);
          z += product;
          size += std::abs(product);
        }
        const double rounding = layer_.latent_bits == 16 ? std::abs(z) * kHalfUnit + 0x1p-24
                                                         : 0.51 * scale(block, t, i);
        ASSERT_NEAR(latent(block, t, i), z, rounding + 2 * (layer_.width() + 10) * kUnit * size)
            << isa_name(isa) << " token " << t << " latent " << i;
      }
    }
  }
}

TEST_P(LowRank, DecodeRebuildsWhatTheBlockMeans) {
  for (const Isa isa : available_isas()) {
    const Bytes block = encoded(isa);
    for (int h = 0; h < layer_.n_kv_heads; ++h) {
      Exact exact(exact_block_elements(layer_.head_dim), 0x7e00);
      kernels(isa).decode(layer_, block.get(), h, page_.data(), exact.data(), scratch_.get());
      const std::vector<double> expected = meant(block, h);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(f16_to_f32(exact[i]), expected[i], std::abs(expected[i]) * kHalfUnit + 1e-4)
            << isa_name(isa) << " head " << h << " element " << i;
      }
    }
  }
}

// Query rows of one KV head and their latent states.
struct Rows {
  Rows(const LowRankLayer& layer, int n, float softcap) : n_(n), rank_(layer.rank) {
    std::mt19937 random(9);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(layer.head_dim)));
    q.resize(n * layer.head_dim);
    for (float& x : q) x = normal(random);
    max.assign(n, kNoScore);
    sum.assign(n, 0);
    out.assign(n * rank_, 0);
    for (int r = 0; r < n; ++r) {
      first.push_back(r % 4 == 1 ? 7 : 0);
      last.push_back(r % 4 == 2 ? first[r] : kPageTokens - r % 3);  // some see nothing
    }
    rows = {n,       layer.head_dim, q.data(),   first.data(), last.data(),
            softcap, max.data(),     sum.data(), out.data()};
  }
  AttentionRows one(int r) const {
    AttentionRows row = rows;
    row.n_rows = 1;
    row.q += r * rows.head_dim;
    row.first += r, row.last += r, row.max += r, row.sum += r;
    row.out += r * rank_;
    return row;
  }
  int n_;
  int64_t rank_;
  std::vector<float> q, max, sum, out;
  std::vector<int32_t> first, last;
  AttentionRows rows;
};

TEST_P(LowRank, AttentionIsThatOverTheRebuiltBlock) {
  for (const Isa isa : available_isas()) {
    const Bytes block = encoded(isa);
    const int64_t dim = layer_.head_dim;
    for (const float softcap : {0.0f, 5.0f}) {
      for (int h = 0; h < layer_.n_kv_heads; ++h) {
        Rows problem(layer_, 7, softcap);
        const std::vector<double> kv = meant(block, h);
        kernels(isa).attend(layer_, block.get(), h, page_.data(), problem.rows, scratch_.get());
        std::vector<float> out(7 * dim);
        kernels(isa).project(layer_, h, problem.out.data(), 7, out.data());
        for (int r = 0; r < 7; ++r) {
          double sum = 0;
          std::vector<double> expected(dim);
          for (int t = problem.first[r]; t < problem.last[r]; ++t) {
            double score = 0;
            for (int64_t d = 0; d < dim; ++d) {
              score += problem.q[r * dim + d] * kv[key_at(dim, t, d)];
            }
            if (softcap > 0) score = softcap * std::tanh(score / softcap);
            const double weight = std::exp(score - problem.max[r]);
            sum += weight;
            for (int64_t d = 0; d < dim; ++d) expected[d] += weight * kv[value_at(dim, t, d)];
          }
          ASSERT_NEAR(problem.sum[r], sum, 1e-4 * (sum + 1)) << isa_name(isa) << " row " << r;
          for (int64_t d = 0; d < dim; ++d) {
            ASSERT_NEAR(out[r * dim + d], expected[d], 3e-4 * (sum + 1))
                << isa_name(isa) << " head " << h << " row " << r << " dim " << d;
          }
        }
      }
    }
  }
}

TEST_P(LowRank, ARowsResultDoesNotDependOnItsNeighbours) {
  for (const Isa isa : available_isas()) {
    const Bytes block = encoded(isa);
    Rows together(layer_, 7, 0), apart(layer_, 7, 0);
    for (int page = 0; page < 2; ++page) {
      kernels(isa).attend(layer_, block.get(), 0, page_.data(), together.rows, scratch_.get());
      for (int r = 0; r < 7; ++r) {
        kernels(isa).attend(layer_, block.get(), 0, page_.data(), apart.one(r), scratch_.get());
      }
    }
    EXPECT_EQ(together.max, apart.max) << isa_name(isa);
    EXPECT_EQ(together.sum, apart.sum) << isa_name(isa);
    EXPECT_EQ(together.out, apart.out) << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LowRank, testing::ValuesIn(kShapes));

TEST(LowRankSizes, BlocksAndRanks) {
  EXPECT_EQ(low_rank_of(3, 64, 500), 192);
  EXPECT_EQ(low_rank_of(3, 64, 375), 144);
  EXPECT_EQ(low_rank_of(3, 64, 1000), 384);
  EXPECT_EQ(low_rank_of(1, 32, 1), kRankStep);
  EXPECT_EQ(low_rank_block_bytes(192, 16), 64u * 192 * 2);
  EXPECT_EQ(low_rank_block_bytes(144, 8), 64u * (144 + 2 * 5));  // the last group is half a one
  EXPECT_TRUE(low_rank_head_dim_valid(96));
  EXPECT_FALSE(low_rank_head_dim_valid(80));
}

}  // namespace
}  // namespace tierkv
