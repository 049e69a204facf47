#include "kernels/kernels.h"

namespace tierkv {

const Kernels& kernels_for(Isa isa) {
  static const Kernels scalar = {Isa::kScalar, &kMatmulScalar, &kVectorScalar, &kAttentionScalar,
                                 &kRotatedScalar};
#if defined(__x86_64__)
  static const Kernels avx2 = {Isa::kAvx2, &kMatmulAvx2, &kVectorAvx2, &kAttentionAvx2,
                               &kRotatedAvx2};
  static const Kernels avx512 = {Isa::kAvx512, &kMatmulAvx512, &kVectorAvx512, &kAttentionAvx512,
                                 &kRotatedAvx512};
  if (isa == Isa::kAvx512) return avx512;
  if (isa == Isa::kAvx2) return avx2;
#endif
  (void)isa;
  return scalar;
}

}  // namespace tierkv
