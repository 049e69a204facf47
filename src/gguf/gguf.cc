// GgufFile: access to what parse.cc has checked.
#include "gguf/gguf.h"

#include <cfloat>
#include <cmath>
#include <utility>

#include "gguf/metadata.h"
#include "gguf/reader.h"

namespace tierkv {
namespace {

std::string key_of(const GgufFile& file, std::string_view key) {
  return file.path() + ": metadata key " + quoted(key);
}

Status missing_key(const GgufFile& file, std::string_view key) {
  return not_found(key_of(file, key) + " is missing; this program needs it to run the model");
}

Status wrong_kind(const GgufFile& file, std::string_view key, const GgufValue& value,
                  const char* wanted) {
  return corrupt(key_of(file, key) + " is " + value_kind_name(value) + ", not " + wanted);
}

Status out_of_range(const GgufFile& file, std::string_view key, const char* wanted) {
  return corrupt(key_of(file, key) + " has a value that is not " + wanted);
}

// The values of an array of kind From, checked and converted one by one; the array is left empty.
template <typename To, typename From, typename Fits>
bool convert(std::vector<From>& from, std::vector<To>& to, Fits fits) {
  const std::vector<From> values = std::exchange(from, {});
  to.reserve(values.size());
  for (const From value : values) {
    if (!fits(value)) return false;
    to.push_back(static_cast<To>(value));
  }
  return true;
}

bool fits_float(double value) { return !std::isfinite(value) || std::fabs(value) <= FLT_MAX; }
bool fits_int64(uint64_t value) { return value <= static_cast<uint64_t>(INT64_MAX); }

template <typename T>
Result<T> or_fallback(Result<T> result, T fallback) {
  return result.status().code() == StatusCode::kNotFound ? Result<T>(std::move(fallback)) : result;
}

}  // namespace

uint64_t GgufTensor::n_rows() const {
  uint64_t rows = 1;
  for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto entry = metadata_.find(key);
  return entry == metadata_.end() ? nullptr : &entry->second;
}

Result<uint64_t> GgufFile::get_uint(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing_key(*this, key);
  if (const auto* number = std::get_if<uint64_t>(value)) return *number;
  const auto* number = std::get_if<int64_t>(value);
  if (number == nullptr) return wrong_kind(*this, key, *value, "an unsigned integer");
  if (*number < 0) return out_of_range(*this, key, "zero or more");
  return static_cast<uint64_t>(*number);
}

Result<uint64_t> GgufFile::get_uint(std::string_view key, uint64_t fallback) const {
  return or_fallback(get_uint(key), fallback);
}

Result<double> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing_key(*this, key);
  const auto* number = std::get_if<double>(value);
  if (number == nullptr) return wrong_kind(*this, key, *value, "a number with a fraction");
  if (!std::isfinite(*number)) return out_of_range(*this, key, "a finite number");
  return *number;
}

Result<double> GgufFile::get_float(std::string_view key, double fallback) const {
  return or_fallback(get_float(key), fallback);
}

Result<bool> GgufFile::get_bool(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  const auto* flag = std::get_if<bool>(value);
  if (flag == nullptr) return wrong_kind(*this, key, *value, "a bool");
  return *flag;
}

Result<std::string> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing_key(*this, key);
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) return wrong_kind(*this, key, *value, "a string");
  return *text;
}

Result<std::string> GgufFile::get_string(std::string_view key, std::string fallback) const {
  return or_fallback(get_string(key), std::move(fallback));
}

Result<std::vector<std::string>> GgufFile::take_strings(std::string_view key) {
  const auto entry = metadata_.find(key);
  if (entry == metadata_.end()) return missing_key(*this, key);
  auto* strings = std::get_if<std::vector<std::string>>(&entry->second);
  if (strings == nullptr) return wrong_kind(*this, key, entry->second, "an array of strings");
  return std::exchange(*strings, {});
}

Result<std::vector<float>> GgufFile::take_floats(std::string_view key) {
  const auto entry = metadata_.find(key);
  if (entry == metadata_.end()) return missing_key(*this, key);
  if (auto* floats = std::get_if<std::vector<float>>(&entry->second)) {
    return std::exchange(*floats, {});
  }
  auto* doubles = std::get_if<std::vector<double>>(&entry->second);
  if (doubles == nullptr) return wrong_kind(*this, key, entry->second, "an array of floats");
  std::vector<float> out;
  if (!convert(*doubles, out, fits_float)) return out_of_range(*this, key, "a 32-bit float");
  return out;
}

Result<std::vector<int64_t>> GgufFile::take_integers(std::string_view key) {
  const auto entry = metadata_.find(key);
  if (entry == metadata_.end()) return missing_key(*this, key);
  if (auto* integers = std::get_if<std::vector<int64_t>>(&entry->second)) {
    return std::exchange(*integers, {});
  }
  std::vector<int64_t> out;
  if (auto* integers = std::get_if<std::vector<uint64_t>>(&entry->second)) {
    if (!convert(*integers, out, fits_int64)) return out_of_range(*this, key, "a 64-bit integer");
    return out;
  }
  auto* bools = std::get_if<std::vector<bool>>(&entry->second);
  if (bools == nullptr) return wrong_kind(*this, key, entry->second, "an array of integers");
  convert(*bools, out, [](bool) { return true; });
  return out;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto entry = tensor_index_.find(name);
  return entry == tensor_index_.end() ? nullptr : &tensors_[entry->second];
}

}  // namespace tierkv
