// Eight lanes.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/vector.h"

#define TIERKV_INLINE [[gnu::always_inline]] inline
#define TIERKV_LAMBDA __attribute__((always_inline))

namespace tierkv {
namespace {

constexpr int kWidth = 8;
using Floats = __m256;
struct Doubles {
  __m256d a, b;
};

TIERKV_INLINE Floats all_floats(float x) { return _mm256_set1_ps(x); }
TIERKV_INLINE Floats load_floats(const float* src) { return _mm256_loadu_ps(src); }
TIERKV_INLINE void store_floats(float* dst, Floats x) { _mm256_storeu_ps(dst, x); }
TIERKV_INLINE __m256i first_lanes(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}
TIERKV_INLINE Floats load_part(const float* src, int n, float absent) {
  const __m256i mask = first_lanes(n);
  return _mm256_blendv_ps(all_floats(absent), _mm256_maskload_ps(src, mask),
                          _mm256_castsi256_ps(mask));
}
TIERKV_INLINE void store_part(float* dst, int n, Floats x) {
  _mm256_maskstore_ps(dst, first_lanes(n), x);
}

TIERKV_INLINE Floats add_floats(Floats a, Floats b) { return _mm256_add_ps(a, b); }
TIERKV_INLINE Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
TIERKV_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
TIERKV_INLINE Floats multiply_subtract(Floats a, Floats b, Floats c) {
  return _mm256_fmsub_ps(a, b, c);
}
TIERKV_INLINE Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
// vmaxps gives its second operand when either is NaN.
TIERKV_INLINE Floats larger_or_second(Floats a, Floats b) { return _mm256_max_ps(a, b); }
TIERKV_INLINE Floats clamp_keeping_nan(Floats x, float low, float high) {
  return _mm256_min_ps(all_floats(high), _mm256_max_ps(all_floats(low), x));
}
TIERKV_INLINE Floats round_floats(Floats x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TIERKV_INLINE Floats power_of_two(__m256i exponent) {
  const __m256i biased = _mm256_add_epi32(exponent, _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
// x * 2^n in two steps, as 2^n itself may be out of range.
TIERKV_INLINE Floats scale_by_power(Floats x, Floats n) {
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  return multiply(multiply(x, power_of_two(half)), power_of_two(rest));
}
TIERKV_INLINE float sum_lanes(Floats x) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
TIERKV_INLINE float max_lanes(Floats x) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

TIERKV_INLINE Doubles zero_doubles() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
TIERKV_INLINE Doubles add_to_doubles(Doubles sum, Floats x) {
  return {_mm256_add_pd(sum.a, _mm256_cvtps_pd(_mm256_castps256_ps128(x))),
          _mm256_add_pd(sum.b, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)))};
}
TIERKV_INLINE double sum_doubles(Doubles x) {
  double lanes[4];
  _mm256_storeu_pd(lanes, _mm256_add_pd(x.a, x.b));
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

TIERKV_INLINE Floats load_f16(const uint16_t* src) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src)));
}
TIERKV_INLINE void store_f16(uint16_t* dst, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(dst),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// a b c d -> a a b b c c d d.
TIERKV_INLINE Floats load_each_twice(const float* src) {
  const __m256i lane = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(src)), lane);
}
// Pairs (x, y) -> (x c - y s, y c + x s).
TIERKV_INLINE Floats rotate_adjacent(Floats x, Floats c, Floats s) {
  const Floats swapped = _mm256_permute_ps(x, 0xb1);
  return _mm256_fmaddsub_ps(x, c, multiply(swapped, s));
}

}  // namespace
}  // namespace tierkv

#include "kernels/vector.inc"

namespace tierkv {
const VectorKernels kVectorAvx2 = kVectorKernels;
}  // namespace tierkv

#endif
