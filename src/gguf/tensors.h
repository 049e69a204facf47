// The tensor section of a GGUF file: name, shape, type and place of every tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "gguf/reader.h"

namespace tierkv {

// The fewest bytes that a tensor's entry takes: name, dimension count, one dimension, type, offset.
inline constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Tensors in file order. Their offsets are still relative to the data, as in the file.
Result<std::vector<GgufTensor>> read_tensors(GgufReader& reader, uint64_t count,
                                             uint64_t alignment);

// Makes the offsets absolute, and checks that all data lies in the file and none overlaps.
Status place_tensors(std::vector<GgufTensor>& tensors, uint64_t data_start, uint64_t file_bytes);

}  // namespace tierkv
