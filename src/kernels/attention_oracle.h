// For tests: attention problems with random keys and values, and their answers in double with a
// bound on how far float32 kernels may be from them. Written from attention.h's text alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/attention.h"

namespace tierkv::attention_oracle {

inline constexpr double kUnit = 0x1p-24;     // relative error of one rounding
inline constexpr double kExpError = 1.2e-7;  // what simd_common.inc promises
inline constexpr double kTanhError = 3e-7;

inline int64_t k_index(int64_t head_dim, int slot, int64_t d) {
  return (slot / 16) * head_dim * 16 + d * 16 + slot % 16;
}
inline int64_t v_index(int64_t head_dim, int slot, int64_t d) {
  return kPageTokens * head_dim + slot * head_dim + d;
}

// Query rows over some pages: what is asked, before any kernel sees it.
struct Problem {
  int n_rows = 1;
  int64_t head_dim = 64;
  int n_pages = 1;
  float softcap = 0;
  std::vector<float> q;                           // [n_rows, head_dim]
  std::vector<std::vector<uint16_t>> blocks;      // [n_pages]
  std::vector<std::vector<int32_t>> first, last;  // [n_pages][n_rows]
};

inline Problem random_problem(int n_rows, int64_t head_dim, int n_pages, uint32_t seed,
                              float q_scale = 0) {
  Problem p{n_rows, head_dim, n_pages};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  if (q_scale == 0) q_scale = 2 / std::sqrt(static_cast<float>(head_dim));
  p.q.resize(n_rows * head_dim);
  for (float& x : p.q) x = normal(random) * q_scale;
  p.blocks.resize(n_pages);
  for (auto& block : p.blocks) {
    block.resize(exact_block_elements(head_dim));
    for (uint16_t& x : block) x = f32_to_f16(normal(random));
  }
  p.first.assign(n_pages, std::vector<int32_t>(n_rows, 0));
  p.last.assign(n_pages, std::vector<int32_t>(n_rows, kPageTokens));
  return p;
}

// One row in four sees nothing of a page, one all of it, the others a random part.
inline void randomise_ranges(Problem& p, uint32_t seed) {
  std::mt19937 random(seed);
  for (int page = 0; page < p.n_pages; ++page) {
    for (int r = 0; r < p.n_rows; ++r) {
      int a = static_cast<int>(random() % (kPageTokens + 1)), b = static_cast<int>(random() % 65);
      if (random() % 4 == 0) b = a;
      if (random() % 4 == 0) a = 0, b = kPageTokens;
      p.first[page][r] = std::min(a, b);
      p.last[page][r] = std::max(a, b);
    }
  }
}

// `heads` query rows for each token from `first_token` on; each sees that token and those before.
inline void make_causal(Problem& p, int heads, int first_token) {
  for (int page = 0; page < p.n_pages; ++page) {
    for (int r = 0; r < p.n_rows; ++r) {
      const int seen = first_token + r / heads + 1 - page * kPageTokens;
      p.last[page][r] = std::clamp(seen, 0, kPageTokens);
    }
  }
}

// Exact attention of one row in double, and how far a float32 result may be from it.
struct Exact {
  std::vector<double> out, bound;
};

inline Exact exact_row(const Problem& p, int r) {
  struct Key {
    double score;
    const uint16_t* block;
    int slot;
  };
  std::vector<Key> keys;
  double magnitude = 0;  // largest sum of |q k|
  double highest = -std::numeric_limits<double>::infinity();
  for (int page = 0; page < p.n_pages; ++page) {
    for (int slot = p.first[page][r]; slot < p.last[page][r]; ++slot) {
      double score = 0, absolute = 0;
      for (int64_t d = 0; d < p.head_dim; ++d) {
        const double k = f16_to_f32(p.blocks[page][k_index(p.head_dim, slot, d)]);
        score += p.q[r * p.head_dim + d] * k;
        absolute += std::abs(p.q[r * p.head_dim + d] * k);
      }
      if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
      magnitude = std::max(magnitude, absolute);
      highest = std::max(highest, score);
      keys.push_back({score, p.blocks[page].data(), slot});
    }
  }
  Exact e{std::vector<double>(p.head_dim), std::vector<double>(p.head_dim)};
  double sum = 0;
  for (const Key& key : keys) {
    const double weight = std::exp(key.score - highest);
    sum += weight;
    for (int64_t d = 0; d < p.head_dim; ++d) {
      const double v = f16_to_f32(key.block[v_index(p.head_dim, key.slot, d)]);
      e.out[d] += weight * v;
      e.bound[d] += weight * std::abs(v);
    }
  }
  // Each score is head_dim products and sums (rounded apart in the scalar build), then tanh; each
  // weight is one exp, and one more for each page that follows, of differences of at most 87 (else
  // the weight is zero); numerator and denominator add up all weights.
  const double score_error = (p.head_dim + 1) * kUnit * magnitude + p.softcap * kTanhError * 1.5;
  const double exp_error = kExpError + kUnit * (2 + std::min(87.0, 2 * magnitude));
  const double weight_error =
      score_error + (p.n_pages + 1) * exp_error + kUnit * static_cast<double>(keys.size() + 2);
  for (int64_t d = 0; d < p.head_dim && sum > 0; ++d) {
    e.out[d] /= sum;
    e.bound[d] = e.bound[d] / sum * std::expm1(2 * weight_error) + 1e-37;
  }
  return e;
}

}  // namespace tierkv::attention_oracle
