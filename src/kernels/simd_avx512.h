// A vector of sixteen floats (AVX-512 F, DQ). The names and rules are those of simd_scalar.h.
#pragma once

// GCC 12 reports its own "undefined" vectors as uninitialised (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstdint>

namespace tierkv {
namespace {

constexpr int kVecFloats = 16;
constexpr int kVecRegisters = 32;

struct Vec {
  __m512 v;
};

inline Vec vec_set(float x) { return {_mm512_set1_ps(x)}; }
inline Vec vec_zero() { return {_mm512_setzero_ps()}; }
inline Vec vec_load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec vec_load(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void vec_store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline void vec_store(uint16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec vec_fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec vec_max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec vec_round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec vec_pow2(Vec a) { return {_mm512_scalef_ps(_mm512_set1_ps(1.0f), a.v)}; }
inline Vec vec_abs(Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
inline Vec vec_copy_sign(Vec magnitude, Vec sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
inline Vec vec_if_less(Vec a, Vec b, Vec then, Vec otherwise) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), otherwise.v, then.v)};
}

inline float vec_first(Vec a) { return _mm512_cvtss_f32(a.v); }
inline float vec_reduce_add(Vec a) { return _mm512_reduce_add_ps(a.v); }
inline float vec_reduce_max(Vec a) { return _mm512_reduce_max_ps(a.v); }

}  // namespace
}  // namespace tierkv

#include "kernels/simd_common.inc"
