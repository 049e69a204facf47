// Integer weights between the file's blocks and the packed panel: one row's scale block at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor_type.h"

namespace tierkv {

// One row's block of 32 (K types: 256) columns, in the terms of matmul_layout.h.
struct WeightBlock {
  uint8_t codes[256];
  uint16_t d;         // float16
  uint16_t m;         // float16; K types: -dmin
  uint8_t sub_d[16];  // Q6_K: signed, two's complement
  uint8_t sub_m[8];
};

// Reads a file block of an integer type.
void read_file_block(TensorType type, const std::byte* src, WeightBlock& out);

}  // namespace tierkv
