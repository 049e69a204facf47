// What the tests of the rotated codec share: aligned buffers, blocks, query rows, and the transform
// by its definition.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/half.h"
#include "kernels/isa.h"
#include "kernels/rotated.h"

namespace tierkv::rotated_test {

inline const RotatedKernels& kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kRotatedAvx512;
  if (isa == Isa::kAvx2) return kRotatedAvx2;
#endif
  EXPECT_EQ(isa, Isa::kScalar) << "no kernels of this instruction set to test";
  return kRotatedScalar;
}

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte[], Free>;
inline Bytes aligned(uint64_t n) {
  n = (n + 63) / 64 * 64;
  Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(64, n)));
  std::memset(bytes.get(), 0x5a, n);
  return bytes;
}

inline std::vector<RotatedFormat> all_formats() {
  std::vector<RotatedFormat> formats;
  for (const uint8_t k : {3, 4, 5, 6, 8}) {
    for (const uint8_t v : {2, 3, 4, 5, 6, 8}) formats.push_back({k, v});
  }
  return formats;
}

inline std::vector<RotatedFormat> every_width_once() {
  return {{3, 2}, {4, 4}, {5, 3}, {6, 5}, {8, 6}, {3, 8}};
}

using Exact = std::vector<uint16_t>;  // an exact head block
inline Exact gaussian_block(int64_t head_dim, unsigned seed, float size = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  Exact block(static_cast<size_t>(exact_block_elements(head_dim)));
  for (uint16_t& h : block) h = f32_to_f16(normal(random));
  return block;
}
inline int64_t key_at(int64_t head_dim, int t, int64_t d) {
  return (t / kPageLane * head_dim + d) * kPageLane + t % kPageLane;
}
inline int64_t value_at(int64_t head_dim, int t, int64_t d) {
  return (kPageTokens + t) * head_dim + d;
}

// Sizes of 1/4, 1 and 4 in turns, and what makes them one.
inline float size_of(int64_t d) { return std::ldexp(1.0f, static_cast<int>(d % 3 - 1) * 2); }
inline std::vector<float> inverse_sizes(int64_t head_dim) {
  std::vector<float> inverse;
  for (int64_t d = 0; d < head_dim; ++d) inverse.push_back(1 / size_of(d));
  return inverse;
}
// Gaussian values; keys five of their standard deviations from zero, in dimensions of these sizes.
inline Exact off_centre_block(int64_t head_dim, unsigned seed) {
  Exact block = gaussian_block(head_dim, seed);
  for (int t = 0; t < kPageTokens; ++t) {
    for (int64_t d = 0; d < head_dim; ++d) {
      uint16_t& k = block[key_at(head_dim, t, d)];
      k = f32_to_f16((f16_to_f32(k) + (d % 2 ? 5.0f : -5.0f)) * size_of(d));
    }
  }
  return block;
}

inline Bytes encode(Isa isa, RotatedFormat format, const Exact& exact, int n_tokens,
                    int64_t head_dim, const float* key_balance = nullptr) {
  Bytes block = aligned(rotated_block_bytes(format, head_dim));
  Bytes scratch = aligned(rotated_scratch_bytes(head_dim));
  kernels(isa).encode(format, exact.data(), n_tokens, head_dim, key_balance, block.get(),
                      scratch.get());
  return block;
}

inline Exact decode(Isa isa, RotatedFormat format, const Bytes& block, int64_t head_dim,
                    const float* key_balance = nullptr) {
  Exact exact(static_cast<size_t>(exact_block_elements(head_dim)), 0x7e00);
  Bytes scratch = aligned(rotated_scratch_bytes(head_dim));
  kernels(isa).decode(format, block.get(), head_dim, key_balance, exact.data(), scratch.get());
  return exact;
}

// The definition: sum over j of (-1)^popcount(i & j) x[j], over sqrt(n).
inline std::vector<double> hadamard(std::span<const double> x) {
  std::vector<double> y(x.size(), 0);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += std::popcount(i & j) % 2 ? -x[j] : x[j];
    y[i] /= std::sqrt(static_cast<double>(x.size()));
  }
  return y;
}

// Query rows with everything they point to.
struct Rows {
  int n;
  int64_t head_dim;
  std::vector<float> q, max, sum, out, scale;
  std::vector<int32_t> first, last, code_sum;
  Bytes codes;
  float softcap = 0;

  Rows(int n_rows, int64_t dim, float size)
      : n(n_rows),
        head_dim(dim),
        q(n * dim),
        max(n, kNoScore),
        sum(n),
        out(n * dim),
        scale(n),
        first(n, 0),
        last(n, kPageTokens),
        code_sum(n),
        codes(aligned(n * dim)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, size);
    for (float& x : q) x = normal(random);
  }
  AttentionRows rows() {
    return {.n_rows = n,
            .head_dim = head_dim,
            .q = q.data(),
            .first = first.data(),
            .last = last.data(),
            .softcap = softcap,
            .max = max.data(),
            .sum = sum.data(),
            .out = out.data()};
  }
  int8_t* code() { return reinterpret_cast<int8_t*>(codes.get()); }
  RotatedQuery query() { return {code(), scale.data(), code_sum.data()}; }
  void prepare(Isa isa, const float* key_balance = nullptr) {
    Bytes scratch = aligned(rotated_scratch_bytes(head_dim));
    kernels(isa).prepare(rows(), key_balance, query(), scratch.get());
  }
  void attend(Isa isa, RotatedFormat format, const Bytes& block) {
    kernels(isa).attend(format, {.blocks = {block.get()}, .n = 1}, rows(), query());
  }
  void unrotate(Isa isa) {
    Bytes scratch = aligned(rotated_scratch_bytes(head_dim));
    kernels(isa).unrotate(rows(), scratch.get());
  }
  // Every third row sees all, the others a part or nothing.
  void mix_ranges() {
    const int32_t ranges[][2] = {{0, 64}, {0, 1}, {5, 40}, {0, 64}, {33, 64}, {20, 20}, {63, 64}};
    for (int r = 0; r < n; ++r) first[r] = ranges[r % 7][0], last[r] = ranges[r % 7][1];
  }
};

}  // namespace tierkv::rotated_test
