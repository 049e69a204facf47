// The rotated codec's integer products on AVX2. Products of an unsigned and a signed byte are
// summed in 16 bits for as many groups as cannot overflow whatever the codes; 8-bit codes go as two
// nibbles, and curved levels as their size, with their sign on the other factor.
#include <immintrin.h>

#include <cmath>
#include <utility>

#include "kernels/rotated.h"
#include "kernels/rotated_layout.h"

namespace tierkv {
namespace {

constexpr int kWidth = 8;
constexpr int kMaxGroup = 4;
constexpr int kBatch = 1;
constexpr int kMeanZero = 0;
constexpr int kLevelZero = 0;

#include "kernels/rotated_vector.inc"
#include "kernels/rotated_weights.inc"

Vec multiply_add(Vec a, Vec b, Vec c) { return (Vec)_mm256_fmadd_ps(a, b, c); }

// Folds lanes 4 apart, then 2 and 1.
template <int n, typename V, typename T, typename F>
void reduce_each(const V (&x)[n], T (&to)[n], F op) {
  for (int i = 0; i < n; ++i) {
    V v = op(x[i], __builtin_shufflevector(x[i], x[i], 4, 5, 6, 7, 0, 1, 2, 3));
    v = op(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    v = op(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
    to[i] = v[0];
  }
}

bool any_above(Vec x, float y) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(y), _CMP_GT_OQ)) != 0;
}

IntVec store_weights(int8_t* to, Vec x) {
  const __m256i i = _mm256_cvtps_epi32(x);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
  return (IntVec)i;
}

IntVec dot_lanes(const int8_t* q, const int8_t* mean, int64_t n) {
  __m256i sum = _mm256_setzero_si256();
  for (int64_t i = 0; i < n; i += 16) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_cvtepi8_epi16(load<__m128i>(q + i)),
                                                  _mm256_cvtepi8_epi16(load<__m128i>(mean + i))));
  }
  return (IntVec)sum;
}

// --- unpacking ---

template <int kGroup>
struct Group {
  static constexpr int value = kGroup;
};

template <int kFrom, int kTo, typename F>
[[gnu::always_inline]] inline void for_groups(F f) {
  if constexpr (kFrom < kTo) {
    f(Group<kFrom>());
    for_groups<kFrom + 1, kTo>(f);
  }
}

// Half (32 bytes) of a group's pieces of a plane, moved to bit kTo of their bytes, others cleared.
template <int kBits, int kGroup, int kTo>
__m256i piece(const uint8_t* plane) {
  constexpr int kGroups = 8 / kBits, kShift = kGroup % kGroups * kBits - kTo;
  __m256i v = load<__m256i>(plane + kGroup / kGroups * kGroupCodes);
  if constexpr (kShift > 0) v = _mm256_srli_epi16(v, kShift);
  if constexpr (kShift < 0) v = _mm256_slli_epi16(v, -kShift);
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(((1 << kBits) - 1) << kTo)));
}

// Half a group's codes, of at most 6 bits; `unit` is 32 bytes further on for the second half.
template <int kBits, int kGroup>
__m256i codes(const uint8_t* unit) {
  constexpr int kLow = low_plane_bits(kBits);
  const __m256i low = piece<kLow, kGroup, 0>(unit);
  if constexpr (kBits == kLow)
    return low;
  else
    return _mm256_or_si256(low, piece<kBits - kLow, kGroup, kLow>(unit + unit_bytes(kLow)));
}

// Codes [first, first + 16) of a width's levels in each 128-bit lane.
template <int kBits>
__m256i levels_from(int first) {
  static constexpr LevelTable kTable = level_table(kBits);
  return _mm256_broadcastsi128_si256(load<__m128i>(kTable.level + first));
}

// The levels of half a group's codes.
template <int kBits, int kGroup>
__m256i levels(const uint8_t* unit) {
  if constexpr (kBits == 5) {
    const __m256i low = piece<4, kGroup, 0>(unit);
    const __m256i upper = piece<1, kGroup, 7>(unit + unit_bytes(4));
    return _mm256_blendv_epi8(_mm256_shuffle_epi8(levels_from<5>(0), low),
                              _mm256_shuffle_epi8(levels_from<5>(16), low), upper);
  } else {
    return _mm256_shuffle_epi8(levels_from<kBits>(0), codes<kBits, kGroup>(unit));
  }
}

// --- products ---

// Groups whose products fit a signed 16-bit sum: each adds at most 2 * 127 * (2^bits - 1).
constexpr int exact_groups(int bits) { return bits == 2 ? 8 : 2; }
static_assert(3 * 254 * 8 < 32768 && 63 * 254 * 2 < 32768);

__m256i broadcast4(const int8_t* from) { return _mm256_set1_epi32(load<int32_t>(from)); }

__m256i add_product(__m256i sum, __m256i code, const int8_t* factor) {
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(code, broadcast4(factor)));
}

// sum[r] += products of groups [kFrom, kTo) of half a unit with 4 bytes a group at factors + r *
// stride.
template <int kBits, int kRows, int kFrom, int kTo>
[[gnu::always_inline]] inline void add_groups(const uint8_t* unit, const int8_t* factors,
                                              int64_t stride, __m256i* sum) {
  __m256i words[kRows];
  for (int r = 0; r < kRows; ++r) words[r] = _mm256_setzero_si256();
  for_groups<kFrom, kTo>([&](auto group) __attribute__((always_inline)) {
    constexpr int g = decltype(group)::value;
    const __m256i code = codes<kBits, g>(unit);
    for (int r = 0; r < kRows; ++r) {
      words[r] = add_product(words[r], code, factors + r * stride + 4 * g);
    }
  });
  for (int r = 0; r < kRows; ++r) {
    sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(words[r], _mm256_set1_epi16(1)));
  }
}

