#include "kernels/attention.h"

namespace tierkv {

uint64_t attention_scratch_bytes(int64_t head_dim) {
  return static_cast<uint64_t>(exact_block_elements(head_dim)) * sizeof(float);  // a block, widened
}

}  // namespace tierkv
