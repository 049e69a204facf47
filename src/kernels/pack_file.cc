// The file's blocks, field by field, as ggml lays them out (docs/formats.md).
#include <cstring>

#include "kernels/pack.h"

namespace tierkv {
namespace {

uint16_t read_u16(const uint8_t* src) { return static_cast<uint16_t>(src[0] | src[1] << 8); }

uint32_t read_u32(const uint8_t* src) {
  return read_u16(src) | static_cast<uint32_t>(read_u16(src + 2)) << 16;
}

// 16 bytes: column j in the low nibble of byte j, column j + 16 in the high one.
void read_nibbles(const uint8_t* src, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = src[j] & 15;
    codes[j + 16] = src[j] >> 4;
  }
}

void add_fifth_bits(const uint8_t* src, uint8_t* codes) {
  const uint32_t bits = read_u32(src);
  for (int j = 0; j < 32; ++j) codes[j] |= static_cast<uint8_t>((bits >> j & 1) << 4);
}

void read_signed_bytes(const uint8_t* src, uint8_t* codes) {
  for (int j = 0; j < 32; ++j) codes[j] = src[j] ^ 0x80;  // int8 + 128
}

// d, dmin and twelve bytes with eight 6-bit scales and eight 6-bit minima.
void read_k_scales(const uint8_t* src, WeightBlock& out) {
  out.d = read_u16(src);
  out.m = read_u16(src + 2) ^ 0x8000;
  const uint8_t* packed = src + 4;
  for (int s = 0; s < 4; ++s) {
    out.sub_d[s] = packed[s] & 63;
    out.sub_m[s] = packed[s + 4] & 63;
    out.sub_d[s + 4] = static_cast<uint8_t>((packed[s + 8] & 15) | packed[s] >> 6 << 4);
    out.sub_m[s + 4] = static_cast<uint8_t>(packed[s + 8] >> 4 | packed[s + 4] >> 6 << 4);
  }
}

// 128 bytes: columns 64i..64i+31 in the low nibbles of bytes 32i.., the next 32 in the high ones.
void read_k_nibbles(const uint8_t* src, uint8_t* codes) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 32; ++j) {
      codes[64 * i + j] = src[32 * i + j] & 15;
      codes[64 * i + 32 + j] = src[32 * i + j] >> 4;
    }
  }
}

void add_k_fifth_bits(const uint8_t* src, uint8_t* codes) {
  for (int s = 0; s < 8; ++s) {
    for (int j = 0; j < 32; ++j) codes[32 * s + j] |= static_cast<uint8_t>((src[j] >> s & 1) << 4);
  }
}

void read_q6_k(const uint8_t* src, WeightBlock& out) {
  const uint8_t* low = src;
  const uint8_t* high = src + 128;
  for (int half = 0; half < 2; ++half, low += 64, high += 32) {
    uint8_t* codes = out.codes + 128 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int j = 0; j < 32; ++j) {
        const int nibble = low[32 * (quarter & 1) + j] >> (quarter < 2 ? 0 : 4) & 15;
        const int top = high[j] >> (2 * quarter) & 3;
        codes[32 * quarter + j] = static_cast<uint8_t>(nibble | top << 4);
      }
    }
  }
  std::memcpy(out.sub_d, src + 192, 16);
  out.d = read_u16(src + 208);
}

}  // namespace

void read_file_block(TensorType type, const std::byte* bytes, WeightBlock& out) {
  const uint8_t* src = reinterpret_cast<const uint8_t*>(bytes);
  out.d = read_u16(src);
  switch (type) {
    case TensorType::kQ4_0:
      read_nibbles(src + 2, out.codes);
      break;
    case TensorType::kQ4_1:
      out.m = read_u16(src + 2);
      read_nibbles(src + 4, out.codes);
      break;
    case TensorType::kQ5_0:
      read_nibbles(src + 6, out.codes);
      add_fifth_bits(src + 2, out.codes);
      break;
    case TensorType::kQ5_1:
      out.m = read_u16(src + 2);
      read_nibbles(src + 8, out.codes);
      add_fifth_bits(src + 4, out.codes);
      break;
    case TensorType::kQ8_0:
      read_signed_bytes(src + 2, out.codes);
      break;
    case TensorType::kQ4_K:
      read_k_scales(src, out);
      read_k_nibbles(src + 16, out.codes);
      break;
    case TensorType::kQ5_K:
      read_k_scales(src, out);
      read_k_nibbles(src + 48, out.codes);
      add_k_fifth_bits(src + 16, out.codes);
      break;
    case TensorType::kQ6_K:
      read_q6_k(src, out);
      break;
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      break;
  }
}

}  // namespace tierkv
