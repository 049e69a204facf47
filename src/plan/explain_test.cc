#include "plan/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tierkv {
namespace {

using ::testing::ElementsAre;

constexpr CodecId kK5V4{5, 4}, kK4V5{4, 5}, kK3V2{3, 2};

// Two heads of 100 bytes a page, ten tokens a page; 40 bytes at k5v4, 20 at k3v2.
PlanInput example() {
  const PlanHead head{.exact_page_bytes = 100,
                      .exact_seconds_per_token = 4,
                      .options = {{kK5V4, 40, .001, 1}, {kK3V2, 20, .010, 1}}};
  PlanInput in;
  in.page_tokens = 10;
  in.total_tokens = 95;
  in.heads = {head, head};
  return in;
}

// Ten pages, the last one half full: 1 sink, 3 in Tier-1, 4 on flash, 2 of window.
Plan example_plan() {
  Plan plan;
  plan.sink_pages = 1;
  plan.window_pages = 2;
  plan.tier1_pages = 3;
  plan.flash = true;
  plan.codecs = {kK5V4, kK3V2};
  plan.n_exact = 25;
  plan.n_compressed = 30;
  plan.n_offloaded = 40;
  plan.seconds_per_token = 2;
  return plan;
}

TEST(Explain, PartsCoverTheContextInItsOrder) {
  const std::vector<ContextPart> parts = context_parts(example(), example_plan());
  ASSERT_EQ(parts.size(), 4u);
  const struct {
    PartKind kind;
    int64_t first, n;
    uint64_t bytes;
  } want[] = {{PartKind::kSinks, 0, 10, 200},
              {PartKind::kCompressed, 10, 30, 3 * 60},
              {PartKind::kOffloaded, 40, 40, 4 * 200},
              {PartKind::kWindow, 80, 15, 2 * 200}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(parts[i].kind, want[i].kind) << i;
    EXPECT_EQ(parts[i].first_token, want[i].first) << i;
    EXPECT_EQ(parts[i].n_tokens, want[i].n) << i;
    EXPECT_EQ(parts[i].bytes, want[i].bytes) << i;
  }
}

// What make_plan gives: the parts' tokens are the context's and their bytes in RAM the plan's.
TEST(Explain, PartsOfARealPlanAddUp) {
  PlanInput in = example();
  in.total_tokens = 1000;
  in.kld_budget = .004;
  in.extent_pages = 2;
  in.flash_allowed = true;
  in.flash_bytes_per_second = 100;
  in.ram_bytes = 100 * 60;
  const Result<Plan> plan = make_plan(in);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_GT(plan->n_offloaded, 0);
  ASSERT_GT(plan->n_compressed, 0);
  int64_t tokens = 0;
  uint64_t ram = 2 * 200;  // the extent that is being filled
  for (const ContextPart& part : context_parts(in, *plan)) {
    EXPECT_EQ(part.first_token, tokens);
    tokens += part.n_tokens;
    if (part.kind != PartKind::kOffloaded) ram += part.bytes;
  }
  EXPECT_EQ(tokens, in.total_tokens);
  EXPECT_EQ(ram, plan->ram_bytes);
}

TEST(Explain, EmptyPartsAreLeftOut) {
  PlanInput in = example();
  in.total_tokens = 7;
  in.flash_allowed = false;
  in.ram_bytes = 1 << 20;
  in.kld_budget = 0;
  const Result<Plan> plan = make_plan(in);
  ASSERT_TRUE(plan.ok());
  const std::vector<ContextPart> parts = context_parts(in, *plan);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].kind, PartKind::kSinks);
  EXPECT_EQ(parts[0].n_tokens, 7);
  EXPECT_EQ(parts[0].bytes, 200u);
}

TEST(Explain, CodecsAreCountedMostBitsFirst) {
  Plan plan = example_plan();
  plan.codecs = {kK3V2, kK5V4, CodecId{}, kK3V2, kK4V5, kK3V2};
  const std::vector<CodecCount> counts = codec_counts(plan);
  ASSERT_EQ(counts.size(), 4u);
  const CodecCount want[] = {{CodecId{}, 1}, {kK5V4, 1}, {kK4V5, 1}, {kK3V2, 3}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(counts[i].codec, want[i].codec) << i;
    EXPECT_EQ(counts[i].n_heads, want[i].n_heads) << i;
  }
  plan.tier1_pages = 0;
  EXPECT_TRUE(codec_counts(plan).empty());
}

TEST(Explain, BitsPerElementCountWhatIsStored) {
  EXPECT_DOUBLE_EQ(tier1_bits_per_element(example(), example_plan()), 16 * 60.0 / 200);
  Plan empty = example_plan();
  empty.tier1_pages = 0;
  EXPECT_EQ(tier1_bits_per_element(example(), empty), 0);
}

TEST(Explain, ImprovingIsFasterOrAsFastWithoutFlash) {
  const Plan plan = example_plan();
  Plan other = plan;
  EXPECT_FALSE(improves(other, plan));
  other.flash = false;
  EXPECT_TRUE(improves(other, plan));
  EXPECT_FALSE(improves(plan, other));
  other.seconds_per_token = 2 * (1 + 1e-12);  // rounding
  EXPECT_TRUE(improves(other, plan));
  other.seconds_per_token = 2.1;
  EXPECT_FALSE(improves(other, plan));
  EXPECT_TRUE(improves(plan, other));
}

TEST(Explain, NeighbouringQualities) {
  const struct {
    double budget;
    const char *stricter, *looser;
  } cases[] = {{0, nullptr, "high"},      {1e-4, "exact", "high"},     {5e-4, "exact", "balanced"},
               {2e-3, "high", "compact"}, {1e-2, "balanced", nullptr}, {1, "compact", nullptr}};
  for (const auto& c : cases) {
    const Quality* stricter = stricter_quality(c.budget);
    const Quality* looser = looser_quality(c.budget);
    EXPECT_STREQ(stricter ? stricter->name : nullptr, c.stricter) << c.budget;
    EXPECT_STREQ(looser ? looser->name : nullptr, c.looser) << c.budget;
  }
}

TEST(Explain, ParetoFront) {
  const PlanPoint points[] = {
      {10, .1, 5},  // beaten by the next in time only: RAM and KLD are the same
      {10, .1, 4}, {20, .1, 3}, {20, .0, 6}, {30, .1, 3},  // beaten in RAM by {20, .1, 3}
      {20, .1, 3},                                         // equal points are all on it
  };
  EXPECT_THAT(pareto_front(points), ElementsAre(false, true, true, true, false, true));
}

TEST(Explain, RamLadder) {
  EXPECT_THAT(ram_ladder(100, 200, 5), ElementsAre(100u, 125u, 150u, 175u, 200u));
  EXPECT_THAT(ram_ladder(100, 103, 3), ElementsAre(100u, 101u, 103u));
  EXPECT_THAT(ram_ladder(100, 101, 9), ElementsAre(100u, 101u));
  EXPECT_THAT(ram_ladder(100, 100, 9), ElementsAre(100u));
  EXPECT_THAT(ram_ladder(100, 50, 9), ElementsAre(100u));
}

}  // namespace
}  // namespace tierkv
