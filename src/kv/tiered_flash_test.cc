// Tier-2 under the cache, with each backend, with and without overlap: it changes no bit, and what
// goes wrong with the disk is an error, after which things go on as if it had not been.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/fault_file.h"
#include "kv/flash_way_test_util.h"
#include "kv/tiered_test_util.h"

namespace tierkv {
namespace {

using Outputs = std::vector<std::vector<float>>;

constexpr uint64_t kNoLimit = MemoryBudget::kUnlimited;
constexpr AttentionMath kMath = AttentionMath::kBf16;

class TieredFlash : public ::testing::TestWithParam<FlashWay> {
 protected:
  FlashOptions options() const { return GetParam().options(); }
};

INSTANTIATE_TEST_SUITE_P(Ways, TieredFlash, ::testing::ValuesIn(all_flash_ways()), flash_way_name);

TEST_P(TieredFlash, ChangesNoBit) {
  const auto shapes = shapes_for(2, 1);
  const int64_t n_prompt = 1100, n_total = 1500;
  const Sequence sequence(shapes, n_total);
  Rig exact(shapes), flash(shapes, 2, kNoLimit, nullptr, kMath, options()),
      spilled(shapes, 3, kNoLimit, nullptr, kMath, options());
  spilled.cache->set_exact_limit(13 + exact.layout.extent_pages);
  std::vector<std::vector<float>> a, b, c;
  for (int64_t at = 0; at < n_prompt; at += 220) {
    ASSERT_TRUE(sequence.feed(*exact.cache, at, at + 220, &a).ok());
    ASSERT_TRUE(sequence.feed(*flash.cache, at, at + 220, &b).ok());
    ASSERT_TRUE(sequence.feed(*spilled.cache, at, at + 220, &c).ok());
  }
  ASSERT_TRUE(exact.cache->settle(plan_of(exact.layout, 1, 1000, 0, {}, false)).ok());
  ASSERT_TRUE(flash.cache->settle(plan_of(flash.layout, 1, 2, 0, {}, true)).ok());
  ASSERT_TRUE(spilled.cache->settle(plan_of(spilled.layout, 1, 2, 0, {}, true)).ok());
  for (int64_t at = n_prompt; at < n_total; at += 5) {
    ASSERT_TRUE(sequence.feed(*exact.cache, at, at + 5, &a).ok());
    ASSERT_TRUE(sequence.feed(*flash.cache, at, at + 5, &b).ok());
    ASSERT_TRUE(sequence.feed(*spilled.cache, at, at + 5, &c).ok());
  }
  EXPECT_EQ(exact.cache->report().n_offloaded, 0);
  EXPECT_GT(flash.cache->report().n_offloaded, 900);
  EXPECT_EQ(flash.cache->report().n_exact + flash.cache->report().n_offloaded, n_total);
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    EXPECT_EQ(0, std::memcmp(a[layer].data(), b[layer].data(), a[layer].size() * 4)) << layer;
    EXPECT_EQ(0, std::memcmp(a[layer].data(), c[layer].data(), a[layer].size() * 4)) << layer;
  }
}

// A cache over a disk with faults, and one without flash that says what must come out.
class TieredFlashFault : public TieredFlash {
 protected:
  static constexpr int64_t kPrompt = 1200;

  void SetUp() override {
    rig_.emplace(shapes_, 2, kNoLimit, files_.get(), kMath, options());
    for (int64_t at = 0; at < kPrompt; at += 200) {
      ASSERT_TRUE(sequence_.feed(*rig_->cache, at, at + 200).ok());
      ASSERT_TRUE(sequence_.feed(*exact_.cache, at, at + 200).ok());
    }
  }
  Plan flash_plan() const { return plan_of(exact_.layout, 1, 2, 0, {}, true); }
  void settle() {
    const Status settled = rig_->cache->settle(flash_plan());
    ASSERT_TRUE(settled.ok()) << settled.message();
    ASSERT_GT(rig_->cache->report().n_offloaded, 800);
  }
  // Reads `n` tokens at a time up to `end`, as far as that goes; what comes out is right.
  Status read_to(int64_t end, int64_t n = 1) {
    for (int64_t at = rig_->cache->length(); at < end; at += n) {
      Outputs got, want;
      TIERKV_RETURN_IF_ERROR(sequence_.feed(*rig_->cache, at, at + n, &got));
      EXPECT_TRUE(sequence_.feed(*exact_.cache, at, at + n, &want).ok());
      EXPECT_EQ(got, want) << "token " << at;
    }
    return {};
  }
  // The fault shows as `code`, nothing is lost, and once it is over all goes on.
  void expect_fault(StatusCode code) {
    const Status status = read_to(kPrompt + 20);
    EXPECT_EQ(status.code(), code) << status.message();
    plan_.fail_read_at = plan_.flip_bit_in_read = FaultPlan::kNever;
    EXPECT_TRUE(read_to(kPrompt + 24).ok());
    EXPECT_EQ(rig_->cache->length(), kPrompt + 24);
  }

