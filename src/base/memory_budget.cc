#include "base/memory_budget.h"

#include <algorithm>
#include <numeric>

#include "base/size.h"

namespace tierkv {

const char* memory_kind_name(MemoryKind kind) {
  static constexpr const char* kNames[kMemoryKinds] = {"overhead", "weights", "scratch",
                                                       "tier0",    "tier1",   "staging"};
  return kNames[static_cast<int>(kind)];
}

Status MemoryBudget::reserve(MemoryKind kind, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const uint64_t used = used_locked();
  if (bytes > limit_ || used > limit_ - bytes) {
    const uint64_t enough = bytes > kUnlimited - used ? kUnlimited : used + bytes;
    return resource_exhausted(format(
        "%s for %s does not fit: %s of the RAM budget of %s is in use; give at least --ram %s",
        format_size(bytes).c_str(), memory_kind_name(kind), format_size(used).c_str(),
        format_size(limit_).c_str(), format_size_argument(enough).c_str()));
  }
  uint64_t& mine = used_[static_cast<int>(kind)];
  mine += bytes;
  peak_by_kind_[static_cast<int>(kind)] = std::max(peak_by_kind_[static_cast<int>(kind)], mine);
  peak_ = std::max(peak_, used + bytes);
  return {};
}

void MemoryBudget::release(MemoryKind kind, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  uint64_t& mine = used_[static_cast<int>(kind)];
  assert(mine >= bytes);
  mine -= std::min(mine, bytes);
}

void MemoryBudget::set_overhead(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const int kind = static_cast<int>(MemoryKind::kOverhead);
  used_[kind] = bytes;
  peak_by_kind_[kind] = std::max(peak_by_kind_[kind], bytes);
  peak_ = std::max(peak_, used_locked());
}

void MemoryBudget::set_limit(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

uint64_t MemoryBudget::limit() const {
  std::lock_guard lock(mutex_);
  return limit_;
}

uint64_t MemoryBudget::used() const {
  std::lock_guard lock(mutex_);
  return used_locked();
}

uint64_t MemoryBudget::used(MemoryKind kind) const {
  std::lock_guard lock(mutex_);
  return used_[static_cast<int>(kind)];
}

uint64_t MemoryBudget::peak() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

uint64_t MemoryBudget::peak(MemoryKind kind) const {
  std::lock_guard lock(mutex_);
  return peak_by_kind_[static_cast<int>(kind)];
}

uint64_t MemoryBudget::available() const {
  std::lock_guard lock(mutex_);
  const uint64_t used = used_locked();
  return used >= limit_ ? 0 : limit_ - used;
}

uint64_t MemoryBudget::used_locked() const {
  return std::accumulate(used_.begin(), used_.end(), uint64_t{0});
}

}  // namespace tierkv
