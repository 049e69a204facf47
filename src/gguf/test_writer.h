// Writes small GGUF files for tests, in any folder: right by default, wrong where a test asks for
// it.
//
//   GgufTestWriter writer;
//   writer.add("general.architecture", "llama").add("llama.block_count", uint32_t{2});
//   writer.add_tensor("output_norm.weight", TensorType::kF32, {4}, tensor_bytes(floats));
//   auto file = GgufFile::parse(std::make_unique<MemoryFile>(writer.bytes()));
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/tensor_type.h"
#include "gguf/kind.h"

namespace tierkv {

// Appends little-endian values to a byte string.
class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> ByteWriter& put(T value) {
    if constexpr (std::is_same_v<T, float>) return put(std::bit_cast<uint32_t>(value));
    if constexpr (std::is_same_v<T, double>) return put(std::bit_cast<uint64_t>(value));
    if constexpr (std::is_integral_v<T>) {
      for (size_t i = 0; i < sizeof(T); ++i) {
        bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
      }
    }
    return *this;
  }
  // As GGUF stores strings: a 64-bit length and the characters.
  ByteWriter& put(std::string_view text) { return put(uint64_t{text.size()}).raw(text); }
  ByteWriter& put(const std::string& text) { return put(std::string_view(text)); }
  ByteWriter& raw(std::string_view text) { return raw(std::as_bytes(std::span(text))); }
  ByteWriter& raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  ByteWriter& align(uint64_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

template <typename T>
constexpr GgufKind gguf_kind_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufKind::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufKind::kUint8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufKind::kInt8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufKind::kUint16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufKind::kInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufKind::kUint32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufKind::kInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufKind::kUint64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufKind::kInt64;
  if constexpr (std::is_same_v<T, float>) return GgufKind::kFloat32;
  if constexpr (std::is_same_v<T, double>) return GgufKind::kFloat64;
  return GgufKind::kString;
}

// The bytes of numbers in the file's order, as the data of a tensor.
template <typename T>
std::vector<std::byte> tensor_bytes(const std::vector<T>& values) {
  ByteWriter writer;
  for (const T value : values) writer.put(value);
  return writer.bytes();
}

class GgufTestWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type = 0;
    std::vector<std::byte> data;
    std::optional<uint64_t> offset;  // from the start of the data; default: after the one before
    std::optional<uint32_t> n_dims;  // default: the shape's
  };

  // What the start of the file says; defaults are right.
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> claimed_tensors;
  std::optional<uint64_t> claimed_metadata;
  uint64_t alignment = 32;  // how the data is laid out; see set_alignment

  template <typename T>
  GgufTestWriter& add(std::string_view key, const T& value) {
    ByteWriter bytes;
    bytes.put(value);
    return add_raw(key, static_cast<uint32_t>(gguf_kind_of<T>()), bytes.bytes());
  }
  GgufTestWriter& add(std::string_view key, const char* text) {
    return add(key, std::string(text));
  }
  template <typename T>
  GgufTestWriter& add(std::string_view key, const std::vector<T>& values) {
    ByteWriter bytes;
    bytes.put(static_cast<uint32_t>(gguf_kind_of<T>())).put(uint64_t{values.size()});
    for (const auto& value : values) bytes.put(static_cast<const T&>(value));
    return add_raw(key, static_cast<uint32_t>(GgufKind::kArray), bytes.bytes());
  }
  // An entry whose kind and bytes need not agree.
  GgufTestWriter& add_raw(std::string_view key, uint32_t kind, std::span<const std::byte> value) {
    metadata_.put(key).put(kind).raw(value);
    ++n_metadata_;
    return *this;
  }

  // Lays the data out so, and says so in general.alignment.
  GgufTestWriter& set_alignment(uint32_t bytes) {
    alignment = bytes;
    return add("general.alignment", bytes);
  }

  GgufTestWriter& add_tensor(std::string name, TensorType type, std::vector<uint64_t> shape,
                             std::vector<std::byte> data) {
    return add_tensor(
        {std::move(name), std::move(shape), static_cast<uint32_t>(type), std::move(data), {}, {}});
  }
  GgufTestWriter& add_tensor(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }

  // The file up to the padding before the data.
  std::vector<std::byte> header_bytes() const {
    ByteWriter out;
    out.raw(magic).put(version);
    out.put(claimed_tensors.value_or(tensors_.size()));
    out.put(claimed_metadata.value_or(n_metadata_)).raw(metadata_.bytes());
    uint64_t next = 0;
    for (const Tensor& tensor : tensors_) {
      out.put(tensor.name).put(tensor.n_dims.value_or(static_cast<uint32_t>(tensor.shape.size())));
      for (const uint64_t n : tensor.shape) out.put(n);
      out.put(tensor.type).put(tensor.offset.value_or(next));
      next += (tensor.data.size() + alignment - 1) / alignment * alignment;
    }
    return out.bytes();
  }

  // The whole file; it ends with the last byte of the last tensor.
  std::vector<std::byte> bytes() const {
    ByteWriter out;
    out.raw(header_bytes());
    for (const Tensor& tensor : tensors_) out.align(alignment).raw(tensor.data);
    return out.bytes();
  }

 private:
  ByteWriter metadata_;
  uint64_t n_metadata_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace tierkv
