// The solver against brute force: every split of the pages for every assignment of the hull chain
// (must be equal), and for every assignment at all (how much the chain costs).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "plan/hull.h"
#include "plan/plan.h"
#include "plan/plan_test_util.h"

namespace tierkv {
namespace {

using Assignment = std::vector<CodecOption>;

struct Outcome {
  double seconds;
  bool flash;
  double kld;
  uint64_t ram;
  auto key() const { return std::tuple(seconds, flash, kld, ram); }
};

struct Sums {
  uint64_t exact_bytes = 0, codec_bytes = 0;
  double exact_seconds = 0, codec_seconds = 0, kld = 0;
};

Sums sum(const PlanInput& in, const Assignment& codecs) {
  Sums s;
  for (size_t l = 0; l < in.heads.size(); ++l) {
    s.exact_bytes += in.heads[l].exact_page_bytes;
    s.exact_seconds += in.heads[l].exact_seconds_per_token;
    s.codec_bytes += codecs[l].page_bytes;
    s.codec_seconds += codecs[l].seconds_per_token;
    s.kld += codecs[l].kld;
  }
  return s;
}

double share_of(const PlanInput& in, int64_t pages, int64_t tier1) {
  if (!in.reach) return 0;
  const TokenRange answer = {
      in.total_tokens - std::clamp<int64_t>(in.answer_tokens, 1, in.total_tokens), in.total_tokens};
  return tier1_shares(*in.reach, in.page_tokens, pages, in.min_sink_pages, in.min_window_pages,
                      answer)[static_cast<size_t>(tier1)];
}

// The model as plan.h and docs state it, for `exact` and `tier1` of all `pages`.
std::optional<Outcome> outcome(const PlanInput& in, const Sums& s, int64_t pages, int64_t exact,
                               int64_t tier1) {
  const int64_t offloaded = pages - exact - tier1;
  const bool flash = offloaded > 0;
  uint64_t ram = in.fixed_bytes + exact * s.exact_bytes + tier1 * s.codec_bytes;
  if (flash) ram += in.staging_bytes + in.extent_pages * s.exact_bytes;
  const double share = share_of(in, pages, tier1);
  const bool codecs_fit = !in.codec_kld_share || s.kld <= *in.codec_kld_share * in.kld_budget;
  const bool kld_fits = (codecs_fit && (in.reach ? share * s.kld <= in.kld_budget
                                                 : tier1 * s.kld <= in.kld_budget * pages)) ||
                        tier1 <= in.bound_tier1_pages;
  if (ram > in.ram_bytes || !kld_fits || (flash && !in.flash_allowed)) return std::nullopt;
  const double tier1_tokens = static_cast<double>(tier1 * in.page_tokens);
  double seconds =
      (in.total_tokens - tier1_tokens) * s.exact_seconds + tier1_tokens * s.codec_seconds;
  if (flash) {
    seconds +=
        std::max(0.0, static_cast<double>(offloaded * s.exact_bytes) / in.flash_bytes_per_second -
                          in.overlap_seconds);
  }
  const double kld = in.reach ? share * s.kld : tier1 == 0 ? 0 : tier1 * s.kld / pages;
  return Outcome{seconds, flash, kld, ram};
}

void best_split(const PlanInput& in, const Assignment& codecs, std::optional<Outcome>& best) {
  const Sums s = sum(in, codecs);
  const int64_t pages = (in.total_tokens + in.page_tokens - 1) / in.page_tokens;
  const int64_t least = std::min(pages, in.min_sink_pages + in.min_window_pages);
  for (int64_t exact = least; exact <= pages; ++exact) {
    const int64_t least_tier1 = std::min(in.bound_tier1_pages, pages - least);
    for (int64_t tier1 = least_tier1; exact + tier1 <= pages; ++tier1) {
      const auto now = outcome(in, s, pages, exact, tier1);
      if (now && (!best || now->key() < best->key())) best = now;
    }
  }
}

Assignment bound_options(const PlanInput& in) {
  Assignment bound;
  for (size_t i = 0; i < in.heads.size(); ++i) {
    if (in.bound_codecs[i] == CodecId{}) {
      bound.push_back({{}, in.heads[i].exact_page_bytes, 0, in.heads[i].exact_seconds_per_token});
    }
    for (const CodecOption& option : in.heads[i].options) {
      if (bound.size() == i && option.codec == in.bound_codecs[i]) bound.push_back(option);
    }
  }
  return bound;
}

std::optional<Outcome> brute_force_over_chain(const PlanInput& in) {
  std::vector<std::vector<CodecOption>> hulls;
  Assignment current;
  for (const PlanHead& head : in.heads) {
    hulls.push_back(lower_hull(head));
    current.push_back(hulls.back()[0]);
  }
  std::optional<Outcome> best;
  if (!in.bound_codecs.empty()) {
    best_split(in, bound_options(in), best);
    return best;
  }
  best_split(in, current, best);
  std::vector<size_t> at(hulls.size(), 0);
  for (const int head : hull_steps(hulls)) {
    current[head] = hulls[head][++at[head]];
    best_split(in, current, best);
  }
  return best;
}

void brute_force_over_all(const PlanInput& in, Assignment& codecs, std::optional<Outcome>& best) {
  if (codecs.size() == in.heads.size()) return best_split(in, codecs, best);
  const PlanHead& head = in.heads[codecs.size()];
  std::vector<CodecOption> options = head.options;
  options.push_back({{}, head.exact_page_bytes, 0, head.exact_seconds_per_token});
  for (const CodecOption& option : options) {
    codecs.push_back(option);
    brute_force_over_all(in, codecs, best);
    codecs.pop_back();
  }
}

void expect_same(const Result<Plan>& plan, const std::optional<Outcome>& oracle) {
  ASSERT_EQ(plan.ok(), oracle.has_value());
  if (!oracle) return;
  EXPECT_EQ(plan->seconds_per_token, oracle->seconds);
  EXPECT_EQ(plan->flash, oracle->flash);
  EXPECT_EQ(plan->kld, oracle->kld);
  EXPECT_EQ(plan->ram_bytes, oracle->ram);
}

void expect_consistent(const PlanInput& in, const Plan& plan) {
  EXPECT_LE(plan.ram_bytes, in.ram_bytes);
  EXPECT_LE(plan.kld, in.kld_budget * (1 + 1e-15));
  EXPECT_EQ(plan.n_exact + plan.n_compressed + plan.n_offloaded, in.total_tokens);
  EXPECT_EQ(plan.n_compressed, plan.tier1_pages * in.page_tokens);
  EXPECT_EQ(plan.flash, plan.n_offloaded > 0);
  EXPECT_EQ(plan.codecs.size(), in.heads.size());
  EXPECT_GE(plan.n_exact, 0);
}

TEST(PlanOracle, EqualsBruteForceOverTheHullChain) {
  RandomPlans random(11);
  int fitting = 0, with_flash = 0, with_tier1 = 0;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    PlanInput in = random.input(1 + round % 3, round % 4, 12);
    if (round % 3 == 0) {
      in.reach = Reach{random.dyadic(8, 0.25)};
      in.answer_tokens = random.below(in.total_tokens + 1);
    }
    if (round % 2 == 1) in.codec_kld_share = 0.125 + random.dyadic(8, 0.125);
    const auto plan = make_plan(in);
    expect_same(plan, brute_force_over_chain(in));
    if (::testing::Test::HasFailure()) return;
    if (!plan.ok()) continue;
    expect_consistent(in, *plan);
    ++fitting;
    with_flash += plan->flash;
    with_tier1 += plan->tier1_pages > 0;
  }
  EXPECT_GT(fitting, 1000) << "the instances must exercise all kinds of plans";
  EXPECT_GT(with_flash, 200);
  EXPECT_GT(with_tier1, 200);
}

// Some pages are in Tier-1 already and can't leave.
TEST(PlanOracle, EqualsBruteForceWithBoundPages) {
  RandomPlans random(13);
  int fitting = 0, over_kld = 0;
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(round);
    PlanInput in = random.input(1 + round % 3, round % 4, 12);
    in.bound_tier1_pages = random.below(6);
    if (round % 3 == 1) in.reach = Reach{random.dyadic(8, 0.25)};
    if (round % 2 == 1) in.codec_kld_share = 0.125 + random.dyadic(8, 0.125);
    for (const PlanHead& head : in.heads) {
      in.bound_codecs.push_back({});
      for (const CodecOption& option : head.options) {
        if (option.page_bytes < head.exact_page_bytes) in.bound_codecs.back() = option.codec;
      }
    }
    const auto plan = make_plan(in);
    expect_same(plan, brute_force_over_chain(in));
    if (::testing::Test::HasFailure()) return;
    if (!plan.ok()) continue;
    ++fitting;
    over_kld += plan->kld > in.kld_budget;
    EXPECT_TRUE(plan->tier1_pages == 0 || plan->codecs == in.bound_codecs);
  }
  EXPECT_GT(fitting, 300);
  EXPECT_GT(over_kld, 20);
}

