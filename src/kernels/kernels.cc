#include "kernels/kernels.h"

namespace tierkv {
namespace {

#if defined(__x86_64__)
const Bf16AttentionKernels* bf16_attention() {
  return cpu_multiplies_bf16() ? &kBf16AttentionAvx512 : nullptr;
}
#endif

}  // namespace

const Kernels& kernels_for(Isa isa) {
  static const Kernels scalar = {Isa::kScalar,      &kMatmulScalar,  &kVectorScalar,
                                 &kAttentionScalar, &kRotatedScalar, &kLowRankScalar,
                                 &kRoofScalar,      nullptr};
#if defined(__x86_64__)
  static const Kernels avx2 = {Isa::kAvx2,    &kMatmulAvx2,  &kVectorAvx2, &kAttentionAvx2,
                               &kRotatedAvx2, &kLowRankAvx2, &kRoofAvx2,   nullptr};
  static const Kernels avx512 = {Isa::kAvx512,      &kMatmulAvx512,  &kVectorAvx512,
                                 &kAttentionAvx512, &kRotatedAvx512, &kLowRankAvx512,
                                 &kRoofAvx512,      bf16_attention()};
  if (isa == Isa::kAvx512) return avx512;
  if (isa == Isa::kAvx2) return avx2;
#endif
  (void)isa;
  return scalar;
}

}  // namespace tierkv