// The same for curved levels: 2 * 127 * 127 leaves room for one group in 16 bits.
template <int kBits, int kRows>
[[gnu::always_inline]] inline void add_levels(const uint8_t* unit, const int8_t* factors,
                                              int64_t stride, __m256i* sum) {
  static_assert(2 * kMaxLevel * 127 < 32768);
  for_groups<0, kUnitGroups>([&](auto group) __attribute__((always_inline)) {
    constexpr int g = decltype(group)::value;
    const __m256i level = levels<kBits, g>(unit), size = _mm256_abs_epi8(level);
    for (int r = 0; r < kRows; ++r) {
      const __m256i signed_factor =
          _mm256_sign_epi8(broadcast4(factors + r * stride + 4 * g), level);
      const __m256i words = _mm256_maddubs_epi16(size, signed_factor);
      sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
    }
  });
}

// The same for 8-bit codes: low and high nibbles have sums of their own. kShift: 0 or 4.
template <int kRows, int kShift>
[[gnu::always_inline]] inline void add_nibbles(const uint8_t* unit, const int8_t* factors,
                                               int64_t stride, __m256i* sum) {
  __m256i words[kRows];
  for (int r = 0; r < kRows; ++r) words[r] = _mm256_setzero_si256();
  for (int g = 0; g < kUnitGroups; ++g) {
    const __m256i bytes = load<__m256i>(unit + g * kGroupCodes);
    const __m256i code = _mm256_and_si256(_mm256_srli_epi16(bytes, kShift), _mm256_set1_epi8(15));
    for (int r = 0; r < kRows; ++r) {
      words[r] = add_product(words[r], code, factors + r * stride + 4 * g);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(words[r], _mm256_set1_epi16(1 << kShift)));
  }
}

template <int kBits, int kRows>
[[gnu::always_inline]] inline void add_unit(const uint8_t* unit, const int8_t* factors,
                                            int64_t stride, __m256i* sum) {
  if constexpr (kBits == 8) {
    add_nibbles<kRows, 0>(unit, factors, stride, sum);
    add_nibbles<kRows, 4>(unit, factors, stride, sum);
  } else if constexpr (curved(kBits)) {
    add_levels<kBits, kRows>(unit, factors, stride, sum);
  } else {
    constexpr int kStep = exact_groups(kBits);
    add_groups<kBits, kRows, 0, kStep>(unit, factors, stride, sum);
    if constexpr (kStep == 2) {
      add_groups<kBits, kRows, 2, 4>(unit, factors, stride, sum);
      add_groups<kBits, kRows, 4, 6>(unit, factors, stride, sum);
      add_groups<kBits, kRows, 6, 8>(unit, factors, stride, sum);
    }
  }
}

template <int kBits, int kRows>
void score_keys(const uint8_t* units, int64_t head_dim, const int8_t* q, const int32_t* start,
                int32_t* dots) {
  constexpr int64_t kUnit = unit_bytes(kBits);
  for (int token = 0; token < kPageTokens; token += kWidth) {
    __m256i sum[kRows];
    for (int r = 0; r < kRows; ++r) sum[r] = _mm256_set1_epi32(start[r]);
    const uint8_t* unit = units + token / kPageLane * kUnit + token % kPageLane * 4;
    for (int64_t d = 0; d < head_dim; d += kKeyUnitDims, unit += kPageLanes * kUnit) {
      add_unit<kBits, kRows>(unit, q + d, head_dim, sum);
    }
    for (int r = 0; r < kRows; ++r) store(dots + r * kPageTokens + token, sum[r]);
  }
}

template <int kBits, int kRows>
void add_values(const uint8_t* units, int64_t head_dim, const RowWeights* weights, float* out) {
  constexpr int64_t kUnit = unit_bytes(kBits), kStride = sizeof(RowWeights);
  for (int64_t d = 0; d < head_dim; d += kWidth) {
    __m256i sum[kPageHalves][kRows];
    const uint8_t* unit = units + d / kValueUnitDims * kPageHalves * kUnit + d % kValueUnitDims * 4;
    for (int h = 0; h < kPageHalves; ++h) {
      for (int r = 0; r < kRows; ++r) sum[h][r] = _mm256_set1_epi32(weights[r].start[h]);
      add_unit<kBits, kRows>(unit + h * kUnit, weights->p + h * kHalfTokens, kStride, sum[h]);
    }
    for (int r = 0; r < kRows; ++r) {
      float* row = out + r * head_dim + d;
      __m256 o = _mm256_fmadd_ps(_mm256_loadu_ps(row), _mm256_set1_ps(weights[r].keep),
                                 _mm256_set1_ps(weights[r].shift));
      for (int h = 0; h < kPageHalves; ++h) {
        o = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[h][r]), _mm256_set1_ps(weights[r].scale[h]), o);
      }
      _mm256_storeu_ps(row, o);
    }
  }
}

#include "kernels/rotated_attend.inc"
#include "kernels/rotated_codec.inc"

}  // namespace

const RotatedKernels kRotatedAvx2 = {encode, decode, prepare, attend, unrotate};

}  // namespace tierkv
