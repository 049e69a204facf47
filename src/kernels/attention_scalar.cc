#include "kernels/attention.h"
#include "kernels/simd_scalar.h"

namespace tierkv {
namespace {

#include "kernels/attention.inc"

}  // namespace

const AttentionKernels kAttentionScalar = {init, attend_exact, merge, finish, store_token};

}  // namespace tierkv