  const std::vector<KvLayerShape> shapes_ = shapes_for(2, 0);
  const Sequence sequence_{shapes_, 2200};
  FaultPlan plan_;
  const std::unique_ptr<FileSystem> files_ = make_fault_file_system(real_file_system(), plan_);
  Rig exact_{shapes_};
  std::optional<Rig> rig_;
};

INSTANTIATE_TEST_SUITE_P(Ways, TieredFlashFault, ::testing::ValuesIn(all_flash_ways()),
                         flash_way_name);

TEST_P(TieredFlashFault, ADirectoryThatDoesNotServeLeavesRamAsItWas) {
  plan_.fail_create = true;
  EXPECT_EQ(rig_->cache->settle(flash_plan()).code(), StatusCode::kIoError);
  rig_->cache->set_exact_limit(INT64_MAX);
  EXPECT_TRUE(read_to(kPrompt + 10).ok());
  plan_.fail_create = false;
  settle();
  EXPECT_TRUE(read_to(kPrompt + 20).ok());
}

TEST_P(TieredFlashFault, AFullDiskLeavesRamAsItWas) {
  plan_.disk_full_at = 1 << 20;
  EXPECT_EQ(rig_->cache->settle(flash_plan()).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(rig_->cache->report().n_exact, kPrompt);
  rig_->cache->set_exact_limit(INT64_MAX);
  EXPECT_TRUE(read_to(kPrompt + 10).ok());
  plan_.disk_full_at = FaultPlan::kNever;
  settle();
  EXPECT_TRUE(read_to(kPrompt + 20).ok());
}

// While the answer grows: what can't be written stays in RAM, and is an error once RAM is needed.
TEST_P(TieredFlashFault, ADiskThatFillsUpWhileTheAnswerGrows) {
  settle();
  plan_.disk_full_at = plan_.bytes_written.load();
  const int64_t whole = 3 * exact_.layout.extent_pages * kPageTokens;
  ASSERT_TRUE(read_to(whole, 8).ok()) << "writing the third extent fails, and nobody needs it yet";
  EXPECT_EQ(read_to(whole + 8, 8).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(rig_->cache->length(), whole);
  plan_.disk_full_at = FaultPlan::kNever;
  EXPECT_TRUE(read_to(whole + 80, 8).ok());
  EXPECT_GT(rig_->cache->report().n_offloaded, 1200);
}

TEST_P(TieredFlashFault, AWriteThatFailsWhileTheAnswerGrows) {
  settle();
  plan_.fail_write_at = plan_.writes.load() + 1;
  const int64_t whole = 3 * exact_.layout.extent_pages * kPageTokens;
  ASSERT_TRUE(read_to(whole, 8).ok());
  EXPECT_EQ(read_to(whole + 8, 8).code(), StatusCode::kIoError);
  plan_.fail_write_at = FaultPlan::kNever;
  EXPECT_TRUE(read_to(whole + 80, 8).ok());
}

TEST_P(TieredFlashFault, AReadThatFails) {
  settle();
  plan_.fail_read_at = plan_.reads.load() + 3;
  expect_fault(StatusCode::kIoError);
}

TEST_P(TieredFlashFault, AFlippedBit) {
  settle();
  plan_.flip_bit_in_read = plan_.reads.load() + 1;
  expect_fault(StatusCode::kCorrupt);
}

TEST_P(TieredFlashFault, AFaultThatPasses) {
  settle();
  for (const int error : {EINTR, EAGAIN}) {
    plan_.read_error = error;
    plan_.fail_read_at = plan_.reads.load() + 2;
    EXPECT_TRUE(read_to(rig_->cache->length() + 5).ok());
    EXPECT_EQ(plan_.fail_read_at, FaultPlan::kNever);
  }
  plan_.short_every = 3;
  EXPECT_TRUE(read_to(kPrompt + 20).ok());
}

TEST_P(TieredFlashFault, ASlowDisk) {
  settle();
  plan_.delay_us = 3000;
  EXPECT_TRUE(read_to(kPrompt + 5).ok());
  EXPECT_GT(rig_->cache->report().flash.stall_seconds, 0.003);
}

// The disk says that all was stored, and it was not: an error for good, and RAM as it was.
TEST_P(TieredFlashFault, ATornWrite) {
  plan_.tear_write_at = plan_.writes.load() + 2;
  settle();
  for (int i = 0; i < 2; ++i) {
    const Status status = read_to(kPrompt + 1);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
    EXPECT_EQ(rig_->cache->length(), kPrompt);
  }
  EXPECT_GT(rig_->cache->report().n_exact, 64 * 3);
}

}  // namespace
}  // namespace tierkv
