// A vector of eight floats (AVX2, FMA, F16C). The names and rules are those of simd_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tierkv {
namespace {

constexpr int kVecFloats = 8;
constexpr int kVecRegisters = 16;

struct Vec {
  __m256 v;
};

inline Vec vec_set(float x) { return {_mm256_set1_ps(x)}; }
inline Vec vec_zero() { return {_mm256_setzero_ps()}; }
inline Vec vec_load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline Vec vec_load(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void vec_store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
inline void vec_store(uint16_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec vec_fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec vec_max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec vec_round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec vec_pow2(Vec a) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(a.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}
inline Vec vec_abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline Vec vec_copy_sign(Vec magnitude, Vec sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.v), _mm256_and_ps(bit, sign.v))};
}
inline Vec vec_if_less(Vec a, Vec b, Vec then, Vec otherwise) {
  return {_mm256_blendv_ps(otherwise.v, then.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}

inline float vec_first(Vec a) { return _mm256_cvtss_f32(a.v); }
inline float vec_reduce_add(Vec a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float vec_reduce_max(Vec a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

}  // namespace
}  // namespace tierkv

#include "kernels/simd_common.inc"
