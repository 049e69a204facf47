#include "base/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/size.h"

namespace tierkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMi = 1 << 20;

TEST(MemoryBudget, CountsByKindAndRemembersPeaks) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.reserve(MemoryKind::kTier0, 60).ok());
  EXPECT_TRUE(budget.reserve(MemoryKind::kTier1, 40).ok());
  EXPECT_EQ(budget.available(), 0u);
  budget.release(MemoryKind::kTier0, 50);
  EXPECT_TRUE(budget.reserve(MemoryKind::kTier1, 20).ok());
  EXPECT_EQ(budget.used(), 70u);
  EXPECT_EQ(budget.used(MemoryKind::kTier0), 10u);
  EXPECT_EQ(budget.used(MemoryKind::kTier1), 60u);
  EXPECT_EQ(budget.peak(), 100u);
  EXPECT_EQ(budget.peak(MemoryKind::kTier0), 60u);
  EXPECT_EQ(budget.peak(MemoryKind::kWeights), 0u);
  EXPECT_EQ(budget.available(), 30u);
}

TEST(MemoryBudget, RefusalCountsNothingAndSaysWhatWouldDo) {
  MemoryBudget budget(100 * kMi);
  ASSERT_TRUE(budget.reserve(MemoryKind::kWeights, 90 * kMi).ok());
  const Status refused = budget.reserve(MemoryKind::kStaging, 28 * kMi - 5);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("28.0 MiB"), HasSubstr("staging"), HasSubstr("90.0 MiB"),
                    HasSubstr("100.0 MiB"), HasSubstr("--ram 118M")));
  EXPECT_EQ(budget.used(), 90 * kMi);
  EXPECT_EQ(budget.peak(), 90 * kMi);
  MemoryBudget advised(*parse_size("118M"));
  ASSERT_TRUE(advised.reserve(MemoryKind::kWeights, 90 * kMi).ok());
  EXPECT_TRUE(advised.reserve(MemoryKind::kStaging, 28 * kMi - 5).ok());
}

TEST(MemoryBudget, FitsToTheByte) {
  MemoryBudget budget(1000);
  EXPECT_TRUE(budget.reserve(MemoryKind::kScratch, 999).ok());
  EXPECT_FALSE(budget.reserve(MemoryKind::kScratch, 2).ok());
  EXPECT_TRUE(budget.reserve(MemoryKind::kScratch, 1).ok());
  EXPECT_TRUE(budget.reserve(MemoryKind::kScratch, 0).ok());
  EXPECT_FALSE(budget.reserve(MemoryKind::kScratch, 1).ok());
}

TEST(MemoryBudget, AbsurdRequestsAreRefusedWithoutOverflow) {
  for (const uint64_t limit : {uint64_t{1000}, MemoryBudget::kUnlimited}) {
    MemoryBudget budget(limit);
    ASSERT_TRUE(budget.reserve(MemoryKind::kTier0, 500).ok());
    const Status refused = budget.reserve(MemoryKind::kTier0, UINT64_MAX - 5);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.message(), HasSubstr("--ram 17592186044416M"));
    EXPECT_EQ(budget.used(), 500u);
  }
}

TEST(MemoryBudget, OverheadIsAFactThatLaterReservationsSee) {
  MemoryBudget budget(100);
  budget.set_overhead(30);
  EXPECT_FALSE(budget.reserve(MemoryKind::kTier0, 71).ok());
  EXPECT_TRUE(budget.reserve(MemoryKind::kTier0, 70).ok());
  budget.set_overhead(50);  // more than there is: nothing fails, nothing more fits
  EXPECT_EQ(budget.used(), 120u);
  EXPECT_EQ(budget.available(), 0u);
  EXPECT_FALSE(budget.reserve(MemoryKind::kTier1, 1).ok());
  budget.set_overhead(10);  // replaces, does not add
  EXPECT_EQ(budget.used(), 80u);
  EXPECT_EQ(budget.peak(), 120u);
  EXPECT_EQ(budget.peak(MemoryKind::kOverhead), 50u);
}

TEST(MemoryBudget, KindsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    names.insert(memory_kind_name(static_cast<MemoryKind>(kind)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kMemoryKinds));
}

// Four threads that fight over the last bytes: never more than the limit, and nothing is lost.
TEST(MemoryBudget, HoldsItsLimitUnderContention) {
  constexpr uint64_t kLimit = 100;
  MemoryBudget budget(kLimit);
  std::atomic<uint64_t> held{0};
  std::atomic<int64_t> refused{0};
  std::atomic<bool> passed{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, kind = static_cast<MemoryKind>(t)] {
      for (uint64_t i = 0; i < 5000; ++i) {
        const uint64_t bytes = 1 + (i * 37 + 11) % 60;
        if (!budget.reserve(kind, bytes).ok()) {
          ++refused;
          continue;
        }
        if (held.fetch_add(bytes) + bytes > kLimit) passed = true;
        if (i % 8 == 0) std::this_thread::yield();
        held -= bytes;
        budget.release(kind, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(passed);
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_LE(budget.peak(), kLimit);
  EXPECT_GT(budget.peak(), 0u);
}

}  // namespace
}  // namespace tierkv
