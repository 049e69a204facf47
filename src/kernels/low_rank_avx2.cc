#if defined(__x86_64__)
#include "kernels/low_rank.h"
#include "kernels/simd_avx2.h"

namespace tierkv {
namespace {

#include "kernels/low_rank.inc"

}  // namespace

const LowRankKernels kLowRankAvx2 = {gather, add_gram, encode, attend, project, decode};

}  // namespace tierkv
#endif
