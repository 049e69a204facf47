// Attention of many query rows to exact pages in bfloat16, with sums in float32: prefill, on CPUs
// that multiply pairs of bfloat16 at twice the rate of float32. Queries, keys, values and
// probabilities are rounded to 8 bits of mantissa, which costs less than a tenth of what rounding
// activations to int8 does; int8 attention costs more than the decoder's own int8
// (docs/decisions.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace tierkv {

struct Bf16AttentionKernels {
  // Rounds rows.q to bfloat16, [n_rows, head_dim].
  void (*prepare)(const AttentionRows& rows, uint16_t* q);
  // As AttentionKernels::attend_exact, with q from prepare; rows.q is not read. `scratch`:
  // attention_scratch_bytes(head_dim) bytes, 64-aligned, one per thread. The result for a row does
  // not depend on n_rows. What tokens hold that no row sees does not matter; where only some rows
  // see a token, it must be finite.
  void (*attend)(const uint16_t* block, const AttentionRows& rows, const uint16_t* q,
                 std::byte* scratch);
};

#if defined(__x86_64__)
extern const Bf16AttentionKernels kBf16AttentionAvx512;
#endif

}  // namespace tierkv
