#include "kernels/rotated.h"

#include "kernels/rotated_layout.h"

namespace tierkv {

bool rotated_format_valid(RotatedFormat format) {
  const auto width = [](int bits) { return (bits >= 2 && bits <= 6) || bits == 8; };
  return width(format.k_bits) && width(format.v_bits) && format.k_bits > 2;
}

bool rotated_head_dim_valid(int64_t head_dim) {
  return head_dim >= 32 && head_dim <= 512 && (head_dim & (head_dim - 1)) == 0;
}

uint64_t rotated_block_bytes(RotatedFormat format, int64_t head_dim) {
  return static_cast<uint64_t>(codes_at(head_dim) +
                               codes_bytes(format.k_bits + format.v_bits, head_dim));
}

uint64_t rotated_scratch_bytes(int64_t head_dim) {
  return static_cast<uint64_t>(head_dim) * (kPageTokens * (4 + 1) + kPageLane * 2 + 4);
}

}  // namespace tierkv
