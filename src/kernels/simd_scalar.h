// A "vector" of one float in plain C++, for machines without a build of their own: what kernel
// sources
// (*.inc) are written in. simd_avx2.h and simd_avx512.h define the same names over their registers,
// so an algorithm is written once and built per ISA. A source file includes exactly one of the
// three. All of it is in an anonymous namespace: the linker must never merge code built for one ISA
// with another's.
//
// Rules all three keep: vec_max(a, b) is a > b ? a : b (so a NaN in b stays), operations round to
// nearest even, and reductions add in an order that is fixed per ISA. Only vec_fma differs: here it
// rounds twice, as a fused one would be a library call.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.h"

namespace tierkv {
namespace {

constexpr int kVecFloats = 1;
constexpr int kVecRegisters = 16;  // what register tiles may count on

struct Vec {
  float v;
};

inline Vec vec_set(float x) { return {x}; }
inline Vec vec_zero() { return {0.0f}; }
inline Vec vec_load(const float* p) { return {*p}; }
inline Vec vec_load(const uint16_t* p) { return {f16_to_f32(*p)}; }  // float16
inline void vec_store(float* p, Vec a) { *p = a.v; }
inline void vec_store(uint16_t* p, Vec a) { *p = f32_to_f16(a.v); }

inline Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
inline Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
inline Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
inline Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
inline Vec vec_fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
inline Vec vec_max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
inline Vec vec_round(Vec a) { return {a.v + 0x1.8p23f - 0x1.8p23f}; }  // |a| < 2^22
inline Vec vec_pow2(Vec a) {  // 2^a for whole a in [-126, 127]; NaN gives anything
  const float biased = a.v + 127.0f;
  return {std::bit_cast<float>(biased > 0 ? static_cast<uint32_t>(biased) << 23 : 0u)};
}
inline Vec vec_abs(Vec a) { return {std::fabs(a.v)}; }
inline Vec vec_copy_sign(Vec magnitude, Vec sign) { return {std::copysign(magnitude.v, sign.v)}; }
inline Vec vec_if_less(Vec a, Vec b, Vec then, Vec otherwise) {
  return a.v < b.v ? then : otherwise;
}

inline float vec_first(Vec a) { return a.v; }
inline float vec_reduce_add(Vec a) { return a.v; }
inline float vec_reduce_max(Vec a) { return a.v; }

}  // namespace
}  // namespace tierkv

#include "kernels/simd_common.inc"
