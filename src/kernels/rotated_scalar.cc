// The rotated codec without an instruction set of its own: the reference the others are tested
// with.
#include <cmath>
#include <utility>

#include "kernels/rotated.h"
#include "kernels/rotated_layout.h"

namespace tierkv {
namespace {

constexpr int kWidth = 4;
constexpr int kMaxGroup = 4;
constexpr int kBatch = 1;
constexpr int kMeanZero = 0;
constexpr int kLevelZero = 0;

#include "kernels/rotated_vector.inc"
#include "kernels/rotated_weights.inc"

Vec multiply_add(Vec a, Vec b, Vec c) { return a * b + c; }

template <int n, typename V, typename T, typename F>
void reduce_each(const V (&x)[n], T (&to)[n], F op) {
  for (int i = 0; i < n; ++i) to[i] = op(op(x[i][0], x[i][2]), op(x[i][1], x[i][3]));
}

bool any_above(Vec x, float y) { return reduce_max(x) > y; }

IntVec store_weights(int8_t* to, Vec x) {
  const IntVec code = round_to_int(x);
  for (int i = 0; i < kWidth; ++i) to[i] = static_cast<int8_t>(code[i]);
  return code;
}

IntVec dot_lanes(const int8_t* q, const int8_t* mean, int64_t n) {
  IntVec sum{};
  for (int64_t i = 0; i < n; ++i) sum[i % kWidth] += q[i] * mean[i];
  return sum;
}

#include "kernels/rotated_codec.inc"

// What products take for a unit's codes: themselves, or their levels.
template <int kBits>
void unpack_factors(const uint8_t* unit, int16_t* to) {
  uint8_t codes[kUnitCodes];
  unpack_unit(unit, kBits, codes);
  if constexpr (curved(kBits)) {
    constexpr LevelTable kTable = level_table(kBits);
    for (int i = 0; i < kUnitCodes; ++i) to[i] = kTable.level[codes[i]];
  } else {
    for (int i = 0; i < kUnitCodes; ++i) to[i] = codes[i];
  }
}

// sum[i] += four products a group, of a unit's codes 4i to 4i + 3 with factors 4g to 4g + 3.
void add_unit(const int16_t* codes, const int8_t* factors, int32_t* sum) {
  for (int g = 0; g < kUnitGroups; ++g) {
    for (int i = 0; i < kGroupCodes; ++i) {
      sum[i / 4] += codes[g * kGroupCodes + i] * factors[4 * g + i % 4];
    }
  }
}

template <int kBits, int kRows>
void score_keys(const uint8_t* units, int64_t head_dim, const int8_t* q, const int32_t* start,
                int32_t* dots) {
  int16_t codes[kUnitCodes];
  for (int i = 0; i < kRows * kPageTokens; ++i) dots[i] = start[i / kPageTokens];
  for (int64_t d = 0; d < head_dim; d += kKeyUnitDims) {
    for (int lane = 0; lane < kPageLanes; ++lane, units += unit_bytes(kBits)) {
      unpack_factors<kBits>(units, codes);
      for (int r = 0; r < kRows; ++r) {
        add_unit(codes, q + r * head_dim + d, dots + r * kPageTokens + lane * kPageLane);
      }
    }
  }
}

void update_output(const RowWeights& weights, int half, const int32_t* sum, float* out) {
  for (int i = 0; i < kValueUnitDims; ++i) {
    if (half == 0) out[i] = out[i] * weights.keep + weights.shift;
    out[i] += static_cast<float>(sum[i]) * weights.scale[half];
  }
}

template <int kBits, int kRows>
void add_values(const uint8_t* units, int64_t head_dim, const RowWeights* weights, float* out) {
  int16_t codes[kUnitCodes];
  for (int64_t d = 0; d < head_dim; d += kValueUnitDims) {
    for (int half = 0; half < kPageHalves; ++half, units += unit_bytes(kBits)) {
      unpack_factors<kBits>(units, codes);
      for (int r = 0; r < kRows; ++r) {
        int32_t sum[kValueUnitDims];
        for (int i = 0; i < kValueUnitDims; ++i) sum[i] = weights[r].start[half];
        add_unit(codes, weights[r].p + half * kHalfTokens, sum);
        update_output(weights[r], half, sum, out + r * head_dim + d);
      }
    }
  }
}

#include "kernels/rotated_attend.inc"

}  // namespace

const RotatedKernels kRotatedScalar = {encode, decode, prepare, attend, unrotate};

}  // namespace tierkv