// Few problems, more pages: the shortcuts over page counts have room to go wrong.
TEST(PlanOracle, EqualsBruteForceWithManyPages) {
  RandomPlans random(12);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    const PlanInput in = random.input(1 + round % 4, 3, 90);
    expect_same(make_plan(in), brute_force_over_chain(in));
    if (::testing::Test::HasFailure()) return;
  }
}

struct Excess {
  int compared = 0, equal = 0;
  int only_all_fit = 0;       // no assignment of the chain fits, but another does
  double sum = 0, worst = 0;  // of time, relative to the best of all assignments
};

// How much slower the plan is than the best over all assignments, on small instances.
Excess measure_excess(RandomPlans random, const std::function<void(PlanInput&)>& adjust) {
  Excess excess;
  for (int round = 0; round < 300; ++round) {
    PlanInput in = random.input(3, 3, 12);
    adjust(in);
    const auto plan = make_plan(in);
    std::optional<Outcome> oracle;
    Assignment codecs;
    brute_force_over_all(in, codecs, oracle);
    EXPECT_TRUE(oracle.has_value() || !plan.ok()) << round;
    excess.only_all_fit += oracle.has_value() && !plan.ok();
    if (!plan.ok() || !oracle || oracle->seconds == 0) continue;
    const double over = plan->seconds_per_token / oracle->seconds - 1;
    EXPECT_GE(over, 0) << round;
    ++excess.compared;
    excess.equal += over == 0;
    excess.sum += over;
    excess.worst = std::max(excess.worst, over);
  }
  return excess;
}

