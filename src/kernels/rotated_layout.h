// Where the bits of a rotated block lie, and which levels codes stand for. All of it is internal
// linkage: the files built for one instruction set must not share functions with those of another.
//
// Block of one KV head and page, 64-byte aligned:
//   BlockHeader, then scale bytes of K and of V [kPageTokens] each, the keys' mean int8 [head_dim]
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
// A code stands for a level times the token's scale, which may be negative: one side of the levels
// reaches further than the other, and the encoder turns it to where the token needs it. A scale
// byte has the sign in bit 7 and below it three bits of exponent and four of mantissa, times the
// page's base; byte 0 is the scale of a zero token. Keys lie about their page's mean, which most of
// a key's size is in many models.
// Levels of 2, 6 and 8 bits are linear, c - 2^(bits-1) + offset, with an offset neither 0
// (mid-tread) nor 1/2 (mid-rise) but between: on Gaussian vectors of 64 dims 5-8 % less squared
// error than mid-rise and 6-24 % less than mid-tread. It costs attention one addition per 16
// scores. Those of 3, 4 and 5 bits are curved, closer to each other in the middle, where most
// values are: 12, 20 and 23 % less squared error than linear ones (docs/decisions.md). They are
// whole numbers up to 127, so that a byte shuffle makes of a code what a dot product takes.
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

struct BlockHeader {
  float k_base, v_base;  // what scale bytes multiply
  float mean_scale;      // of the mean's codes
  float unused[13];
};
static_assert(sizeof(BlockHeader) == 64);
static constexpr int64_t kScalesAt = sizeof(BlockHeader);
static constexpr int64_t kMeanAt = kScalesAt + 2 * kPageTokens;
static constexpr int64_t codes_at(int64_t head_dim) { return kMeanAt + (head_dim + 63) / 64 * 64; }

static constexpr int64_t unit_bytes(int bits) { return bits * kUnitCodes / 8; }
static constexpr int64_t codes_bytes(int bits, int64_t head_dim) {
  return bits * head_dim * kPageTokens / 8;
}

// Bits of the low plane: the rest, if any, follow it as a second plane.
static constexpr int low_plane_bits(int bits) { return bits == 8 ? 8 : bits >= 4 ? 4 : 2; }

static constexpr int code_zero(int bits) { return 1 << (bits - 1); }
static constexpr float code_offset(int bits) { return bits == 2 ? 0.375f : 0.25f; }

// Level of code c: v (linear + v^2 (cubic + v^2 quintic)), v = c - middle, to the nearest whole
// number. Fitted to the least squared error of Gaussian vectors of 64 to 256 dims.
struct LevelCurve {
  float middle, linear, cubic, quintic;
  float inverse[4];  // level y's code, nearly: middle + y (inverse[0] + y^2 (inverse[1] + ...))
};
// Before rounding; v and the result are floats or vectors of them.
template <typename T>
static constexpr T curve_at(const LevelCurve& curve, T v) {
  const T square = v * v;
  return v * (curve.linear + square * (curve.cubic + square * curve.quintic));
}
static constexpr bool curved(int bits) { return bits >= 3 && bits <= 5; }
static constexpr LevelCurve level_curve(int bits) {
  switch (bits) {
    case 3:
      return {3.71196f,
              25.11852f,
              0.3381406f,
              0.02336580f,
              {0.03953647f, -1.008980e-6f, 1.172008e-11f, 9.53775e-16f}};
    case 4:
      return {7.744607f,
              11.14741f,
              0.003879823f,
              0.001394976f,
              {0.09167995f, -2.947049e-6f, 5.904564e-11f, 4.288144e-16f}};
    default:
      return {15.649123f,
              5.766139f,
              -0.001282527f,
              4.440982e-5f,
              {0.1757452f, -2.551191e-6f, -2.534772e-10f, 1.379878e-14f}};
  }
}

// Adding and subtracting it leaves a float's nearest whole number, ties to even; |x| < 2^22.
static constexpr float kRoundMagic = 0x1.8p23f;

static constexpr int kMaxLevel = 127;

struct alignas(64) LevelTable {
  int8_t level[32];
};
static constexpr LevelTable level_table(int bits) {
  LevelTable table{};
  const LevelCurve curve = level_curve(bits);
  for (int c = 0; c < 1 << bits; ++c) {
    const float level = curve_at(curve, static_cast<float>(c) - curve.middle);
    table.level[c] = static_cast<int8_t>((level + kRoundMagic) - kRoundMagic);
  }
  return table;
}

// A scale byte's lower bits read as the bits of a float: 2^-7 to 1.9375 in 128 steps of 3 to 6 %.
static constexpr int kScaleShift = 19, kScaleCodeOfOne = 7 << 4, kMaxScaleCode = 127;
static constexpr int kScaleBits = (127 << 4) - kScaleCodeOfOne;
static constexpr float kMaxScale = 1.9375f;

// Scales tried, both signs of each: `n` codes, `step` apart, the first one `first` beyond what
// gives a token's largest magnitude the outermost level times 1 / `usual`. They reach the best
// scale of nearly all Gaussian vectors of 32 to 512 dims. No token needs more than `most`.
struct ScaleSearch {
  float usual, most;
  int first, n, step;
};
static constexpr ScaleSearch scale_search(int bits) {
  switch (bits) {
    case 2:
      return {0.551f, 0.80f, -8, 6, 3};
    case 3:
      return {0.838f, 0.99f, -3, 4, 2};
    case 4:
      return {0.925f, 1.048f, -1, 5, 1};
    case 5:
      return {1.006f, 1.061f, -1, 4, 1};
    case 6:
      return {0.977f, 1.06f, -1, 4, 1};
    default:
      return {1.004f, 1.04f, 0, 3, 1};
  }
}

}  // namespace tierkv
