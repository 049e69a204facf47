// A GGUF file (v2 or v3), checked before a byte of it is trusted: after open() every offset lies in
// the file, every count is sane, every name is unique, every row is a whole number of blocks.
// Format: docs/formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "base/tensor_type.h"

namespace tierkv {

// A metadata value. Integers of all widths widen to int64/uint64, floats to double; arrays are of
// one element kind. Arrays of arrays are refused.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>,
                               std::vector<int64_t>, std::vector<float>, std::vector<double>,
                               std::vector<bool>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> shape;  // fastest-varying first, 1 to 4 dimensions, none zero
  uint64_t offset = 0;          // bytes from the start of the file
  uint64_t bytes = 0;

  uint64_t n_cols() const { return shape[0]; }
  uint64_t n_rows() const;  // product of the other dimensions
  uint64_t row_bytes() const { return bytes / n_rows(); }
};

class GgufFile {
 public:
  static Result<GgufFile> open(FileSystem& file_system, const std::string& path);
  // For tests and fuzzing: takes the file as opened.
  static Result<GgufFile> parse(std::unique_ptr<File> file);

  uint32_t version() const { return version_; }
  File& file() const { return *file_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::string& path() const { return file_->name(); }

  // Metadata in key order.
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const GgufValue* find(std::string_view key) const;

  // Typed access. Without `fallback` a missing key is kNotFound; a value of the wrong kind or out
  // of range is kCorrupt; both name the key and the file.
  Result<uint64_t> get_uint(std::string_view key) const;
  Result<uint64_t> get_uint(std::string_view key, uint64_t fallback) const;
  Result<double> get_float(std::string_view key) const;
  Result<double> get_float(std::string_view key, double fallback) const;
  Result<bool> get_bool(std::string_view key, bool fallback) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::string> get_string(std::string_view key, std::string fallback) const;
  // Moves an array out, so that a vocabulary is not held twice: a second call finds it empty.
  Result<std::vector<std::string>> take_strings(std::string_view key);
  Result<std::vector<float>> take_floats(std::string_view key);  // from any float kind
  Result<std::vector<int64_t>> take_integers(
      std::string_view key);  // from any integer or bool kind

  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;

 private:
  std::unique_ptr<File> file_;
  uint64_t file_bytes_ = 0;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace tierkv
