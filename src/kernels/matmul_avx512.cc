// AVX-512 with VNNI: one dot-product instruction multiplies 16 rows x 4 columns. The tile is 6
// tokens x 32 rows: each broadcast of inputs feeds two instructions, and 24 accumulators, four
// group vectors and the broadcast fill the 32 registers. (12 tokens x 16 rows was slower: bound by
// loads.)
#if defined(__x86_64__)
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12: _mm512_undefined_*, inlined
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/matmul.h"
#include "kernels/matmul_layout.h"

#define TIERKV_INLINE [[gnu::always_inline]] inline

namespace tierkv {
namespace {

constexpr int kTileTokens = 6;
constexpr int kTilePanels = 2;
constexpr int kStreamPanels = 4;  // when there is one token

using Codes = __m512i;   // a group vector: [16 rows][4 columns] unsigned bytes
using Inputs = __m512i;  // 4 int8 inputs, repeated for each row
using Floats = __m512;   // 16 rows

TIERKV_INLINE Codes load_codes(const uint8_t* src) { return _mm512_loadu_si512(src); }
TIERKV_INLINE void store_codes(uint8_t* dst, Codes c) { _mm512_storeu_si512(dst, c); }
TIERKV_INLINE Codes low_nibbles(Codes c) { return _mm512_and_si512(c, _mm512_set1_epi8(15)); }
TIERKV_INLINE Codes high_nibbles(Codes c) { return low_nibbles(_mm512_srli_epi16(c, 4)); }

// codes | (plane << kLeft & kMask), bytewise; the mask keeps what 16-bit shifts carry across bytes
// out.
template <int kLeft, int kMask>
TIERKV_INLINE Codes add_bits(Codes codes, Codes plane) {
  if constexpr (kLeft > 0) plane = _mm512_slli_epi16(plane, kLeft);
  if constexpr (kLeft < 0) plane = _mm512_srli_epi16(plane, -kLeft);
  return _mm512_ternarylogic_epi32(codes, plane, _mm512_set1_epi8(kMask), 0xf8);  // a | (b & c)
}

TIERKV_INLINE Inputs broadcast_inputs(const int8_t* src) {
  int32_t four;
  std::memcpy(&four, src, 4);
  __m512i all = _mm512_set1_epi32(four);
  asm("" : "+v"(all));  // else each dot product loads and broadcasts for itself
  return all;
}

constexpr int log2_of(int power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

// The integer dot product of a block: sum((code - kOffset) * q). `neg_sum` is -sum(q).
template <int kBits, int kOffset>
struct Dot {
  __m512i sum;

  TIERKV_INLINE void start(int32_t neg_sum) {
    const __m512i all = _mm512_set1_epi32(neg_sum);
    sum = kOffset == 0 ? _mm512_setzero_si512() : _mm512_slli_epi32(all, log2_of(kOffset));
  }
  TIERKV_INLINE void add(Codes codes, Inputs in) { sum = _mm512_dpbusd_epi32(sum, codes, in); }
  TIERKV_INLINE Floats finish(int32_t) const { return _mm512_cvtepi32_ps(sum); }
};

TIERKV_INLINE Floats zero_floats() { return _mm512_setzero_ps(); }
TIERKV_INLINE Floats all_floats(float x) { return _mm512_set1_ps(x); }
TIERKV_INLINE Floats load_floats(const float* src) { return _mm512_loadu_ps(src); }
TIERKV_INLINE void store_floats(float* dst, Floats x) { _mm512_storeu_ps(dst, x); }
TIERKV_INLINE Floats add_floats(Floats a, Floats b) { return _mm512_add_ps(a, b); }
TIERKV_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
TIERKV_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

TIERKV_INLINE __m256i load_halves(const void* src) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(src));
}
TIERKV_INLINE Floats load_f16(const void* src) { return _mm512_cvtph_ps(load_halves(src)); }
TIERKV_INLINE Floats load_bf16(const void* src) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(src)), 16));
}
TIERKV_INLINE __m128i load_bytes(const void* src) {
  return _mm_loadu_si128(static_cast<const __m128i*>(src));
}
TIERKV_INLINE Floats load_u8(const void* src) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_bytes(src)));
}
TIERKV_INLINE Floats load_s8(const void* src) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(src)));
}

// The largest |x| of 32 floats as bits: integers order as the magnitudes do, NaN above all.
TIERKV_INLINE uint32_t largest_magnitude_bits(const float* x) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  const __m512i a = _mm512_and_si512(_mm512_loadu_si512(x), mask);
  const __m512i b = _mm512_and_si512(_mm512_loadu_si512(x + 16), mask);
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)));
}

