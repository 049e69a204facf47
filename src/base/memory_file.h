// A File whose bytes live in memory, for tests and fuzzing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace tierkv {

class MemoryFile : public File {
 public:
  explicit MemoryFile(std::vector<std::byte> bytes = {}, std::string name = "memory")
      : bytes_(std::move(bytes)), name_(std::move(name)) {}

  Status read_at(uint64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(mutex_);
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return corrupt(name_ + " is truncated: " +
                     format("no %zu bytes at offset %llu of %zu", out.size(),
                            static_cast<unsigned long long>(offset), bytes_.size()));
    }
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }

  Status write_at(uint64_t offset, std::span<const std::byte> data) override {
    const std::lock_guard lock(mutex_);
    if (offset > bytes_.max_size() || data.size() > bytes_.max_size() - offset) {
      return resource_exhausted(name_ + " would grow past what memory can hold");
    }
    bytes_.resize(std::max<size_t>(bytes_.size(), offset + data.size()));
    std::copy(data.begin(), data.end(), bytes_.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }

  Result<uint64_t> size() override {
    const std::lock_guard lock(mutex_);
    return static_cast<uint64_t>(bytes_.size());
  }

  void drop_cache(uint64_t, uint64_t) override {}
  const std::string& name() const override { return name_; }

 private:
  std::mutex mutex_;
  std::vector<std::byte> bytes_;
  const std::string name_;
};

}  // namespace tierkv
