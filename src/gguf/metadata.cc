#include "gguf/metadata.h"

#include <iterator>
#include <utility>

#include "gguf/kind.h"

namespace tierkv {
namespace {

// A map node and its allocator's overhead, beside the strings and arrays that are counted as read.
constexpr uint64_t kEntryMemory = sizeof(std::pair<const std::string, GgufValue>) + 64;

Status unknown_kind(uint32_t kind) {
  return corrupt(
      format("has unknown kind %u: the file is damaged or newer than this program", kind));
}

Result<bool> to_bool(uint8_t byte) {
  if (byte > 1) return corrupt(format("is a bool with the value %u, not 0 or 1", byte));
  return byte == 1;
}

template <typename T, typename Wide>
Result<GgufValue> scalar(GgufReader& reader) {
  TIERKV_ASSIGN_OR_RETURN(const T value, reader.number<T>());
  return GgufValue(static_cast<Wide>(value));
}

Result<GgufValue> bool_scalar(GgufReader& reader) {
  TIERKV_ASSIGN_OR_RETURN(const uint8_t byte, reader.number<uint8_t>());
  TIERKV_ASSIGN_OR_RETURN(const bool value, to_bool(byte));
  return GgufValue(value);
}

Result<GgufValue> string_scalar(GgufReader& reader) {
  TIERKV_ASSIGN_OR_RETURN(std::string text, reader.string());
  return GgufValue(std::move(text));
}

template <typename T, typename Wide>
Result<GgufValue> numbers(GgufReader& reader, uint64_t count) {
  auto values = reader.numbers<T, Wide>(count);
  if (!values.ok()) return values.status();
  return GgufValue(std::move(*values));
}

Result<GgufValue> bools(GgufReader& reader, uint64_t count) {
  TIERKV_RETURN_IF_ERROR(reader.charge(count));
  std::vector<bool> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    TIERKV_ASSIGN_OR_RETURN(const uint8_t byte, reader.number<uint8_t>());
    TIERKV_ASSIGN_OR_RETURN(const bool value, to_bool(byte));
    values.push_back(value);
  }
  return GgufValue(std::move(values));
}

Result<GgufValue> strings(GgufReader& reader, uint64_t count) {
  TIERKV_RETURN_IF_ERROR(reader.charge(count, sizeof(std::string)));
  std::vector<std::string> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    auto text = reader.string();
    if (!text.ok()) return text.status().with_context(format("element %llu", llu(i)));
    values.push_back(std::move(*text));
  }
  return GgufValue(std::move(values));
}

// How a kind of value is read, alone and in arrays; in the order of GgufKind.
struct KindReader {
  uint64_t min_bytes;  // that one value takes in the file
  Result<GgufValue> (*read)(GgufReader& reader);
  Result<GgufValue> (*read_array)(GgufReader& reader, uint64_t count);
};

template <typename T, typename Wide>
constexpr KindReader number_kind() {
  return {sizeof(T), scalar<T, Wide>, numbers<T, Wide>};
}

Result<GgufValue> array(GgufReader& reader);
Result<GgufValue> nested_array(GgufReader&, uint64_t) {
  return unsupported("is an array of arrays, which no known model uses");
}

constexpr KindReader kKindReaders[] = {
    number_kind<uint8_t, uint64_t>(),
    number_kind<int8_t, int64_t>(),
    number_kind<uint16_t, uint64_t>(),
    number_kind<int16_t, int64_t>(),
    number_kind<uint32_t, uint64_t>(),
    number_kind<int32_t, int64_t>(),
    {sizeof(float), scalar<float, double>, numbers<float, float>},
    {1, bool_scalar, bools},
    {sizeof(uint64_t), string_scalar, strings},
    {sizeof(uint32_t) + sizeof(uint64_t), array, nested_array},
    number_kind<uint64_t, uint64_t>(),
    number_kind<int64_t, int64_t>(),
    number_kind<double, double>(),
};
static_assert(std::size(kKindReaders) == static_cast<size_t>(GgufKind::kFloat64) + 1);

Result<GgufValue> array(GgufReader& reader) {
  TIERKV_ASSIGN_OR_RETURN(const uint32_t kind, reader.number<uint32_t>());
  TIERKV_ASSIGN_OR_RETURN(const uint64_t count, reader.number<uint64_t>());
  if (kind >= std::size(kKindReaders)) return unknown_kind(kind);
  if (count > reader.remaining() / kKindReaders[kind].min_bytes) {
    return corrupt(
        format("is an array of %llu elements, more than the %llu bytes left in the file "
               "can hold: the file is truncated or damaged, fetch it again",
               llu(count), llu(reader.remaining())));
  }
  return kKindReaders[kind].read_array(reader, count);
}

Result<GgufValue> value_of_kind(GgufReader& reader, uint32_t kind) {
  return kind < std::size(kKindReaders) ? kKindReaders[kind].read(reader) : unknown_kind(kind);
}

Status read_entry(GgufReader& reader, std::string& key, GgufValue& value) {
  TIERKV_ASSIGN_OR_RETURN(key, reader.string(kMaxNameBytes));
  if (key.empty()) return corrupt("has an empty key");
  TIERKV_ASSIGN_OR_RETURN(const uint32_t kind, reader.number<uint32_t>());
  TIERKV_ASSIGN_OR_RETURN(value, value_of_kind(reader, kind));
  return {};
}

}  // namespace

Result<GgufMetadata> read_metadata(GgufReader& reader, uint64_t count) {
  GgufMetadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key;
    GgufValue value;
    TIERKV_RETURN_IF_ERROR(reader.charge(kEntryMemory));
    if (const Status status = read_entry(reader, key, value); !status.ok()) {
      const std::string name = key.empty() ? "" : " " + quoted(key);
      return status.with_context(format("metadata entry %llu", llu(i)) + name);
    }
    const auto [entry, is_new] = metadata.try_emplace(std::move(key), std::move(value));
    if (!is_new) return corrupt("metadata key " + quoted(entry->first) + " appears twice");
  }
  return metadata;
}

const char* value_kind_name(const GgufValue& value) {
  static constexpr const char* kNames[] = {"an unsigned integer",
                                           "an integer",
                                           "a number with a fraction",
                                           "a bool",
                                           "a string",
                                           "an array of unsigned integers",
                                           "an array of integers",
                                           "an array of floats",
                                           "an array of doubles",
                                           "an array of bools",
                                           "an array of strings"};
  static_assert(std::size(kNames) == std::variant_size_v<GgufValue>);
  return kNames[value.index()];
}

}  // namespace tierkv
