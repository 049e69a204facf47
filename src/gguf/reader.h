// A little-endian stream over a File, front to back through a small buffer. It never reads past the
// size it was given, whatever lengths the file claims, and counts the memory that its caller keeps.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tierkv {

class GgufReader {
 public:
  // What a header may take once decoded: real ones take tens of MiB.
  static constexpr uint64_t kMaxMemory = uint64_t{1} << 30;

  GgufReader(File& file, uint64_t file_bytes) : file_(file), file_bytes_(file_bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return file_bytes_ - position_; }
  uint64_t file_bytes() const { return file_bytes_; }

  Status read(std::span<std::byte> out);

  template <typename T>
  Result<T> number() {
    std::byte raw[sizeof(T)];
    TIERKV_RETURN_IF_ERROR(read(raw));
    return from_little_endian<T>(raw);
  }

  // A length and that many bytes; longer than `max_bytes` is an error.
  Result<std::string> string(uint64_t max_bytes = UINT64_MAX);

  // Numbers stored as T, widened to Wide.
  template <typename T, typename Wide>
  Result<std::vector<Wide>> numbers(uint64_t count);

  // Counts memory that is about to be allocated for decoded values.
  Status charge(uint64_t bytes);
  Status charge(uint64_t count, uint64_t bytes_each);

  template <typename T>
  static T from_little_endian(const std::byte* raw) {
    using Bits = std::conditional_t<
        sizeof(T) == 8, uint64_t,
        std::conditional_t<sizeof(T) == 4, uint32_t,
                           std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) bits |= std::to_integer<uint64_t>(raw[i]) << (8 * i);
    return std::bit_cast<T>(static_cast<Bits>(bits));
  }

 private:
  Status past_end() const;

  File& file_;
  const uint64_t file_bytes_;
  uint64_t position_ = 0;
  std::vector<std::byte> buffer_;  // the bytes of the file from buffer_start_
  uint64_t buffer_start_ = 0;
  uint64_t charged_ = 0;
};

template <typename T, typename Wide>
Result<std::vector<Wide>> GgufReader::numbers(uint64_t count) {
  if (count > remaining() / sizeof(T)) return past_end();
  TIERKV_RETURN_IF_ERROR(charge(count, sizeof(Wide)));
  std::vector<Wide> out;
  out.reserve(count);
  std::byte chunk[1024 * sizeof(T)];
  while (out.size() < count) {
    const size_t n = std::min<uint64_t>(1024, count - out.size());
    TIERKV_RETURN_IF_ERROR(read({chunk, n * sizeof(T)}));
    for (size_t i = 0; i < n; ++i) {
      out.push_back(static_cast<Wide>(from_little_endian<T>(chunk + i * sizeof(T))));
    }
  }
  return out;
}

// Text from a file, in quotes, cut and cleaned so that it can go to a terminal.
std::string quoted(std::string_view text);

// For "%llu".
inline unsigned long long llu(uint64_t value) { return value; }

}  // namespace tierkv
