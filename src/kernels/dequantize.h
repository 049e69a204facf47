// The reference meaning of every tensor type: file blocks to float32, scalar, one row at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor_type.h"

namespace tierkv {

// n_elements is a multiple of the type's block; src has n_elements / block * bytes bytes.
void dequantize(TensorType type, const std::byte* src, int64_t n_elements, float* out);

}  // namespace tierkv
