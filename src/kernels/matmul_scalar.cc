// Plain C++, for machines without the others and as what the others are compared with.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "kernels/matmul.h"
#include "kernels/matmul_layout.h"

#define TIERKV_INLINE inline
#define TIERKV_CALL \
  [[gnu::noinline]]    // inlined, this file compiles nine times longer and runs no faster
#define TIERKV_UNROLL  // nothing to gain here

namespace tierkv {
namespace {

constexpr int kTileTokens = 2;
constexpr int kTilePanels = 1;
constexpr int kStreamPanels = 2;  // when there is one token

struct Codes {  // a group vector: [16 rows][4 columns]
  uint8_t at[64];
};
struct Inputs {
  int8_t at[4];
};
struct Floats {  // 16 rows
  float at[16];
};

template <typename Fn>
Codes each_code(Fn fn) {
  Codes out;
  for (int i = 0; i < 64; ++i) out.at[i] = static_cast<uint8_t>(fn(i));
  return out;
}

template <typename Fn>
TIERKV_CALL Floats each_float(Fn fn) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.at[i] = fn(i);
  return out;
}

TIERKV_CALL Codes load_codes(const uint8_t* src) {
  return each_code([&](int i) { return src[i]; });
}
void store_codes(uint8_t* dst, const Codes& c) { std::memcpy(dst, c.at, 64); }
TIERKV_CALL Codes low_nibbles(const Codes& c) {
  return each_code([&](int i) { return c.at[i] & 15; });
}
TIERKV_CALL Codes high_nibbles(const Codes& c) {
  return each_code([&](int i) { return c.at[i] >> 4; });
}

// codes | (plane << kLeft & kMask), bytewise.
template <int kLeft, int kMask>
TIERKV_CALL Codes add_bits(const Codes& codes, const Codes& plane) {
  return each_code([&](int i) {
    const int bits = kLeft >= 0 ? plane.at[i] << (kLeft >= 0 ? kLeft : 0)
                                : plane.at[i] >> (kLeft < 0 ? -kLeft : 0);
    return codes.at[i] | (bits & kMask);
  });
}

Inputs broadcast_inputs(const int8_t* src) {
  Inputs in;
  std::memcpy(in.at, src, 4);
  return in;
}

// The integer dot product of a block: sum((code - kOffset) * q). `neg_sum` is -sum(q).
template <int kBits, int kOffset>
struct Dot {
  int32_t sum[16];

  void start(int32_t neg_sum) {
    for (int32_t& s : sum) s = neg_sum * kOffset;
  }
  TIERKV_CALL void add(const Codes& codes, const Inputs& in) {
    for (int row = 0; row < 16; ++row) {
      for (int j = 0; j < 4; ++j) sum[row] += codes.at[4 * row + j] * in.at[j];
    }
  }
  Floats finish(int32_t) const {
    return each_float([&](int i) { return static_cast<float>(sum[i]); });
  }
};

TIERKV_CALL Floats all_floats(float x) {
  return each_float([&](int) { return x; });
}
TIERKV_CALL Floats zero_floats() { return all_floats(0); }
TIERKV_CALL Floats load_floats(const float* src) {
  return each_float([&](int i) { return src[i]; });
}
void store_floats(float* dst, const Floats& x) { std::memcpy(dst, x.at, sizeof(x.at)); }
TIERKV_CALL Floats add_floats(const Floats& a, const Floats& b) {
  return each_float([&](int i) { return a.at[i] + b.at[i]; });
}
TIERKV_CALL Floats multiply(const Floats& a, const Floats& b) {
  return each_float([&](int i) { return a.at[i] * b.at[i]; });
}
TIERKV_CALL Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
  return each_float([&](int i) { return a.at[i] * b.at[i] + c.at[i]; });
}

uint16_t half_at(const void* src, int i) {
  uint16_t half;
  std::memcpy(&half, static_cast<const uint8_t*>(src) + 2 * i, 2);
  return half;
}
TIERKV_CALL Floats load_f16(const void* src) {
  return each_float([&](int i) { return f16_to_f32(half_at(src, i)); });
}
TIERKV_CALL Floats load_bf16(const void* src) {
  return each_float([&](int i) { return bf16_to_f32(half_at(src, i)); });
}
TIERKV_CALL Floats load_u8(const void* src) {
  return each_float([&](int i) { return static_cast<float>(static_cast<const uint8_t*>(src)[i]); });
}
TIERKV_CALL Floats load_s8(const void* src) {
  return each_float([&](int i) { return static_cast<float>(static_cast<const int8_t*>(src)[i]); });
}

// The largest |x| of 32 floats as bits: integers order as the magnitudes do, NaN above all.
uint32_t largest_magnitude_bits(const float* x) {
  uint32_t most = 0;
  for (int i = 0; i < kBlockColumns; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    if (bits > most) most = bits;
  }
  return most;
}

// q = x * inverse, rounded to nearest even, and the sums of each 16.
void round_block(const float* x, float inverse, int8_t* q, int32_t sums[2]) {
  sums[0] = sums[1] = 0;
  for (int i = 0; i < kBlockColumns; ++i) {
    const int code = static_cast<int>(std::nearbyint(x[i] * inverse));
    q[i] = static_cast<int8_t>(code);
    sums[i / 16] += code;
  }
}

constexpr int kQuantizedAtOnce = 1;
bool quantize_blocks(const float*, InputBlock*) { return false; }

}  // namespace
}  // namespace tierkv

#include "kernels/matmul.inc"

namespace tierkv {
const MatmulKernels kMatmulScalar = {quantize, matmul};
}  // namespace tierkv
