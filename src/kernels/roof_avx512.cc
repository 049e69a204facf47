#if defined(__x86_64__)
#include <cstring>

#include "kernels/isa.h"
#include "kernels/roof.h"
#include "kernels/simd_avx512.h"

namespace tierkv {
namespace {

inline void opaque(__m512i& x) { asm volatile("" : "+v"(x)); }
inline void opaque(Vec& x) { asm volatile("" : "+v"(x.v)); }

class Int8Ones {  // VNNI
 public:
  using Sum = __m512i;
  static Sum zero() { return _mm512_setzero_si512(); }
  Sum add(Sum sum) {
    opaque(bytes_);
    return _mm512_dpbusd_epi32(sum, bytes_, bytes_);
  }
  static int64_t count(Sum sum) { return _mm512_reduce_add_epi32(sum); }

 private:
  __m512i bytes_ = _mm512_set1_epi8(1);
};

using Words = __m512i;
inline Words zero_words() { return _mm512_setzero_si512(); }
inline Words load_words(const std::byte* src) { return _mm512_loadu_si512(src); }
inline Words add_words(Words a, Words b) { return _mm512_add_epi64(a, b); }

#include "kernels/roof.inc"

// Not every CPU with VNNI has bfloat16 dot products, so this function alone is compiled for them:
// what it shares with others could not be inlined here.
__attribute__((target("avx512bf16"))) int64_t count_bf16_products(int64_t rounds) {
  __m512i ones = _mm512_set1_epi16(0x3f80);
  __m512 sums[kChains];
  TIERKV_UNROLL
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
    TIERKV_UNROLL
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+v"(ones));
      sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)ones, (__m512bh)ones);
    }
  }
  int64_t total = 0;
  TIERKV_UNROLL
  for (int i = 0; i < kChains; ++i) total += static_cast<int64_t>(_mm512_cvtss_f32(sums[i]));
  return total * 16;
}

int64_t bf16_dot(int64_t rounds) { return cpu_multiplies_bf16() ? count_bf16_products(rounds) : 0; }

}  // namespace

const RoofKernels kRoofAvx512 = {count_products<Int8Ones>, bf16_dot, count_products<F32Ones>,
                                 read_all};

}  // namespace tierkv
#endif
