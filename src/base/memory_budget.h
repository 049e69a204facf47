// The RAM ceiling, kept. Every allocation that grows with the model or the context is reserved here
// before it is made, and refused with the number of bytes that would do when it does not fit.
// Thread safe. Categories exist so that a report can say where the RAM went.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/status.h"

namespace tierkv {

enum class MemoryKind { kOverhead, kWeights, kScratch, kTier0, kTier1, kStaging };
inline constexpr int kMemoryKinds = 6;
const char* memory_kind_name(MemoryKind kind);

class MemoryBudget {
 public:
  static constexpr uint64_t kUnlimited = UINT64_MAX;

  explicit MemoryBudget(uint64_t limit_bytes = kUnlimited) : limit_(limit_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Counts `bytes` against the ceiling, or fails without counting anything.
  Status reserve(MemoryKind kind, uint64_t bytes);
  void release(MemoryKind kind, uint64_t bytes);

  // What the process itself takes (code, tokenizer, allocator): measured, not reserved; replaces
  // the figure set before. Never fails: it states a fact. Later reservations see what is left.
  void set_overhead(uint64_t bytes);

  // A new ceiling, from now on. Below what is in use it frees nothing: reservations fail until
  // enough has been released.
  void set_limit(uint64_t bytes);

  uint64_t limit() const;
  uint64_t used() const;
  uint64_t used(MemoryKind kind) const;
  uint64_t peak() const;
  uint64_t peak(MemoryKind kind) const;
  uint64_t available() const;

 private:
  uint64_t used_locked() const;

  mutable std::mutex mutex_;
  uint64_t limit_;
  std::array<uint64_t, kMemoryKinds> used_{};
  std::array<uint64_t, kMemoryKinds> peak_by_kind_{};
  uint64_t peak_ = 0;
};

}  // namespace tierkv
