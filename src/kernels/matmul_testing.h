// Random weights and inputs for the tests of matmul and packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/matmul.h"

namespace tierkv {

// The largest |d| and |m| that random_rows gives a block.
inline constexpr float kMaxTestScale = 0.25f;

inline float random_float(std::mt19937& random, float magnitude) {
  return std::uniform_real_distribution<float>(-magnitude, magnitude)(random);
}

// Memory aligned to 64 bytes. New bytes are 0xa5, so that what was not written shows.
class TestBuffer {
 public:
  explicit TestBuffer(uint64_t bytes) : storage_(bytes + 64, std::byte{0xa5}) {}
  std::byte* data() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<std::byte> storage_;
};

inline void put_f16(std::byte* at, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, 2);
}

inline void put_random_float(TensorType type, std::mt19937& random, std::byte* at) {
  const float value = random_float(random, 1);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint16_t top = static_cast<uint16_t>(bits >> 16);
  if (type == TensorType::kF32) std::memcpy(at, &bits, 4);
  if (type == TensorType::kBF16) std::memcpy(at, &top, 2);
  if (type == TensorType::kF16) put_f16(at, value);
}

// Rows as a file has them: every code and 8-bit scale random, float16 scales of either sign.
inline std::vector<std::byte> random_rows(TensorType type, int64_t n_rows, int64_t n_cols,
                                          uint32_t seed) {
  std::mt19937 random(seed);
  const TensorTypeInfo& info = tensor_type_info(type);
  const int64_t n_blocks = n_rows * n_cols / info.block;
  std::vector<std::byte> rows(static_cast<size_t>(n_blocks * info.bytes));
  for (std::byte& b : rows) b = static_cast<std::byte>(random() & 255);
  for (int64_t i = 0; i < n_blocks; ++i) {
    std::byte* block = rows.data() + i * info.bytes;
    if (!uses_quantized_input(type)) {
      put_random_float(type, random, block);
    } else if (type == TensorType::kQ6_K) {
      put_f16(block + 208, random_float(random, kMaxTestScale));
    } else {
      put_f16(block, random_float(random, kMaxTestScale));
      const bool has_min = type == TensorType::kQ4_1 || type == TensorType::kQ5_1 ||
                           type == TensorType::kQ4_K || type == TensorType::kQ5_K;
      if (has_min) put_f16(block + 2, random_float(random, kMaxTestScale));
    }
  }
  return rows;
}

// A random matrix, packed.
class TestMatrix {
 public:
  TestMatrix(TensorType type, int64_t n_rows, int64_t n_cols, uint32_t seed)
      : file_rows(random_rows(type, n_rows, n_cols, seed)),
        buffer_(packed_matrix_bytes(type, n_rows, n_cols)),
        matrix{type, n_rows, n_cols, buffer_.data()} {
    const TensorTypeInfo& info = tensor_type_info(type);
    const int64_t row_bytes = n_cols / info.block * info.bytes;
    for (int64_t p = 0; p < matrix.n_panels(); ++p) {
      const int64_t row = p * kPanelRows, left = n_rows - row;
      pack_panel(type, file_rows.data() + row * row_bytes, left < kPanelRows ? left : kPanelRows,
                 n_cols,
                 buffer_.data() + static_cast<uint64_t>(p) * packed_panel_bytes(type, n_cols));
    }
  }

  std::vector<std::byte> file_rows;

 private:
  TestBuffer buffer_;

 public:
  PackedMatrix matrix;
};

inline std::vector<float> random_floats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(random);
  return out;
}

}  // namespace tierkv
