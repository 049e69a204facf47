// Sixteen lanes, with masks for parts.
#if defined(__x86_64__)
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12: _mm512_undefined_*, inlined
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/vector.h"

#define TIERKV_INLINE [[gnu::always_inline]] inline
#define TIERKV_LAMBDA __attribute__((always_inline))

namespace tierkv {
namespace {

constexpr int kWidth = 16;
using Floats = __m512;
struct Doubles {
  __m512d a, b;
};

TIERKV_INLINE Floats all_floats(float x) { return _mm512_set1_ps(x); }
TIERKV_INLINE Floats load_floats(const float* src) { return _mm512_loadu_ps(src); }
TIERKV_INLINE void store_floats(float* dst, Floats x) { _mm512_storeu_ps(dst, x); }
TIERKV_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
TIERKV_INLINE Floats load_part(const float* src, int n, float absent) {
  return _mm512_mask_loadu_ps(all_floats(absent), first_lanes(n), src);
}
TIERKV_INLINE void store_part(float* dst, int n, Floats x) {
  _mm512_mask_storeu_ps(dst, first_lanes(n), x);
}

TIERKV_INLINE Floats add_floats(Floats a, Floats b) { return _mm512_add_ps(a, b); }
TIERKV_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
TIERKV_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
TIERKV_INLINE Floats multiply_subtract(Floats a, Floats b, Floats c) {
  return _mm512_fmsub_ps(a, b, c);
}
TIERKV_INLINE Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
// vmaxps gives its second operand when either is NaN.
TIERKV_INLINE Floats larger_or_second(Floats a, Floats b) { return _mm512_max_ps(a, b); }
TIERKV_INLINE Floats clamp_keeping_nan(Floats x, float low, float high) {
  return _mm512_min_ps(all_floats(high), _mm512_max_ps(all_floats(low), x));
}
TIERKV_INLINE Floats round_floats(Floats x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TIERKV_INLINE Floats scale_by_power(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
TIERKV_INLINE float sum_lanes(Floats x) { return _mm512_reduce_add_ps(x); }
TIERKV_INLINE float max_lanes(Floats x) { return _mm512_reduce_max_ps(x); }

TIERKV_INLINE Doubles zero_doubles() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
TIERKV_INLINE Doubles add_to_doubles(Doubles sum, Floats x) {
  return {_mm512_add_pd(sum.a, _mm512_cvtps_pd(_mm512_castps512_ps256(x))),
          _mm512_add_pd(sum.b, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)))};
}
TIERKV_INLINE double sum_doubles(Doubles x) {
  return _mm512_reduce_add_pd(_mm512_add_pd(x.a, x.b));
}

TIERKV_INLINE Floats load_f16(const uint16_t* src) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(src)));
}
TIERKV_INLINE void store_f16(uint16_t* dst, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// a b c ... -> a a b b c c ...
TIERKV_INLINE Floats load_each_twice(const float* src) {
  const __m512i lane = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(lane, _mm512_castps256_ps512(_mm256_loadu_ps(src)));
}
// Pairs (x, y) -> (x c - y s, y c + x s).
TIERKV_INLINE Floats rotate_adjacent(Floats x, Floats c, Floats s) {
  const Floats swapped = _mm512_permute_ps(x, 0xb1);
  return _mm512_fmaddsub_ps(x, c, multiply(swapped, s));
}

}  // namespace
}  // namespace tierkv

#include "kernels/vector.inc"

namespace tierkv {
const VectorKernels kVectorAvx512 = kVectorKernels;
}  // namespace tierkv

#endif
