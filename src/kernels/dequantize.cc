#include "kernels/dequantize.h"

#include <bit>

#include "base/half.h"

namespace tierkv {
namespace {

// Every function below turns one block into floats, in the order of the block's fields: see
// docs/formats.md. Products are formed in the order (scale * sub-scale) * code, each rounded to
// float32, so that results are the same on every machine.

uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t load_u32(const uint8_t* p) {
  return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}
float load_f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }

void f32_element(const uint8_t* b, float* out) { *out = std::bit_cast<float>(load_u32(b)); }
void f16_element(const uint8_t* b, float* out) { *out = load_f16(b); }
void bf16_element(const uint8_t* b, float* out) { *out = bf16_to_f32(load_u16(b)); }

// Code e of a block of 32: the low nibbles of 16 bytes first, then the high ones.
int nibble(const uint8_t* qs, int e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }
int fifth_bit(uint32_t qh, int e) { return static_cast<int>(qh >> e & 1) << 4; }

// d, qs[16]
void q4_0_block(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(nibble(b + 2, e) - 8);
}

// d, m, qs[16]
void q4_1_block(const uint8_t* b, float* out) {
  const float d = load_f16(b), m = load_f16(b + 2);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(nibble(b + 4, e)) + m;
}

// d, qh (bit e is the fifth bit of code e), qs[16]
void q5_0_block(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  const uint32_t qh = load_u32(b + 2);
  for (int e = 0; e < 32; ++e) {
    out[e] = d * static_cast<float>((nibble(b + 6, e) | fifth_bit(qh, e)) - 16);
  }
}

// d, m, qh, qs[16]
void q5_1_block(const uint8_t* b, float* out) {
  const float d = load_f16(b), m = load_f16(b + 2);
  const uint32_t qh = load_u32(b + 4);
  for (int e = 0; e < 32; ++e) {
    out[e] = d * static_cast<float>(nibble(b + 8, e) | fifth_bit(qh, e)) + m;
  }
}

// d, qs[32] signed
void q8_0_block(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(static_cast<int8_t>(b[2 + e]));
}

// The 6-bit scale and minimum of sub-block j of 8, as Q4_K and Q5_K pack them into 12 bytes: the
// first four whole, the last four as 4 low bits in bytes 8-11 and 2 high bits atop the first eight.
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4};
}

// d, dmin, scales[12], qs[128]: 32 bytes hold sub-block 2c in low nibbles, 2c + 1 in high ones.
void q4_k_block(const uint8_t* b, float* out) {
  const float d = load_f16(b), dmin = load_f16(b + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(b + 4, j);
    const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(min);
    const uint8_t* qs = b + 16 + 32 * (j / 2);
    for (int l = 0; l < 32; ++l) {
      out[32 * j + l] = ds * static_cast<float>(qs[l] >> 4 * (j % 2) & 15) - dm;
    }
  }
}

// d, dmin, scales[12], qh[32] (bit j of byte l: fifth bit of code l of sub-block j), qs[128]
void q5_k_block(const uint8_t* b, float* out) {
  const float d = load_f16(b), dmin = load_f16(b + 2);
  const uint8_t* qh = b + 16;
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(b + 4, j);
    const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(min);
    const uint8_t* qs = b + 48 + 32 * (j / 2);
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[l] >> 4 * (j % 2) & 15) | (qh[l] >> j & 1) << 4;
      out[32 * j + l] = ds * static_cast<float>(q) - dm;
    }
  }
}

// ql[128], qh[64], scales[16] signed, d. Two halves of 128; in each, group g of 32 has its 4 low
// bits in ql (bytes 32 (g % 2), nibble g / 2) and its 2 high bits at bit 2g of qh.
void q6_k_block(const uint8_t* b, float* out) {
  const float d = load_f16(b + 208);
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128, g = e / 32 % 4, l = e % 32;
    const int low = b[64 * half + 32 * (g % 2) + l] >> 4 * (g / 2) & 15;
    const int high = b[128 + 32 * half + l] >> 2 * g & 3;
    const float ds = d * static_cast<float>(static_cast<int8_t>(b[192 + e / 16]));
    out[e] = ds * static_cast<float>((low | high << 4) - 32);
  }
}

template <TensorType kType, void (*kBlock)(const uint8_t*, float*)>
void each_block(const uint8_t* src, int64_t n_elements, float* out) {
  constexpr TensorTypeInfo kInfo = tensor_type_info(kType);
  for (int64_t e = 0; e < n_elements; e += kInfo.block, src += kInfo.bytes) kBlock(src, out + e);
}

}  // namespace

void dequantize(TensorType type, const std::byte* bytes, int64_t n, float* out) {
  const auto* src = reinterpret_cast<const uint8_t*>(bytes);
  switch (type) {
    case TensorType::kF32:
      return each_block<TensorType::kF32, f32_element>(src, n, out);
    case TensorType::kF16:
      return each_block<TensorType::kF16, f16_element>(src, n, out);
    case TensorType::kBF16:
      return each_block<TensorType::kBF16, bf16_element>(src, n, out);
    case TensorType::kQ4_0:
      return each_block<TensorType::kQ4_0, q4_0_block>(src, n, out);
    case TensorType::kQ4_1:
      return each_block<TensorType::kQ4_1, q4_1_block>(src, n, out);
    case TensorType::kQ5_0:
      return each_block<TensorType::kQ5_0, q5_0_block>(src, n, out);
    case TensorType::kQ5_1:
      return each_block<TensorType::kQ5_1, q5_1_block>(src, n, out);
    case TensorType::kQ8_0:
      return each_block<TensorType::kQ8_0, q8_0_block>(src, n, out);
    case TensorType::kQ4_K:
      return each_block<TensorType::kQ4_K, q4_k_block>(src, n, out);
    case TensorType::kQ5_K:
      return each_block<TensorType::kQ5_K, q5_k_block>(src, n, out);
    case TensorType::kQ6_K:
      return each_block<TensorType::kQ6_K, q6_k_block>(src, n, out);
  }
}

}  // namespace tierkv
