// y = W x for every weight type. W is packed once, at load, from the file's rows into panels of
// kPanelRows output rows, so that one vector load holds the same columns of 16 rows; x is quantised
// to int8 in blocks of 32 columns with a float32 scale each (floating-point weights use x itself).
// The packed layout of each type is described in matmul_layout.h, and is the same for every ISA.
//
// Kernels never allocate, lock or log: the caller gives memory and splits the work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor_type.h"

namespace tierkv {

inline constexpr int kPanelRows = 16;

// A weight matrix [n_rows, n_cols] in packed form. n_rows is any; the last panel is padded with
// zeros. n_cols is a multiple of the type's block (any, for floating-point types).
struct PackedMatrix {
  TensorType type = TensorType::kF32;  // of the file
  int64_t n_rows = 0;                  // outputs
  int64_t n_cols = 0;                  // inputs
  const std::byte* data = nullptr;     // 64-byte aligned

  int64_t n_panels() const { return (n_rows + kPanelRows - 1) / kPanelRows; }
};

// Bytes of one packed panel, a multiple of 64, and of the whole matrix.
uint64_t packed_panel_bytes(TensorType type, int64_t n_cols);
uint64_t packed_matrix_bytes(TensorType type, int64_t n_rows, int64_t n_cols);

// Packs `n_rows` (at most kPanelRows) consecutive rows as the file has them into one panel.
void pack_panel(TensorType type, const std::byte* rows, int64_t n_rows, int64_t n_cols,
                std::byte* panel);

// Row `row` of W as float32: the embedding look-up of tied weights. Exact up to float rounding.
void unpack_row(const PackedMatrix& w, int64_t row, float* out);

// Inputs of a matmul, [n_tokens, n_cols]: x itself and, for integer weights, its int8 form in a
// buffer of quantized_bytes() that MatmulKernels::quantize fills.
struct MatmulInput {
  const float* x = nullptr;
  const std::byte* quantized = nullptr;
  int64_t n_tokens = 0;
  int64_t n_cols = 0;
};

// True when weights of this type multiply int8 activations.
bool uses_quantized_input(TensorType type);
uint64_t quantized_bytes(int64_t n_tokens, int64_t n_cols);

struct MatmulKernels {
  // Fills tokens [token_begin, token_end) of a quantised buffer laid out for in.n_tokens tokens.
  void (*quantize)(const float* x, int64_t n_tokens, int64_t n_cols, int64_t token_begin,
                   int64_t token_end, std::byte* out);
  // out[token * ld_out + row] for tokens [token_begin, token_end) and the rows of panels
  // [panel_begin, panel_end), rows below w.n_rows only. Each output is computed in one fixed order
  // of columns, whatever the split. `scratch` has matmul_scratch_bytes(w.n_cols) bytes, 64-aligned.
  // `next`: where the panels lie that this thread will probably multiply after these, or null; a
  // hint, of no effect on results, that lets one token wait less for memory.
  void (*matmul)(const PackedMatrix& w, const MatmulInput& in, int64_t token_begin,
                 int64_t token_end, int64_t panel_begin, int64_t panel_end, float* out,
                 int64_t ld_out, std::byte* scratch, const std::byte* next);
};

uint64_t matmul_scratch_bytes(int64_t n_cols);

extern const MatmulKernels kMatmulScalar;
#if defined(__x86_64__)
extern const MatmulKernels kMatmulAvx2;
extern const MatmulKernels kMatmulAvx512;
#endif

}  // namespace tierkv
