// Where the bits of a rotated block lie, and which levels codes stand for. All of it is internal
// linkage: the files built for one instruction set must not share functions with those of another.
//
// Block of one KV head and page, 64-byte aligned:
//   float16 K scales [kPageTokens], float16 V scales [kPageTokens]
//   K units [head_dim / 32][4 lanes of 16 tokens]: 16 tokens x 32 dims each
//   V units [head_dim / 16][2 halves of 32 tokens]: 16 dims x 32 tokens each
// Unit: 512 codes in 8 groups of 64, each what one dot instruction takes (four products a lane):
//   K group g: byte 4 * token + i is dim 4g + i;   V group g: byte 4 * dim + i is token 4g + i
// so a row's score of 16 tokens, or its output in 16 dims, is one accumulator over a unit and each
// code is unpacked once for several query rows. Codes are unsigned and cut into planes:
//   4-bit plane, 4 vectors of 64 bytes: group g in vector g / 2, nibble g % 2
//   2-bit plane, 2 vectors:             group g in vector g / 4, bits 2 (g % 4) and up
//   1-bit plane, 1 vector:              group g is bit g
//   8 bits: plain bytes; 6 = 4 + 2; 5 = 4 + 1; 4; 3 = 2 + 1; 2. The first named is the low bits.
//
// A code c stands for (c - 2^(bits-1) + offset) * scale. The offset is neither 0 (mid-tread) nor
// 1/2 (mid-rise) but between, and the scale may be negative: one side reaches further than the
// other, and the encoder turns it to where the token needs it. On Gaussian vectors of 64 dims this
// has 5-8 % less squared error than mid-rise and 6-24 % less than mid-tread levels, of 256 dims
// 2-4 % and 3-22 % (docs/decisions.md); it costs attention one addition per 16 scores.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace tierkv {

static constexpr int kUnitGroups = 8;
static constexpr int kGroupCodes = 64;
static constexpr int kUnitCodes = kUnitGroups * kGroupCodes;
static constexpr int kPageLanes = kPageTokens / kPageLane;  // K units of the same dims
static constexpr int kPageHalves = 2;                       // V units of the same dims
static constexpr int kHalfTokens = kPageTokens / kPageHalves;
static constexpr int kKeyUnitDims = kUnitCodes / kPageLane;
static constexpr int kValueUnitDims = kUnitCodes / kHalfTokens;
static constexpr int64_t kScaleBytes = 2 * kPageTokens * 2;

static constexpr int64_t unit_bytes(int bits) { return bits * kUnitCodes / 8; }
static constexpr int64_t codes_bytes(int bits, int64_t head_dim) {
  return bits * head_dim * kPageTokens / 8;
}

// Bits of the low plane: the rest, if any, follow it as a second plane.
static constexpr int low_plane_bits(int bits) { return bits == 8 ? 8 : bits >= 4 ? 4 : 2; }

static constexpr int code_zero(int bits) { return 1 << (bits - 1); }
static constexpr float code_offset(int bits) { return bits == 2 ? 0.375f : 0.25f; }

// Scales tried: kScaleSteps evenly spaced multiples of (largest magnitude) / ((2^bits - 1) / 2),
// both signs of each. The ranges hold the best multiple of 98 % of Gaussian vectors of 32 to 512
// dims.
static constexpr int kScaleSteps = 8;
struct ScaleRange {
  float low, high;
};
static constexpr ScaleRange scale_range(int bits) {
  switch (bits) {
    case 2:
      return {0.38f, 0.80f};
    case 3:
      return {0.54f, 0.96f};
    case 4:
      return {0.68f, 1.04f};
    case 5:
      return {0.82f, 1.06f};
    case 6:
      return {0.90f, 1.06f};
    default:
      return {0.97f, 1.04f};
  }
}

}  // namespace tierkv
