#if defined(__x86_64__)
#include "kernels/attention.h"
#include "kernels/simd_avx2.h"

namespace tierkv {
namespace {

#include "kernels/attention.inc"

}  // namespace

const AttentionKernels kAttentionAvx2 = {init, attend_exact, merge, finish, store_token};

}  // namespace tierkv
#endif
