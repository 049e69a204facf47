// The packed forms behind matmul.h: how a panel of 16 rows lies in memory, and how inputs do.
//
// Panel, floating-point types: [n_cols][16 rows] elements of the file's type.
//
// Panel, integer types. Blocks are 32 columns, in 8 groups of 4: group g is columns 4g..4g+3. The
// unit is a *group vector* of 64 bytes, [16 rows][4 columns], because one u8 x s8 dot-product
// instruction multiplies it with 4 inputs and leaves one sum for each of 16 rows. Codes are
// unsigned, biased by `offset`. Three regions, each starting at a multiple of 64 bytes and read
// with a constant stride, which hardware prefetchers follow (records that interleave the regions
// decoded up to 40 % slower):
//   codes  8 bits: [block][8 groups] group vectors.
//          else:   [block][4] vectors; vector v has group v in its low nibbles and group v + 4 in
//          the
//                  high ones, so that it splits into two group vectors without a shuffle.
//   high   5 bits: [block] one vector: bit g of byte (row, j) is bit 4 of the code in group g.
//          6 bits: [block][2] vectors: bits 2i, 2i+1 of byte (row, j) of vector h are bits 4, 5 of
//          the
//                  code in group 4h + i.
//   scales for each scale block (32 columns; K types 256), one after the other:
//     d      float16 [16 rows]
//     m      float16 [16 rows], types with a minimum: m of *_1; -dmin of K types.
//     sub_d  K types: 8-bit scales [sub-block][16 rows]: of 32 columns, unsigned; Q6_K 16, signed.
//     sub_m  Q4_K, Q5_K: 8-bit minima [sub-block][16 rows]. (6 bits in the file: the 2-3 % they
//     grow
//            by buy scales that load with one instruction.)
// A weight is  d * sub_d * (code - offset) + m * sub_m,  absent factors being 1 and an absent m 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor_type.h"

namespace tierkv {

inline constexpr int kBlockColumns = 32;

// What the comment above says, as numbers.
struct PackedFormat {
  int code_bits = 0;      // 4, 5, 6 or 8; 0 for floating-point types
  int offset = 0;         // subtracted from codes
  int scale_columns = 0;  // columns that share d
  int sub_columns = 0;    // columns that share sub_d; 0: there is none
  bool has_min = false;
};

constexpr PackedFormat packed_format(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return {4, 8, 32, 0, false};
    case TensorType::kQ4_1:
      return {4, 0, 32, 0, true};
    case TensorType::kQ5_0:
      return {5, 16, 32, 0, false};
    case TensorType::kQ5_1:
      return {5, 0, 32, 0, true};
    case TensorType::kQ8_0:
      return {8, 128, 32, 0, false};
    case TensorType::kQ4_K:
      return {4, 0, 256, 32, true};
    case TensorType::kQ5_K:
      return {5, 0, 256, 32, true};
    case TensorType::kQ6_K:
      return {6, 32, 256, 16, false};
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      break;
  }
  return {};
}

// The scales of one scale block: byte offsets (d is at 0) and size.
struct ScaleLayout {
  int m = 0;
  int sub_d = 0;
  int sub_m = 0;
  int bytes = 0;
};

constexpr ScaleLayout scale_layout(TensorType type) {
  const PackedFormat format = packed_format(type);
  const int subs = format.sub_columns == 0 ? 0 : format.scale_columns / format.sub_columns * 16;
  ScaleLayout at;
  at.m = 32;
  at.sub_d = at.m + (format.has_min ? 32 : 0);
  at.sub_m = at.sub_d + subs;
  at.bytes = at.sub_m + (format.has_min ? subs : 0);
  return at;
}

// Byte offsets of an integer panel's regions (codes are at 0), and the size of any panel.
struct PanelLayout {
  int64_t high = 0;
  int64_t scales = 0;
  int64_t bytes = 0;
};

PanelLayout panel_layout(TensorType type, int64_t n_cols);

// Inputs whose largest magnitude is below this become zeros: 127 / x would overflow.
inline constexpr float kTinyMagnitude = 1e-36f;
inline constexpr uint32_t kInfinityBits = 0x7f800000;

// 32 inputs of one token as int8: x[i] ~ d * q[i], |q| <= 127. A quantised buffer is
// [n_tokens][n_cols / 32, rounded up] of these: everything that a tile needs of a token's block
// lies behind one pointer. A block with an infinite or NaN input has q = 0 and d = NaN.
struct InputBlock {
  int8_t q[kBlockColumns];
  float d;
  float d_sum;  // d * sum(q): what a weight's minimum multiplies
  int32_t
      neg_sum;  // -sum(q): shifted left, it takes the codes' offset out of an integer dot product
  int32_t neg_half;  // -sum(q[0..15]), for types with a scale per 16 columns
};

}  // namespace tierkv
