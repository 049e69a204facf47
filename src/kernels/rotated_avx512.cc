// The rotated codec's integer products on AVX-512 with VNNI.
#include <immintrin.h>

// GCC 12 takes the deliberately undefined operands inside its own header for mistakes.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <cmath>
#include <utility>

#include "kernels/rotated.h"
#include "kernels/rotated_layout.h"

namespace tierkv {
namespace {

constexpr int kWidth = 16;
constexpr int kMaxGroup = 8;
constexpr int kBatch = 4;
constexpr int kMeanZero = 128;
constexpr int kLevelZero = 128;

#include "kernels/rotated_vector.inc"
#include "kernels/rotated_weights.inc"

Vec multiply_add(Vec a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps(a, b, c); }

bool any_above(Vec x, float y) { return _mm512_cmp_ps_mask(x, _mm512_set1_ps(y), _CMP_GT_OQ) != 0; }

// Folds lanes 8 apart, then 4, 2 and 1, of up to 8 vectors together. Each step puts two vectors'
// remaining lanes into one.
template <typename V, typename F>
V fold_by_8(V a, V b, F op) {
  return op(
      __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
      __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
}
template <typename V, typename F>
V fold_by_4(V a, V b, F op) {
  return op(
      __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
      __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
}
template <typename V, typename F>
V fold_by_2(V a, V b, F op) {
  return op(
      __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
      __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
}
template <typename V, typename F>
V fold_by_1(V a, F op) {
  return op(a, __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
}

template <int n, typename V, typename T, typename F>
void reduce_each(const V (&x)[n], T (&to)[n], F op) {
  const auto at = [&](int i) { return x[i < n ? i : n - 1]; };
  const auto four = [&](int i) {
    const V first = fold_by_8(at(i), at(i + 1), op);
    return fold_by_4(first, n > i + 2 ? fold_by_8(at(i + 2), at(i + 3), op) : first, op);
  };
  const V low = four(0);
  const V all = fold_by_1(fold_by_2(low, n > 4 ? four(4) : low, op), op);
  // Vector i is in lane 4i, or 4 (i - 4) + 2.
  const V ordered =
      __builtin_shufflevector(all, all, 0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  __builtin_memcpy(to, &ordered, sizeof to);
}

IntVec store_weights(int8_t* to, Vec x) {
  const __m512i codes = _mm512_cvtps_epi32(x);
  _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes));
  return (IntVec)codes;
}

IntVec dot_lanes(const int8_t* q, const int8_t* mean, int64_t n) {
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(kMeanZero));
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 64) {
    // Of 32 dims the mean is padded, the queries are not.
    const __mmask64 there = n - i < 64 ? 0xffffffff : ~__mmask64{0};
    sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(load<__m512i>(mean + i), zero),
                              _mm512_maskz_loadu_epi8(there, q + i));
  }
  return (IntVec)sum;
}

// --- unpacking ---

template <int kGroup>
struct Group {
  static constexpr int value = kGroup;
};

template <typename F>
[[gnu::always_inline]] inline void for_groups(F f) {
  f(Group<0>()), f(Group<1>()), f(Group<2>()), f(Group<3>());
  f(Group<4>()), f(Group<5>()), f(Group<6>()), f(Group<7>());
}

// A group's pieces of a plane of kBits, moved to bit kTo of their bytes; other bits are garbage.
template <int kBits, int kGroup, int kTo>
__m512i piece(const uint8_t* plane) {
  constexpr int kGroups = 8 / kBits, kShift = kGroup % kGroups * kBits - kTo;
  const __m512i v = _mm512_load_si512(plane + kGroup / kGroups * kGroupCodes);
  if constexpr (kShift > 0)
    return _mm512_srli_epi16(v, kShift);
  else if constexpr (kShift < 0)
    return _mm512_slli_epi16(v, -kShift);
  else
    return v;
}

// The levels of a width plus kLevelZero, over and over: whatever lies in an index above its code's
// bits, of which the permutation takes six, it finds the code's level.
struct alignas(64) RepeatedLevels {
  uint8_t level[64];
};
constexpr RepeatedLevels repeated_levels(int bits) {
  const LevelTable table = level_table(bits);
  RepeatedLevels repeated{};
  for (int i = 0; i < 64; ++i) {
    repeated.level[i] = static_cast<uint8_t>(table.level[i & ((1 << bits) - 1)] + kLevelZero);
  }
  return repeated;
}

// What a dot product takes for a group's codes: themselves, or their levels plus kLevelZero.
template <int kBits, int kGroup>
__m512i factors(const uint8_t* unit) {
  constexpr int kLow = low_plane_bits(kBits), kHigh = kBits - kLow;
  if constexpr (kBits == 8) {
    return _mm512_load_si512(unit + kGroup * kGroupCodes);
  } else if constexpr (curved(kBits)) {
    static constexpr RepeatedLevels kLevels = repeated_levels(kBits);
    __m512i index = piece<kLow, kGroup, 0>(unit);
    if constexpr (kHigh > 0) {
      const __m512i high = piece<kHigh, kGroup, kLow>(unit + unit_bytes(kLow));
      const __m512i mask = _mm512_set1_epi8(((1 << kHigh) - 1) << kLow);
      index = _mm512_ternarylogic_epi32(mask, high, index, 0xca);  // mask ? high : index
    }
    return _mm512_permutexvar_epi8(index, _mm512_load_si512(kLevels.level));
  } else {
    const __m512i low =
        _mm512_and_si512(piece<kLow, kGroup, 0>(unit), _mm512_set1_epi8((1 << kLow) - 1));
    if constexpr (kHigh == 0) {
      return low;
    } else {
      const __m512i high = piece<kHigh, kGroup, kLow>(unit + unit_bytes(kLow));
      const __m512i mask = _mm512_set1_epi8(((1 << kHigh) - 1) << kLow);
      return _mm512_ternarylogic_epi32(low, high, mask, 0xf8);  // low | (high & mask)
    }
  }
}

// Four signed bytes in every lane.
__m512i broadcast4(const int8_t* from) { return _mm512_set1_epi32(load<int32_t>(from)); }

// --- products ---

template <int kBits, int kRows>
void score_keys(const uint8_t* units, int64_t head_dim, const int8_t* q, const int32_t* start,
                int32_t* dots) {
  constexpr int kLanes = kRows <= 2 ? 4 : 2;  // enough independent sums to hide their latency
  constexpr int64_t kUnit = unit_bytes(kBits);
  for (int lane = 0; lane < kPageLanes; lane += kLanes) {
    __m512i sum[kRows][kLanes];
    for (int r = 0; r < kRows; ++r) {
      for (int l = 0; l < kLanes; ++l) sum[r][l] = _mm512_set1_epi32(start[r]);
    }
    for (int64_t d = 0; d < head_dim; d += kKeyUnitDims) {
      const uint8_t* unit = units + (d / kKeyUnitDims * kPageLanes + lane) * kUnit;
      for_groups([&](auto group) __attribute__((always_inline)) {
        constexpr int g = decltype(group)::value;
        __m512i code[kLanes];
        for (int l = 0; l < kLanes; ++l) code[l] = factors<kBits, g>(unit + l * kUnit);
        for (int r = 0; r < kRows; ++r) {
          const __m512i query = broadcast4(q + r * head_dim + d + 4 * g);
          for (int l = 0; l < kLanes; ++l) {
            sum[r][l] = _mm512_dpbusd_epi32(sum[r][l], code[l], query);
          }
        }
      });
    }
    for (int r = 0; r < kRows; ++r) {
      for (int l = 0; l < kLanes; ++l) {
        _mm512_store_si512(dots + r * kPageTokens + (lane + l) * kPageLane, sum[r][l]);
      }
    }
  }
}

void update_output(const RowWeights& weights, const __m512i* sum, float* out) {
  __m512 o = _mm512_fmadd_ps(_mm512_loadu_ps(out), _mm512_set1_ps(weights.keep),
                             _mm512_set1_ps(weights.shift));
  for (int half = 0; half < kPageHalves; ++half) {
    o = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[half]), _mm512_set1_ps(weights.scale[half]), o);
  }
  _mm512_storeu_ps(out, o);
}

