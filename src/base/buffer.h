// Owned, page-aligned memory, reserved in a MemoryBudget for as long as it lives. Taken from the
// kernel with mmap, so that freeing it really gives it back and its resident size is what was
// asked. Zero-filled. Allocation failure is a Status, never an exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"

namespace tierkv {

class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) reset(), swap(other);
    return *this;
  }

  // The budget must outlive the buffer. `huge_pages` asks for transparent huge pages (weights).
  static Result<Buffer> allocate(MemoryBudget& budget, MemoryKind kind, uint64_t bytes,
                                 bool huge_pages = false);

  // For buffers that come and go, side by side: huge pages only where there is no ceiling, since
  // the system may keep what is freed of one until memory is short.
  static Result<Buffer> allocate_page(MemoryBudget& budget, MemoryKind kind, uint64_t bytes) {
    return allocate(budget, kind, bytes, budget.limit() == MemoryBudget::kUnlimited);
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  template <typename T>
  std::span<T> span() {
    return {as<T>(), size_ / sizeof(T)};
  }

  void reset();

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(reserved_, other.reserved_);
    std::swap(budget_, other.budget_);
    std::swap(kind_, other.kind_);
  }

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;      // bytes asked for
  uint64_t reserved_ = 0;  // bytes mapped and counted: whole pages
  MemoryBudget* budget_ = nullptr;
  MemoryKind kind_ = MemoryKind::kScratch;
};

// Bytes a Buffer of `bytes` takes from its budget: whole pages.
uint64_t buffer_footprint(uint64_t bytes);

}  // namespace tierkv
