// One Buffer, many parts: lays out arrays one after the other, each 64-byte aligned. Carving from
// null gives the size that will be needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tierkv {

constexpr uint64_t align64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  // Points `part` at the next `count` elements.
  template <typename T>
  void take(T*& part, uint64_t count) {
    part = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(base_) + bytes_);
    bytes_ += align64(count * sizeof(T));
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  uint64_t bytes_ = 0;
};

}  // namespace tierkv
