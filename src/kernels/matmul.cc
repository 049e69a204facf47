// Sizes of packed matrices, of their inputs and of scratch.
#include "kernels/matmul.h"

#include "kernels/matmul_layout.h"

namespace tierkv {
namespace {

constexpr int64_t divide_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
constexpr int64_t align64(int64_t bytes) { return divide_up(bytes, 64) * 64; }

}  // namespace

PanelLayout panel_layout(TensorType type, int64_t n_cols) {
  const PackedFormat format = packed_format(type);
  const int64_t elements = n_cols * kPanelRows;
  PanelLayout at;
  if (format.code_bits == 0) {
    at.bytes = align64(elements * tensor_type_info(type).bytes);
    return at;
  }
  at.high = format.code_bits == 8 ? elements : elements / 2;
  at.scales = at.high + (format.code_bits == 8 ? 0 : elements / 8 * (format.code_bits - 4));
  at.bytes = align64(at.scales + n_cols / format.scale_columns * scale_layout(type).bytes);
  return at;
}

uint64_t packed_panel_bytes(TensorType type, int64_t n_cols) {
  return static_cast<uint64_t>(panel_layout(type, n_cols).bytes);
}

uint64_t packed_matrix_bytes(TensorType type, int64_t n_rows, int64_t n_cols) {
  return static_cast<uint64_t>(divide_up(n_rows, kPanelRows)) * packed_panel_bytes(type, n_cols);
}

bool uses_quantized_input(TensorType type) { return packed_format(type).code_bits != 0; }

uint64_t quantized_bytes(int64_t n_tokens, int64_t n_cols) {
  return static_cast<uint64_t>(n_tokens * divide_up(n_cols, kBlockColumns)) * sizeof(InputBlock);
}

// Two panels with a byte per code, and per block of 32 columns two vectors of 16 float32 scales.
uint64_t matmul_scratch_bytes(int64_t n_cols) {
  const int64_t block = kPanelRows * kBlockColumns + 2 * kPanelRows * 4;
  return static_cast<uint64_t>(2 * divide_up(n_cols, kBlockColumns) * block);
}

}  // namespace tierkv