void record(const char* name, const Excess& excess) {
  const auto property = [&](const char* what, double value) {
    ::testing::Test::RecordProperty(name + std::string(what), static_cast<int>(value));
  };
  property("_compared", excess.compared);
  property("_only_all_fit", excess.only_all_fit);
  property("_equal_percent", 100. * excess.equal / excess.compared);
  property("_mean_excess_permille", 1000 * excess.sum / excess.compared);
  property("_worst_excess_percent", 100 * excess.worst);
}

// The chain knows bytes and KLD, not time: when fewer bits are also faster, as they are for one
// codec family, little is lost.
TEST(PlanOracle, ChainIsCloseToAllAssignmentsWhenTimeGrowsWithBytes) {
  const Excess excess = measure_excess(RandomPlans(13), [](PlanInput& in) {
    for (PlanHead& head : in.heads) {
      head.exact_seconds_per_token = static_cast<double>(head.exact_page_bytes) * 0x1p-14;
      for (CodecOption& option : head.options) {
        option.seconds_per_token = static_cast<double>(32 + option.page_bytes / 2) * 0x1p-14;
      }
    }
  });
  record("related", excess);
  ASSERT_GT(excess.compared, 150);
  EXPECT_LT(excess.sum / excess.compared, 0.03);
}

// Times drawn without regard to bytes: the worst the chain can meet, recorded rather than promised.
TEST(PlanOracle, ChainIsNeverBetterThanAllAssignments) {
  const Excess excess = measure_excess(RandomPlans(13), [](PlanInput&) {});
  record("unrelated", excess);
  EXPECT_GT(excess.compared, 150);
}

TEST(PlanOracle, LeastRamIsTheLeast) {
  RandomPlans random(14);
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(round);
    PlanInput in = random.input(1 + round % 3, round % 4, 20);
    in.ram_bytes = least_ram(in);
    ASSERT_TRUE(make_plan(in).ok());
    if (in.ram_bytes == 0) continue;
    const std::string number = std::to_string(in.ram_bytes) + " bytes";
    --in.ram_bytes;
    const auto refused = make_plan(in);
    ASSERT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    ASSERT_NE(refused.status().message().find(number), std::string::npos)
        << refused.status().message();
  }
}

}  // namespace
}  // namespace tierkv
