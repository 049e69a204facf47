// AVX2: u8 x s8 products come in pairs summed to 16 bits (maddubs), which 4-bit codes can
// accumulate for a whole block without overflow: 8 groups * 2 * 15 * 127 = 30,480. Wider codes are
// widened to 32 bits at each group. A group vector is two registers, so the tile is 4 tokens x 16
// rows.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/matmul_layout.h"

#define TIERKV_INLINE [[gnu::always_inline]] inline

namespace tierkv {
namespace {

constexpr int kTileTokens = 4;
constexpr int kTilePanels = 1;
constexpr int kStreamPanels = 4;  // when there is one token

struct Codes {  // a group vector: [16 rows][4 columns] unsigned bytes
  __m256i a, b;
};
using Inputs = __m256i;  // 4 int8 inputs, repeated for each row
struct Floats {          // 16 rows
  __m256 a, b;
};

TIERKV_INLINE __m256i load_256(const void* src) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(src));
}
TIERKV_INLINE void store_256(void* dst, __m256i x) {
  _mm256_storeu_si256(static_cast<__m256i*>(dst), x);
}
TIERKV_INLINE __m128i load_128(const void* src) {
  return _mm_loadu_si128(static_cast<const __m128i*>(src));
}

TIERKV_INLINE Codes load_codes(const uint8_t* src) { return {load_256(src), load_256(src + 32)}; }
TIERKV_INLINE void store_codes(uint8_t* dst, Codes c) {
  store_256(dst, c.a);
  store_256(dst + 32, c.b);
}
TIERKV_INLINE Codes low_nibbles(Codes c) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(c.a, mask), _mm256_and_si256(c.b, mask)};
}
TIERKV_INLINE Codes high_nibbles(Codes c) {
  return low_nibbles({_mm256_srli_epi16(c.a, 4), _mm256_srli_epi16(c.b, 4)});
}

template <int kLeft, int kMask>
TIERKV_INLINE __m256i add_bits_256(__m256i codes, __m256i plane) {
  if constexpr (kLeft > 0) plane = _mm256_slli_epi16(plane, kLeft);
  if constexpr (kLeft < 0) plane = _mm256_srli_epi16(plane, -kLeft);
  return _mm256_or_si256(codes, _mm256_and_si256(plane, _mm256_set1_epi8(kMask)));
}

// codes | (plane << kLeft & kMask), bytewise; the mask keeps what 16-bit shifts carry across bytes
// out.
template <int kLeft, int kMask>
TIERKV_INLINE Codes add_bits(Codes codes, Codes plane) {
  return {add_bits_256<kLeft, kMask>(codes.a, plane.a),
          add_bits_256<kLeft, kMask>(codes.b, plane.b)};
}

TIERKV_INLINE Inputs broadcast_inputs(const int8_t* src) {
  int32_t four;
  std::memcpy(&four, src, 4);
  return _mm256_set1_epi32(four);
}

TIERKV_INLINE __m256i widen(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// 8-bit codes pass what maddubs can hold as unsigned; |code - 128| * (q with the code's sign) fits:
// 2 * 128 * 127 < 2^15. Their offset is gone with that.
TIERKV_INLINE __m256i signed_products(__m256i codes, __m256i in) {
  const __m256i weight = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(in, weight));
}

constexpr int log2_of(int power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

// The integer dot product of a block: sum((code - kOffset) * q). `neg_sum` is -sum(q).
template <int kBits, int kOffset>
struct Dot {
  __m256i a, b;  // 16-bit lanes for 4-bit codes, else 32-bit

  TIERKV_INLINE void start(int32_t) { a = b = _mm256_setzero_si256(); }
  TIERKV_INLINE void add(const Codes& codes, Inputs in) {
    a = add_products(a, codes.a, in);
    b = add_products(b, codes.b, in);
  }
  TIERKV_INLINE Floats finish(int32_t neg_sum) const {
    return {to_floats(a, neg_sum), to_floats(b, neg_sum)};
  }

 private:
  TIERKV_INLINE static __m256i add_products(__m256i sum, __m256i codes, __m256i in) {
    if constexpr (kBits == 4) return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, in));
    if constexpr (kBits == 8) return _mm256_add_epi32(sum, widen(signed_products(codes, in)));
    return _mm256_add_epi32(sum, widen(_mm256_maddubs_epi16(codes, in)));
  }
  TIERKV_INLINE static __m256 to_floats(__m256i sum, int32_t neg_sum) {
    if constexpr (kBits == 4) sum = widen(sum);
    if constexpr (kOffset != 0 && kBits != 8) {
      const __m256i correction = _mm256_slli_epi32(_mm256_set1_epi32(neg_sum), log2_of(kOffset));
      sum = _mm256_add_epi32(sum, correction);
    }
    return _mm256_cvtepi32_ps(sum);
  }
};

TIERKV_INLINE Floats all_floats(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
TIERKV_INLINE Floats zero_floats() { return all_floats(0); }
TIERKV_INLINE Floats load_floats(const float* src) {
  return {_mm256_loadu_ps(src), _mm256_loadu_ps(src + 8)};
}
TIERKV_INLINE void store_floats(float* dst, Floats x) {
  _mm256_storeu_ps(dst, x.a);
  _mm256_storeu_ps(dst + 8, x.b);
}
TIERKV_INLINE Floats add_floats(Floats x, Floats y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
TIERKV_INLINE Floats multiply(Floats x, Floats y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
TIERKV_INLINE Floats multiply_add(Floats x, Floats y, Floats z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

TIERKV_INLINE Floats load_f16(const void* src) {
  const __m256i halves = load_256(src);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
TIERKV_INLINE __m256 bf16_to_floats(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
TIERKV_INLINE Floats load_bf16(const void* src) {
  const __m256i halves = load_256(src);
  return {bf16_to_floats(_mm256_castsi256_si128(halves)),
          bf16_to_floats(_mm256_extracti128_si256(halves, 1))};
}
TIERKV_INLINE Floats load_u8(const void* src) {
  const __m128i bytes = load_128(src);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}
TIERKV_INLINE Floats load_s8(const void* src) {
  const __m128i bytes = load_128(src);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

// The largest |x| of 32 floats as bits: integers order as the magnitudes do, NaN above all.
TIERKV_INLINE uint32_t largest_magnitude_bits(const float* x) {
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < 32; i += 8) {
    const __m256i bits = _mm256_and_si256(load_256(x + i), _mm256_set1_epi32(0x7fffffff));
    most = _mm256_max_epi32(most, bits);
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

// q = x * inverse, rounded to nearest even, and the sums of each 16.
TIERKV_INLINE void round_block(const float* x, float inverse, int8_t* q, int32_t sums[2]) {
  const __m256 factor = _mm256_set1_ps(inverse);
  for (int half = 0; half < 2; ++half) {
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * half), factor));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * half + 8), factor));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * half), bytes);
    const __m256i pairs = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    sums[half] = _mm_cvtsi128_si32(sum);
  }
}

constexpr int kQuantizedAtOnce = 1;
bool quantize_blocks(const float*, InputBlock*) { return false; }

}  // namespace
}  // namespace tierkv

#include "kernels/matmul.inc"

namespace tierkv {
const MatmulKernels kMatmulAvx2 = {quantize, matmul};
}  // namespace tierkv

#endif
