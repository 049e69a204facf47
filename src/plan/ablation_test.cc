#include "plan/ablation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "plan/plan_test_util.h"
#include "plan/problem.h"

namespace tierkv {
namespace {

constexpr CodecId kK5V4{5, 4}, kK3V2{3, 2};

// 20 pages of ten tokens; a page of a head is 100 bytes and 4 s a token exact, 40 bytes and 1 s at
// k5v4, 20 bytes and .5 s at k3v2. The first head is the sensitive one. Three pages stay exact.
PlanInput example() {
  PlanInput in;
  in.page_tokens = 10;
  in.total_tokens = 200;
  in.ram_bytes = 1 << 20;
  in.min_sink_pages = 1;
  in.min_window_pages = 2;
  in.flash_allowed = false;
  in.heads = {{100, 4, {{kK5V4, 40, .0040, 1}, {kK3V2, 20, .100, .5}}},
              {100, 4, {{kK5V4, 40, .0001, 1}, {kK3V2, 20, .001, .5}}}};
  return in;
}

double seconds(PlanRule rule, const PlanInput& in) {
  const Result<Plan> plan = plan_by(rule, in);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? plan->seconds_per_token : NAN;
}

// k5v4 in both heads costs .0041, so 17 of 20 pages .0035; with k3v2 in the second head .0050, so
// 17 pages .00425 and 16 pages .0040.
TEST(Ablation, EachFreedomIsWorthSomething) {
  PlanInput in = example();
  in.kld_budget = .0041;
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kFixed, in), 50 * 8 + 150 * 2);    // a fourth exact
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kUniform, in), 30 * 8 + 170 * 2);  // 17 pages
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kRefined, in), 30 * 8 + 170 * 2);  // nothing better in 17
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kJoint, in), 40 * 8 + 160 * 1.5);  // 16 pages
  in.kld_budget = .0043;
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kUniform, in), 30 * 8 + 170 * 2);
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kRefined, in), 30 * 8 + 170 * 1.5);
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kJoint, in), 30 * 8 + 170 * 1.5);
}

TEST(Ablation, WhatDoesNotFitIsRefused) {
  PlanInput in = example();
  in.kld_budget = 0;
  EXPECT_DOUBLE_EQ(seconds(PlanRule::kFixed, in), 1600);  // float16 is a codec, too
  in.ram_bytes = 3999;
  for (const PlanRule rule : kPlanRules) {
    EXPECT_EQ(plan_by(rule, in).status().code(), StatusCode::kResourceExhausted)
        << plan_rule_name(rule);
  }
  in.kld_budget = NAN;
  for (const PlanRule rule : kPlanRules) {
    EXPECT_EQ(plan_by(rule, in).status().code(), StatusCode::kInvalidArgument)
        << plan_rule_name(rule);
  }
}

TEST(PlanRule, NamesAreRead) {
  for (const PlanRule rule : kPlanRules) EXPECT_EQ(*parse_plan_rule(plan_rule_name(rule)), rule);
  EXPECT_EQ(parse_plan_rule("split").status().code(), StatusCode::kInvalidArgument);
}

// Every split that a rule allows, one by one.
std::optional<Split> brute_force(PlanRule rule, const PlanInput& in) {
  std::optional<Split> best;
  std::vector<CodecId> codecs = {CodecId{}};
  for (const CodecOption& option : in.heads[0].options) codecs.push_back(option.codec);
  for (const CodecId codec : codecs) {
    Assignment assignment;
    for (const PlanHead& head : in.heads) assignment.push_back(*find_option(head, codec));
    SplitProblem p = problem_without_codecs(in);
    CodecSums(assignment).apply(p);
    for (int64_t exact = p.min_exact; exact <= p.pages; ++exact) {
      for (int64_t tier1 = 0; exact + tier1 <= p.pages; ++tier1) {
        const Split split = make_split(p, exact, tier1);
        const int64_t fourth = (exact + tier1 + 3) / 4;
        const bool by_rule = rule == PlanRule::kUniform || exact == std::max(p.min_exact, fourth) ||
                             (codec == CodecId{} && tier1 == 0);
        if (!by_rule || split.ram_bytes > p.ram_bytes || split.kld > p.kld_budget) continue;
        if (tier1 > 0 && p.kld > p.codec_kld_budget) continue;
        if (split.offloaded > 0 && !p.flash_allowed) continue;
        if (!best || better(split, *best)) best = split;
      }
    }
  }
  return best;
}

// Pages of heads whose codecs are all smaller than float16, as codecs are.
PlanInput random_input(RandomPlans& random) {
  PlanInput in = random.input(3, 4, 12);
  for (PlanHead& head : in.heads) head.exact_page_bytes = 128;
  if (random.below(2) == 1) in.codec_kld_share = 0.125 + random.dyadic(8, 0.125);
  return in;
}

TEST(Ablation, FixedAndUniformAgreeWithBruteForce) {
  RandomPlans random(7);
  int n_feasible = 0;
  for (int i = 0; i < 2000; ++i) {
    const PlanInput in = random_input(random);
    for (const PlanRule rule : {PlanRule::kFixed, PlanRule::kUniform}) {
      const std::optional<Split> want = brute_force(rule, in);
      const Result<Plan> plan = plan_by(rule, in);
      ASSERT_EQ(plan.ok(), want.has_value()) << i << " " << plan_rule_name(rule);
      if (!want) continue;
      ++n_feasible;
      EXPECT_EQ(plan->seconds_per_token, want->seconds) << i << " " << plan_rule_name(rule);
      EXPECT_EQ(plan->kld, want->kld) << i;
      EXPECT_EQ(plan->ram_bytes, want->ram_bytes) << i;
    }
  }
  EXPECT_GT(n_feasible, 1000);
}

TEST(Ablation, MoreFreedomIsNeverSlowerAndAlwaysWithinBudgets) {
  RandomPlans random(11);
  int n_faster = 0;
  for (int i = 0; i < 2000; ++i) {
    const PlanInput in = random_input(random);
    std::optional<double> slowest;
    for (const PlanRule rule : {PlanRule::kFixed, PlanRule::kUniform, PlanRule::kRefined}) {
      const Result<Plan> plan = plan_by(rule, in);
      ASSERT_TRUE(plan.ok() || !slowest) << i << " " << plan_rule_name(rule);
      if (!plan.ok()) continue;
      EXPECT_LE(plan->ram_bytes, in.ram_bytes) << i;
      EXPECT_LE(plan->kld, in.kld_budget) << i;
      if (slowest) {
        EXPECT_LE(plan->seconds_per_token, *slowest) << i << " " << plan_rule_name(rule);
        n_faster += plan->seconds_per_token < *slowest;
      }
      slowest = plan->seconds_per_token;
    }
  }
  EXPECT_GT(n_faster, 200);
}

}  // namespace
}  // namespace tierkv
