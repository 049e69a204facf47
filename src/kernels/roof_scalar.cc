#include <cstring>

#include "kernels/roof.h"
#include "kernels/simd_scalar.h"

namespace tierkv {
namespace {

inline void opaque(int32_t& x) { asm volatile("" : "+r"(x)); }
inline void opaque(Vec& x) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(x.v));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(x.v));
#else
  asm volatile("" : "+m"(x.v));
#endif
}

class Int8Ones {
 public:
  using Sum = int32_t;
  static Sum zero() { return 0; }
  Sum add(Sum sum) {
    opaque(one_);
    return sum + one_ * one_;
  }
  static int64_t count(Sum sum) { return sum; }

 private:
  int32_t one_ = 1;
};

using Words = uint64_t;
inline Words zero_words() { return 0; }
inline Words load_words(const std::byte* src) {
  Words words;
  std::memcpy(&words, src, sizeof words);
  return words;
}
inline Words add_words(Words a, Words b) { return a + b; }

#include "kernels/roof.inc"

int64_t no_bf16(int64_t) { return 0; }

}  // namespace

const RoofKernels kRoofScalar = {count_products<Int8Ones>, no_bf16, count_products<F32Ones>,
                                 read_all};

}  // namespace tierkv
