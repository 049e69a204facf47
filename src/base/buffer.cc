#include "base/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/size.h"

namespace tierkv {
namespace {

uint64_t page_size() {
  static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

uint64_t buffer_footprint(uint64_t bytes) {
  return (bytes + page_size() - 1) / page_size() * page_size();
}

Result<Buffer> Buffer::allocate(MemoryBudget& budget, MemoryKind kind, uint64_t bytes,
                                bool huge_pages) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > UINT64_MAX / 2) return resource_exhausted("allocation size overflows");
  const uint64_t mapped = buffer_footprint(bytes);
  TIERKV_RETURN_IF_ERROR(budget.reserve(kind, mapped));
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    budget.release(kind, mapped);
    return resource_exhausted("the system has no " + format_size(mapped) + " of memory left for " +
                              memory_kind_name(kind));
  }
  madvise(memory, mapped, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  buffer.reserved_ = mapped;
  buffer.budget_ = &budget;
  buffer.kind_ = kind;
  return buffer;
}

void Buffer::reset() {
  if (data_ == nullptr) return;
  munmap(data_, reserved_);
  budget_->release(kind_, reserved_);
  data_ = nullptr;
  size_ = reserved_ = 0;
  budget_ = nullptr;
}

}  // namespace tierkv
