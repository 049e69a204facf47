// The element types a GGUF tensor may have, by their numbers in the file, and the geometry of their
// blocks: a row is a whole number of blocks of `block` elements in `bytes` bytes (docs/formats.md).
#pragma once

#include <cstdint>

namespace tierkv {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct TensorTypeInfo {
  TensorType type;
  const char* name;  // "Q4_K"
  uint32_t block;    // elements
  uint32_t bytes;    // of one block
};

inline constexpr TensorTypeInfo kTensorTypes[] = {
    {TensorType::kF32, "F32", 1, 4},       {TensorType::kF16, "F16", 1, 2},
    {TensorType::kBF16, "BF16", 1, 2},     {TensorType::kQ4_0, "Q4_0", 32, 18},
    {TensorType::kQ4_1, "Q4_1", 32, 20},   {TensorType::kQ5_0, "Q5_0", 32, 22},
    {TensorType::kQ5_1, "Q5_1", 32, 24},   {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ4_K, "Q4_K", 256, 144}, {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210},
};

// nullptr for a number this build does not know.
constexpr const TensorTypeInfo* find_tensor_type(uint32_t number) {
  for (const TensorTypeInfo& info : kTensorTypes) {
    if (static_cast<uint32_t>(info.type) == number) return &info;
  }
  return nullptr;
}

constexpr const TensorTypeInfo& tensor_type_info(TensorType type) {
  return *find_tensor_type(static_cast<uint32_t>(type));
}

}  // namespace tierkv
