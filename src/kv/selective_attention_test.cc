// Selective reading under the cache: between its two ends, everything read and nothing, which are
// the exact cache and Tier-1 to the bit, whatever the threads, the disk and what is read ahead.
#include <gtest/gtest.h>

#include <optional>

#include "base/fault_file.h"
#include "kv/flash_way_test_util.h"
#include "kv/tiered_test_util.h"

namespace tierkv {
namespace {

using Outputs = std::vector<std::vector<float>>;

constexpr uint64_t kNoLimit = MemoryBudget::kUnlimited;
constexpr AttentionMath kMath = AttentionMath::kBf16;
constexpr CodecId kCodec = {4, 3};
// Three extents of 8 pages and two pages of window, the last one not full.
constexpr int64_t kPrompt = 26 * kPageTokens - 40;
constexpr double kAll = 0, kSome = 7.5e-4, kNone = 1e30;  // budgets

class SelectiveAttention : public ::testing::TestWithParam<FlashWay> {
 protected:
  FlashOptions options() const { return GetParam().options(); }
  Plan plan(double kld_budget, int64_t copies = 1000) const {
    Plan plan = plan_of(layout_, 1, 2, 0, kCodec, true);
    plan.copies = {copies, kld_budget, std::vector<double>(plan.codecs.size(), 1e-3)};
    return plan;
  }
  Plan exact_plan() const { return plan_of(layout_, 1, 1000, 0, {}, false); }
  void read_prompt(Rig& rig, const Plan& plan) const {
    for (int64_t at = 0; at < kPrompt;) {
      const int64_t n = std::min<int64_t>(200, kPrompt - at);
      ASSERT_TRUE(sequence_.feed(*rig.cache, at, at + n).ok());
      at += n;
    }
    const Status settled = rig.cache->settle(plan);
    ASSERT_TRUE(settled.ok()) << settled.message();
  }
  // The outputs of `n_tokens` more, `at_once` a step.
  Outputs go_on(Rig& rig, int64_t n_tokens, int64_t at_once = 1) const {
    Outputs out;
    const int64_t end = rig.cache->length() + n_tokens;
    for (int64_t at = rig.cache->length(); at < end; at += at_once) {
      const Status status = sequence_.feed(*rig.cache, at, at + at_once, &out);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return out;
  }
  Outputs outputs(const Plan& plan, int64_t n_tokens, int n_threads = 2,
                  int64_t at_once = 1) const {
    Rig rig(shapes_, n_threads, kNoLimit, nullptr, kMath, options());
    read_prompt(rig, plan);
    return go_on(rig, n_tokens, at_once);
  }

  const std::vector<KvLayerShape> shapes_ = shapes_for(3, 1);
  const KvLayout layout_ = make_kv_layout(shapes_);
  Sequence sequence_{shapes_, 2400};
};

INSTANTIATE_TEST_SUITE_P(Ways, SelectiveAttention, ::testing::ValuesIn(all_flash_ways()),
                         flash_way_name);

TEST_P(SelectiveAttention, EverythingReadIsTheExactCache) {
  EXPECT_EQ(outputs(plan(kAll), 40), outputs(exact_plan(), 40));
}

TEST_P(SelectiveAttention, NothingReadIsTier1) {
  Rig rig(shapes_, 2, kNoLimit, nullptr, kMath, options());
  read_prompt(rig, plan(kNone));
  const FlashStats before = rig.cache->report().flash;
  EXPECT_EQ(go_on(rig, 40), outputs(plan_of(layout_, 1, 2, 1000, kCodec, false), 40));
  const FlashStats after = rig.cache->report().flash - before;
  EXPECT_EQ(after.asked, 0);
  EXPECT_EQ(after.judged, 40 * 3 * 3);
  EXPECT_EQ(after.skipped, after.judged);
}

// More than one token at once, as of a prompt: all is read.
TEST_P(SelectiveAttention, ChunksAreExact) {
  for (const int64_t at_once : {8, 40}) {
    EXPECT_EQ(outputs(plan(kNone), 40, 2, at_once), outputs(exact_plan(), 40, 2, at_once));
  }
}

// Between the ends, and over a time in which pages leave RAM: a choice, and always the same.
TEST_P(SelectiveAttention, ChoicesDependOnNothingElse) {
  const double budget = kSome;
  Rig rig(shapes_, 1, kNoLimit);
  read_prompt(rig, plan(budget));
  const Outputs want = go_on(rig, 640);
  const FlashStats flash = rig.cache->report().flash;
  EXPECT_GT(flash.skipped, 0);
  EXPECT_LT(flash.skipped, flash.judged);
  EXPECT_GT(rig.cache->report().n_copied, 1600) << "pages that left RAM since have copies as well";
  EXPECT_EQ(outputs(plan(budget), 640, 1), want);
  EXPECT_EQ(outputs(plan(budget), 640, 3), want);
}

// Token 700, in extent 1, gets nearly all attention of one query head.
TEST_P(SelectiveAttention, ANeedleIsRead) {
  const int layer = 1;  // full attention
  sequence_.point(layer, kPrompt + 9, 700);
  Rig rig(shapes_, 2, kNoLimit, nullptr, kMath, options());
  read_prompt(rig, plan(6e-3));
  go_on(rig, 9);
  const FlashStats before = rig.cache->report().flash;
  const Outputs got = go_on(rig, 1);
  const FlashStats after = rig.cache->report().flash - before;
  EXPECT_EQ(after.judged, 3 * 3);
  EXPECT_EQ(after.skipped, 3 * 3 - 1) << "all but one extent of one layer";
  const Outputs exact = outputs(exact_plan(), 10), copies = outputs(plan(kNone), 10);
  double by_reading = 0, by_copies = 0;
  for (size_t i = 0; i < 64; ++i) {  // of the first head
    const size_t last = exact[layer].size() - 6 * 64 + i;
    by_reading += std::pow(got[layer][i] - exact[layer][last], 2);
    by_copies += std::pow(copies[layer][last] - exact[layer][last], 2);
  }
  EXPECT_LT(by_reading, by_copies / 100);
}

TEST_P(SelectiveAttention, PagesWithoutACopyAreRead) {
  Rig rig(shapes_, 2, kNoLimit, nullptr, kMath, options());
  read_prompt(rig, plan(kNone, 7));
  EXPECT_EQ(rig.cache->report().n_copied, 7 * kPageTokens);
  EXPECT_EQ(rig.cache->report().n_offloaded, 23 * kPageTokens);
  const FlashStats before = rig.cache->report().flash;
  go_on(rig, 5);
  const FlashStats after = rig.cache->report().flash - before;
  EXPECT_EQ(after.judged, 5 * 3 * 3);
  EXPECT_EQ(after.skipped, 5 * 3) << "the first extent, whose pages all have copies";
}

TEST_P(SelectiveAttention, CopiesAreCounted) {
  Rig rig(shapes_, 2, kNoLimit, nullptr, kMath, options());
  read_prompt(rig, plan(kNone));
  go_on(rig, 100);
  const TierReport report = rig.cache->report();
  EXPECT_EQ(report.n_compressed, 0);
  EXPECT_EQ(report.n_copied, report.n_offloaded);
  EXPECT_EQ(report.copy_bytes, static_cast<uint64_t>(report.n_copied / kPageTokens) * 3 * 2 *
                                   rotated_block_bytes({kCodec.k_bits, kCodec.v_bits}, 64));
  EXPECT_GE(report.tier1_bytes, report.copy_bytes);
  EXPECT_EQ(rig.cache->ram_bytes(), report.tier0_bytes + report.tier1_bytes + report.staging_bytes);
}

// Plans made anew take copies away, give them back, and bring pages into RAM: no bit is lost.
TEST_P(SelectiveAttention, CopiesComeAndGo) {
  Rig rig(shapes_, 2, kNoLimit, nullptr, kMath, options()), exact(shapes_);
  read_prompt(rig, plan(kNone));
  read_prompt(exact, exact_plan());
  Plan finer = plan_of(layout_, 1, 2, 5, {8, 8}, true);
  finer.copies = {9, kAll, std::vector<double>(finer.codecs.size(), 1e-5)};
  const std::vector<Plan> plans = {plan(kAll, 7), plan_of(layout_, 1, 2, 0, {}, true), plan(kAll),
                                   exact_plan(), plan(kAll)};
  for (const Plan& next : plans) {
    ASSERT_TRUE(rig.cache->settle(finer).ok());
    EXPECT_EQ(rig.cache->report().n_compressed, 5 * kPageTokens);
    EXPECT_EQ(rig.cache->report().n_copied, 9 * kPageTokens);
    ASSERT_TRUE(rig.cache->settle(next).ok());
    EXPECT_EQ(go_on(rig, 3), go_on(exact, 3));
  }
}

TEST_P(SelectiveAttention, AFailedReadIsAnError) {
  for (const bool flipped : {false, true}) {
    FaultPlan faults;
    const auto files = make_fault_file_system(real_file_system(), faults);
    Rig rig(shapes_, 2, kNoLimit, files.get(), kMath, options());
    read_prompt(rig, plan(kSome));
    const Outputs before = go_on(rig, 2);
    Outputs got;
    Status status;
    int64_t at = kPrompt + 2;
    for (; status.ok() && at < kPrompt + 40; ++at) {
      // A wrong guess may fail unnoticed: nobody asks for it.
      (flipped ? faults.flip_bit_in_read : faults.fail_read_at) = faults.reads.load() + 2;
      status = sequence_.feed(*rig.cache, at, at + 1, &got);
    }
    EXPECT_EQ(status.code(), flipped ? StatusCode::kCorrupt : StatusCode::kIoError);
    EXPECT_EQ(rig.cache->length(), at - 1);
    faults.fail_read_at = faults.flip_bit_in_read = FaultPlan::kNever;
    Rig other(shapes_, 2, kNoLimit);
    read_prompt(other, plan(kSome));
    go_on(other, at - 1 - kPrompt);
    EXPECT_EQ(go_on(rig, 5), go_on(other, 5)) << "and nothing is lost";
  }
}

}  // namespace
}  // namespace tierkv