template <int kBits, int kRows>
void add_values(const uint8_t* units, int64_t head_dim, const RowWeights* weights, float* out) {
  constexpr int64_t kUnit = unit_bytes(kBits);
  for (int64_t d = 0; d < head_dim; d += kValueUnitDims, units += kPageHalves * kUnit) {
    __m512i sum[kRows][kPageHalves];
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < kPageHalves; ++h) sum[r][h] = _mm512_set1_epi32(weights[r].start[h]);
    }
    for_groups([&](auto group) __attribute__((always_inline)) {
      constexpr int g = decltype(group)::value;
      for (int h = 0; h < kPageHalves; ++h) {
        const __m512i code = factors<kBits, g>(units + h * kUnit);
        for (int r = 0; r < kRows; ++r) {
          const __m512i p = broadcast4(weights[r].p + h * kHalfTokens + 4 * g);
          sum[r][h] = _mm512_dpbusd_epi32(sum[r][h], code, p);
        }
      }
    });
    for (int r = 0; r < kRows; ++r) update_output(weights[r], sum[r], out + r * head_dim + d);
  }
}

#include "kernels/rotated_attend.inc"
#include "kernels/rotated_codec.inc"

}  // namespace

const RotatedKernels kRotatedAvx512 = {encode, decode, prepare, attend, unrotate};

}  // namespace tierkv
