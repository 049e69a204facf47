// All kernels of one instruction set, in one table: what a backend is.
#pragma once

#include "kernels/attention.h"
#include "kernels/attention_bf16.h"
#include "kernels/isa.h"
#include "kernels/low_rank.h"
#include "kernels/matmul.h"
#include "kernels/roof.h"
#include "kernels/rotated.h"
#include "kernels/vector.h"

namespace tierkv {

struct Kernels {
  Isa isa;
  const MatmulKernels* matmul;
  const VectorKernels* vector;
  const AttentionKernels* attention;
  const RotatedKernels* rotated;
  const LowRankKernels* low_rank;
  const RoofKernels* roof;
  const Bf16AttentionKernels* bf16_attention;  // null where the CPU does not multiply bfloat16
};

// `isa` must be one of available_isas().
const Kernels& kernels_for(Isa isa);

}  // namespace tierkv
