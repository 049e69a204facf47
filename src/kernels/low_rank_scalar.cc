#include "kernels/low_rank.h"
#include "kernels/simd_scalar.h"

namespace tierkv {
namespace {

#include "kernels/low_rank.inc"

}  // namespace

const LowRankKernels kLowRankScalar = {gather, add_gram, encode, attend, project, decode};

}  // namespace tierkv
