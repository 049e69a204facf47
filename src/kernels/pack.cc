#include "kernels/pack.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "kernels/matmul.h"
#include "kernels/matmul_layout.h"

namespace tierkv {
namespace {

uint32_t load_word(const uint8_t* src) {
  uint32_t word;
  std::memcpy(&word, src, 4);
  return word;
}

void store_word(uint8_t* dst, uint32_t word) { std::memcpy(dst, &word, 4); }

// Where one row's codes and scales lie in an integer panel: offsets from the panel's start. Four
// codes of a group are one 32-bit word.
class PanelRow {
 public:
  PanelRow(TensorType type, int64_t n_cols, int64_t row)
      : format_(packed_format(type)),
        scale_(scale_layout(type)),
        panel_(panel_layout(type, n_cols)),
        row_(row) {}

  int64_t scale_columns() const { return format_.scale_columns; }
  // Scale block `index`, which is 1 or 8 blocks of 32 columns.
  void write(int64_t index, const WeightBlock& block, uint8_t* panel) const;
  void read(int64_t index, const uint8_t* panel, WeightBlock& block) const;
  void dequantize(const WeightBlock& block, float* out) const;

 private:
  int64_t group(int64_t block, int vector) const {
    return block * (format_.code_bits == 8 ? 512 : 256) + 64 * vector + 4 * row_;
  }
  int64_t high(int64_t block, int vector) const {
    return panel_.high + block * 64 * (format_.code_bits - 4) + 64 * vector + 4 * row_;
  }
  // Float16 `field` (d or m) of scale block `index`; its 8-bit scale or minimum `s`.
  int64_t scale(int64_t index, int field) const {
    return panel_.scales + index * scale_.bytes + field + 2 * row_;
  }
  int64_t sub(int64_t index, int field, int s) const {
    return panel_.scales + index * scale_.bytes + field + kPanelRows * s + row_;
  }
  int n_subs() const {
    return format_.sub_columns == 0 ? 0 : format_.scale_columns / format_.sub_columns;
  }
  void write_codes(int64_t block, const uint8_t* codes, uint8_t* panel) const;
  void read_codes(int64_t block, const uint8_t* panel, uint8_t* codes) const;

