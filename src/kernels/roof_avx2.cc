#if defined(__x86_64__)
#include <cstring>

#include "kernels/roof.h"
#include "kernels/simd_avx2.h"

namespace tierkv {
namespace {

inline void opaque(__m256i& x) { asm volatile("" : "+x"(x)); }
inline void opaque(Vec& x) { asm volatile("" : "+x"(x.v)); }

// Unsigned times signed bytes, summed by fours in two steps, as matmul_avx2.cc does.
class Int8Ones {
 public:
  using Sum = __m256i;
  static Sum zero() { return _mm256_setzero_si256(); }
  Sum add(Sum sum) {
    opaque(bytes_);
    const __m256i pairs = _mm256_maddubs_epi16(bytes_, bytes_);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, words_));
  }
  static int64_t count(Sum sum) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
    int64_t total = 0;
    for (const int32_t lane : lanes) total += lane;
    return total;
  }

 private:
  __m256i bytes_ = _mm256_set1_epi8(1), words_ = _mm256_set1_epi16(1);
};

using Words = __m256i;
inline Words zero_words() { return _mm256_setzero_si256(); }
inline Words load_words(const std::byte* src) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
}
inline Words add_words(Words a, Words b) { return _mm256_add_epi64(a, b); }

#include "kernels/roof.inc"

int64_t no_bf16(int64_t) { return 0; }

}  // namespace

const RoofKernels kRoofAvx2 = {count_products<Int8Ones>, no_bf16, count_products<F32Ones>,
                               read_all};

}  // namespace tierkv
#endif
