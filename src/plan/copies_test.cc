// Plans with copies: within RAM, never slower than the plan they come from, and forced ones.
#include "plan/copies.h"

#include <gtest/gtest.h>

#include "plan/plan_test_util.h"

namespace tierkv {
namespace {

// 100 pages of one head: 160 bytes exact, 50 in k5v4, 30 in k3v2.
PlanInput input_of(uint64_t ram) {
  PlanInput in;
  in.page_tokens = 64;
  in.total_tokens = 6400;
  in.ram_bytes = ram;
  in.staging_bytes = 100;
  in.extent_pages = 4;
  in.kld_budget = 1e-3;
  in.flash_bytes_per_second = 1000;
  in.heads = {{160, 1e-6, {{{5, 4}, 50, 2e-3, 1e-6}, {{3, 2}, 30, 6e-2, 1e-6}}}};
  return in;
}

constexpr uint64_t kAround = 100 + 4 * 160 + 4 * 160;  // staging, an extent, sinks and window

TEST(Copies, TheBestCodecsForTheRamThatIsLeft) {
  for (const auto& [ram, codec, pages] : {std::tuple{kAround + 96 * 50, CodecId{5, 4}, 96},
                                          {kAround + 95 * 50, CodecId{3, 2}, 96},
                                          {kAround + 96 * 30, CodecId{3, 2}, 96},
                                          {kAround + 10 * 30 + 29, CodecId{3, 2}, 10}}) {
    const PlanInput in = input_of(ram);
    const Result<Plan> flash = make_forced_plan(in, ForcedLayout::kAllFlash, {});
    ASSERT_TRUE(flash.ok()) << flash.status().message();
    const Result<Plan> plan = with_copies(in, *flash, {}, true);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->codecs, std::vector<CodecId>{codec});
    EXPECT_EQ(plan->copies.pages, pages);
    EXPECT_EQ(plan->copies.kld_budget, 1e-3);
    EXPECT_EQ(plan->copies.head_kld, std::vector<double>{codec.k_bits == 5 ? 2e-3 : 6e-2});
    EXPECT_EQ(plan->tier1_pages, 0);
    EXPECT_LE(plan->ram_bytes, ram);
    EXPECT_LT(plan->seconds_per_token, flash->seconds_per_token);
    EXPECT_EQ(plan->n_offloaded, flash->n_offloaded);
  }
}

TEST(Copies, NoneWhereThereIsNoRamOrNoFlash) {
  const PlanInput little = input_of(kAround + 29);
  const Plan flash = *make_forced_plan(little, ForcedLayout::kAllFlash, {});
  EXPECT_EQ(with_copies(little, flash, {}, true)->copies.pages, 0);
  const PlanInput much = input_of(1 << 20);
  const Plan exact = *make_plan(much);
  EXPECT_FALSE(exact.flash);
  EXPECT_EQ(with_copies(much, exact, {}, false)->copies.pages, 0);
}

TEST(Copies, AnUnknownCodecIsRefused) {
  const PlanInput in = input_of(kAround + 96 * 50);
  const Plan flash = *make_forced_plan(in, ForcedLayout::kAllFlash, {});
  EXPECT_FALSE(with_copies(in, flash, {{8, 8}}, true).ok());
}

// Heads that differ share one cost of a codec.
TEST(Copies, ACodecCostsAHeadTheMean) {
  PlanInput in = input_of(1 << 20);
  in.heads.push_back(in.heads[0]);
  in.heads[1].options[1].kld = 2e-2;
  const Plan flash = *make_forced_plan(in, ForcedLayout::kAllFlash, {});
  const Plan plan = *with_copies(in, flash, {{3, 2}}, true);
  EXPECT_EQ(plan.copies.head_kld, (std::vector<double>{4e-2, 4e-2}));
}

TEST(Copies, ReadsFallWithWhatIsAllowed) {
  EXPECT_EQ(expected_reads(0, 1e-2), 1);
  EXPECT_EQ(expected_reads(1e-3, 0), 0);
  EXPECT_EQ(expected_reads(1, 1e-2), 0);
  EXPECT_NEAR(expected_reads(1e-3, 1e-2), 0.27, 0.01);
  EXPECT_GT(expected_reads(1e-4, 1e-2), expected_reads(1e-3, 1e-2));
}

// Whatever the problem: RAM holds, bound pages stay, and time falls.
TEST(Copies, RandomPlans) {
  RandomPlans random(3);
  int n_with = 0;
  for (int i = 0; i < 3000; ++i) {
    PlanInput in = random.input(1 + i % 3, 4, 40);
    const Result<Plan> plan = make_plan(in);
    if (!plan.ok()) continue;
    const Result<Plan> made = with_copies(in, *plan, {}, false);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_LE(made->ram_bytes, in.ram_bytes);
    if (made->copies.pages == 0) continue;
    ++n_with;
    EXPECT_LT(made->seconds_per_token, plan->seconds_per_token);
    EXPECT_LE(made->copies.pages * in.page_tokens, made->n_offloaded);
    EXPECT_EQ(made->copies.head_kld.size(), in.heads.size());
  }
  EXPECT_GT(n_with, 50);
}

}  // namespace
}  // namespace tierkv
