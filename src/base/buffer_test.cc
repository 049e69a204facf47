#include "base/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/process.h"

namespace tierkv {
namespace {

constexpr uint64_t kMi = 1 << 20;

Buffer must_allocate(MemoryBudget& budget, uint64_t bytes, MemoryKind kind = MemoryKind::kTier0) {
  auto buffer = Buffer::allocate(budget, kind, bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status().message();
  return buffer.ok() ? std::move(*buffer) : Buffer();
}

TEST(Buffer, IsZeroedAlignedWritableAndCountedInPages) {
  MemoryBudget budget;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const uint64_t bytes : {uint64_t{1}, page - 1, page, page + 1, uint64_t{100000}}) {
    Buffer buffer = must_allocate(budget, bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % page, 0u);
    EXPECT_EQ(budget.used(MemoryKind::kTier0), (bytes + page - 1) / page * page);
    EXPECT_EQ(budget.used(), buffer_footprint(bytes));
    const auto span = buffer.span<std::byte>();
    EXPECT_TRUE(
        std::all_of(span.begin(), span.end(), [](std::byte b) { return b == std::byte{0}; }));
    std::memset(buffer.data(), 0xff, bytes);
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(Buffer, EmptyTakesNothing) {
  MemoryBudget budget(0);
  Buffer buffer = must_allocate(budget, 0);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.data(), nullptr);
  buffer.reset();
}

TEST(Buffer, SpansRoundDownToWholeElements) {
  MemoryBudget budget;
  Buffer buffer = must_allocate(budget, 10);
  EXPECT_EQ(buffer.span<uint32_t>().size(), 2u);
  buffer.as<uint32_t>()[1] = 7;
  EXPECT_EQ(static_cast<const Buffer&>(buffer).as<uint32_t>()[1], 7u);
}

TEST(Buffer, RefusalsLeaveTheBudgetAsItWas) {
  MemoryBudget budget(kMi);
  Buffer held = must_allocate(budget, kMi / 2);
  const auto refused = Buffer::allocate(budget, MemoryKind::kTier1, kMi);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("--ram"));
  EXPECT_EQ(budget.used(), kMi / 2);

  MemoryBudget unlimited;  // and more than the system's address space has
  for (const uint64_t bytes : {uint64_t{1} << 62, UINT64_MAX - 10, UINT64_MAX}) {
    const auto absurd = Buffer::allocate(unlimited, MemoryKind::kTier1, bytes);
    EXPECT_EQ(absurd.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(unlimited.used(), 0u);
  }
}

TEST(Buffer, MovingHandsTheReservationOver) {
  static_assert(!std::is_copy_constructible_v<Buffer>);
  MemoryBudget budget, other;
  Buffer a = must_allocate(budget, kMi, MemoryKind::kScratch);
  std::byte* const memory = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), memory);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(budget.used(MemoryKind::kScratch), kMi);
  Buffer c = must_allocate(other, 2 * kMi);
  c = std::move(b);
  EXPECT_EQ(other.used(), 0u) << "what it held before is given back to its own budget";
  EXPECT_EQ(c.data(), memory);
  EXPECT_EQ(budget.used(MemoryKind::kScratch), kMi);
  c = Buffer();
  EXPECT_EQ(budget.used(), 0u);
}

// Counted memory is real memory: resident when touched, gone when reset.
TEST(Buffer, ResetReturnsMemoryToTheSystem) {
  if (resident_bytes() == 0) GTEST_SKIP() << "no /proc here";
  constexpr uint64_t kBytes = 64 * kMi, kSlack = 8 * kMi;
  MemoryBudget budget;
  const uint64_t before = resident_bytes();
  Buffer buffer = must_allocate(budget, kBytes);
  EXPECT_LT(resident_bytes(), before + kSlack) << "nothing is resident before it is touched";
  std::memset(buffer.data(), 1, kBytes);
  EXPECT_GT(resident_bytes(), before + kBytes - kSlack);
  EXPECT_GE(peak_resident_bytes(), before + kBytes - kSlack);
  buffer.reset();
  EXPECT_LT(resident_bytes(), before + kSlack);
}

}  // namespace
}  // namespace tierkv
