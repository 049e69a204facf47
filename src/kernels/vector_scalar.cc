// One lane: plain C++.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "kernels/vector.h"

#define TIERKV_INLINE inline
#define TIERKV_LAMBDA

namespace tierkv {
namespace {

constexpr int kWidth = 1;
using Floats = float;
using Doubles = double;

inline Floats all_floats(float x) { return x; }
inline Floats load_floats(const float* src) { return *src; }
inline void store_floats(float* dst, Floats x) { *dst = x; }
inline Floats load_part(const float*, int, float absent) { return absent; }  // parts are empty
inline void store_part(float*, int, Floats) {}

inline Floats add_floats(Floats a, Floats b) { return a + b; }
inline Floats multiply(Floats a, Floats b) { return a * b; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
inline Floats multiply_subtract(Floats a, Floats b, Floats c) { return a * b - c; }
inline Floats divide(Floats a, Floats b) { return a / b; }
inline Floats larger_or_second(Floats a, Floats b) { return a > b ? a : b; }
inline Floats clamp_keeping_nan(Floats x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}
inline Floats round_floats(Floats x) { return std::nearbyint(x); }
inline Floats power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
// x * 2^n in two steps, as 2^n itself may be out of range.
inline Floats scale_by_power(Floats x, Floats n) {
  if (n != n) return n;
  const int whole = static_cast<int>(n), half = whole / 2;
  return x * power_of_two(half) * power_of_two(whole - half);
}
inline float sum_lanes(Floats x) { return x; }
inline float max_lanes(Floats x) { return x; }

inline Doubles zero_doubles() { return 0; }
inline Doubles add_to_doubles(Doubles sum, Floats x) { return sum + static_cast<double>(x); }
inline double sum_doubles(Doubles x) { return x; }

inline Floats load_f16(const uint16_t* src) { return f16_to_f32(*src); }
inline void store_f16(uint16_t* dst, Floats x) { *dst = f32_to_f16(x); }

// Not called: one lane holds no pair.
[[maybe_unused]] inline Floats load_each_twice(const float* src) { return *src; }
[[maybe_unused]] inline Floats rotate_adjacent(Floats x, Floats, Floats) { return x; }

}  // namespace
}  // namespace tierkv

#include "kernels/vector.inc"

namespace tierkv {
const VectorKernels kVectorScalar = kVectorKernels;
}  // namespace tierkv