// q = x * inverse, rounded to nearest even, and the sums of each 16.
TIERKV_INLINE void round_block(const float* x, float inverse, int8_t* q, int32_t sums[2]) {
  const __m512 factor = _mm512_set1_ps(inverse);
  for (int half = 0; half < 2; ++half) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * half), factor);
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(scaled));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * half), bytes);
    __m128i sum = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), bytes);
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    sums[half] = _mm_cvtsi128_si32(sum);
  }
}

// Four vectors become one: lane 4 i + v of the result has the largest of lanes 4 i to 4 i + 3 of v.
TIERKV_INLINE __m512i fold_max(const __m512i (&v)[4]) {
  const __m512i ab =
      _mm512_max_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i cd =
      _mm512_max_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  return _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

// Four blocks side by side, so that reductions share their steps; to the bit what quantize_block()
// makes of each. False, and nothing is written, if one of them has no or infinite magnitude.
constexpr int kQuantizedAtOnce = 4;
bool quantize_blocks(const float* x, InputBlock* out) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  __m512i most[4];
  for (int b = 0; b < 4; ++b) {
    const __m512i low = _mm512_and_si512(_mm512_loadu_si512(x + 32 * b), mask);
    const __m512i high = _mm512_and_si512(_mm512_loadu_si512(x + 32 * b + 16), mask);
    most[b] = _mm512_max_epi32(low, high);
  }
  __m512i all = fold_max(most);
  all = _mm512_max_epi32(all, _mm512_shuffle_i32x4(all, all, 0x4e));
  all = _mm512_max_epi32(all, _mm512_shuffle_i32x4(all, all, 0xb1));
  const __m128 largest = _mm_castsi128_ps(_mm512_castsi512_si128(all));
  const __m128 tiny = _mm_cmplt_ps(largest, _mm_set1_ps(kTinyMagnitude));
  const __m128i infinite =
      _mm_cmpgt_epi32(_mm_castps_si128(largest), _mm_set1_epi32(kInfinityBits - 1));
  if (_mm_movemask_ps(_mm_or_ps(tiny, _mm_castsi128_ps(infinite))) != 0) return false;

  const __m512 factors = _mm512_broadcast_f32x4(_mm_div_ps(_mm_set1_ps(127.0f), largest));
  const __m128 d = _mm_div_ps(largest, _mm_set1_ps(127.0f));
  __m256i sums[4];  // of each 4 quantised
  const auto round = [&]<int b>(std::integral_constant<int, b>) {
    const __m512 factor = _mm512_permute_ps(factors, 0x55 * b);
    const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(x + 32 * b), factor);
    const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(x + 32 * b + 16), factor);
    const __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(high)),
                                       _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(low)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[b].q), q);
    sums[b] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  };
  round(std::integral_constant<int, 0>());
  round(std::integral_constant<int, 1>());
  round(std::integral_constant<int, 2>());
  round(std::integral_constant<int, 3>());
  const __m256i halves =
      _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
  const __m128i first = _mm256_castsi256_si128(halves);
  const __m128i sum = _mm_add_epi32(first, _mm256_extracti128_si256(halves, 1));
  // [d, d_sum, -sum, -first half] of each block, as InputBlock has them behind q.
  const __m128 d_sum = _mm_mul_ps(d, _mm_cvtepi32_ps(sum));
  const __m128i ab_low = _mm_unpacklo_epi32(_mm_castps_si128(d), _mm_castps_si128(d_sum));
  const __m128i ab_high = _mm_unpackhi_epi32(_mm_castps_si128(d), _mm_castps_si128(d_sum));
  const __m128i neg_sum = _mm_sub_epi32(_mm_setzero_si128(), sum);
  const __m128i neg_half = _mm_sub_epi32(_mm_setzero_si128(), first);
  const __m128i cd_low = _mm_unpacklo_epi32(neg_sum, neg_half);
  const __m128i cd_high = _mm_unpackhi_epi32(neg_sum, neg_half);
  const auto store = [&](int b, __m128i behind) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(&out[b].d), behind);
  };
  store(0, _mm_unpacklo_epi64(ab_low, cd_low));
  store(1, _mm_unpackhi_epi64(ab_low, cd_low));
  store(2, _mm_unpacklo_epi64(ab_high, cd_high));
  store(3, _mm_unpackhi_epi64(ab_high, cd_high));
  return true;
}

}  // namespace
}  // namespace tierkv

#include "kernels/matmul.inc"

namespace tierkv {
const MatmulKernels kMatmulAvx512 = {quantize, matmul};
}  // namespace tierkv

#endif