  PackedFormat format_;
  ScaleLayout scale_;
  PanelLayout panel_;
  int64_t row_;
};

void PanelRow::write_codes(int64_t block, const uint8_t* codes, uint8_t* panel) const {
  if (format_.code_bits == 8) {
    for (int g = 0; g < 8; ++g) store_word(panel + group(block, g), load_word(codes + 4 * g));
    return;
  }
  uint32_t bit = 0, pairs[2] = {0, 0};
  for (int g = 0; g < 8; ++g) {
    const uint32_t top = load_word(codes + 4 * g) >> 4;
    bit |= (top & 0x01010101) << g;
    pairs[g / 4] |= (top & 0x03030303) << 2 * (g % 4);
  }
  for (int v = 0; v < 4; ++v) {
    const uint32_t low = load_word(codes + 4 * v), next = load_word(codes + 4 * v + 16);
    store_word(panel + group(block, v), (low & 0x0f0f0f0f) | (next & 0x0f0f0f0f) << 4);
  }
  if (format_.code_bits == 5) store_word(panel + high(block, 0), bit);
  if (format_.code_bits == 6) {
    for (int h = 0; h < 2; ++h) store_word(panel + high(block, h), pairs[h]);
  }
}

void PanelRow::read_codes(int64_t block, const uint8_t* panel, uint8_t* codes) const {
  for (int g = 0; g < 8; ++g) {
    uint32_t word = 0;
    if (format_.code_bits == 8) {
      word = load_word(panel + group(block, g));
    } else {
      word = load_word(panel + group(block, g % 4)) >> (g < 4 ? 0 : 4) & 0x0f0f0f0f;
    }
    if (format_.code_bits == 5) {
      word |= (load_word(panel + high(block, 0)) >> g & 0x01010101) << 4;
    }
    if (format_.code_bits == 6) {
      word |= (load_word(panel + high(block, g / 4)) >> 2 * (g % 4) & 0x03030303) << 4;
    }
    store_word(codes + 4 * g, word);
  }
}

void PanelRow::write(int64_t index, const WeightBlock& block, uint8_t* panel) const {
  const int n_blocks = format_.scale_columns / kBlockColumns;
  for (int b = 0; b < n_blocks; ++b) {
    write_codes(index * n_blocks + b, block.codes + kBlockColumns * b, panel);
  }
  std::memcpy(panel + scale(index, 0), &block.d, 2);
  if (format_.has_min) std::memcpy(panel + scale(index, scale_.m), &block.m, 2);
  for (int s = 0; s < n_subs(); ++s) {
    panel[sub(index, scale_.sub_d, s)] = block.sub_d[s];
    if (format_.has_min) panel[sub(index, scale_.sub_m, s)] = block.sub_m[s];
  }
}

void PanelRow::read(int64_t index, const uint8_t* panel, WeightBlock& block) const {
  const int n_blocks = format_.scale_columns / kBlockColumns;
  for (int b = 0; b < n_blocks; ++b) {
    read_codes(index * n_blocks + b, panel, block.codes + kBlockColumns * b);
  }
  std::memcpy(&block.d, panel + scale(index, 0), 2);
  if (format_.has_min) std::memcpy(&block.m, panel + scale(index, scale_.m), 2);
  for (int s = 0; s < n_subs(); ++s) {
    block.sub_d[s] = panel[sub(index, scale_.sub_d, s)];
    if (format_.has_min) block.sub_m[s] = panel[sub(index, scale_.sub_m, s)];
  }
}

void PanelRow::dequantize(const WeightBlock& block, float* out) const {
  const int step = format_.sub_columns == 0 ? format_.scale_columns : format_.sub_columns;
  for (int s = 0; s * step < format_.scale_columns; ++s) {
    float d = f16_to_f32(block.d), m = format_.has_min ? f16_to_f32(block.m) : 0;
    if (format_.sub_columns == 16) d *= static_cast<float>(static_cast<int8_t>(block.sub_d[s]));
    if (format_.sub_columns == 32) {
      d *= static_cast<float>(block.sub_d[s]);
      m *= static_cast<float>(block.sub_m[s]);
    }
    for (int c = s * step; c < (s + 1) * step; ++c) {
      const float product = d * static_cast<float>(block.codes[c] - format_.offset);
      out[c] = format_.has_min ? product + m : product;
    }
  }
}

template <int kElementBytes>
void pack_float_panel(const std::byte* rows, int64_t n_rows, int64_t n_cols, std::byte* panel) {
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t c = 0; c < n_cols; ++c) {
      std::memcpy(panel + (c * kPanelRows + row) * kElementBytes,
                  rows + (row * n_cols + c) * kElementBytes, kElementBytes);
    }
  }
}

float read_float(TensorType type, const std::byte* src) {
  if (type == TensorType::kF32) {
    float value;
    std::memcpy(&value, src, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, src, 2);
  return type == TensorType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

}  // namespace

void pack_panel(TensorType type, const std::byte* rows, int64_t n_rows, int64_t n_cols,
                std::byte* panel) {
  const TensorTypeInfo& info = tensor_type_info(type);
  std::memset(panel, 0, packed_panel_bytes(type, n_cols));  // rows of padding, gaps
  if (!uses_quantized_input(type)) {
    const auto pack = info.bytes == 4 ? pack_float_panel<4> : pack_float_panel<2>;
    pack(rows, n_rows, n_cols, panel);
    return;
  }
  WeightBlock block{};
  for (int64_t row = 0; row < n_rows; ++row) {
    const PanelRow to(type, n_cols, row);
    for (int64_t i = 0; i < n_cols / info.block; ++i, rows += info.bytes) {
      read_file_block(type, rows, block);
      to.write(i, block, reinterpret_cast<uint8_t*>(panel));
    }
  }
}

void unpack_row(const PackedMatrix& w, int64_t row, float* out) {
  const std::byte* panel =
      w.data + static_cast<uint64_t>(row / kPanelRows) * packed_panel_bytes(w.type, w.n_cols);
  const int64_t lane = row % kPanelRows;
  if (!uses_quantized_input(w.type)) {
    const int64_t bytes = tensor_type_info(w.type).bytes;
    for (int64_t c = 0; c < w.n_cols; ++c) {
      out[c] = read_float(w.type, panel + (c * kPanelRows + lane) * bytes);
    }
    return;
  }
  const PanelRow from(w.type, w.n_cols, lane);
  WeightBlock block{};
  for (int64_t i = 0; i < w.n_cols / from.scale_columns(); ++i) {
    from.read(i, reinterpret_cast<const uint8_t*>(panel), block);
    from.dequantize(block, out + i * from.scale_columns());
  }
}

}  // namespace tierkv
