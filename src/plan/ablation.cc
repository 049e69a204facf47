#include "plan/ablation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/problem.h"

namespace tierkv {
namespace {

struct Candidate {
  Split split;
  Assignment codecs;
};

void consider(const SplitProblem& problem, const Split& split, const Assignment& codecs,
              std::optional<Candidate>& best) {
  constexpr double kRounding = 1 + 1e-12;
  if (split.ram_bytes > problem.ram_bytes || split.kld > problem.kld_budget * kRounding) return;
  if (split.tier1 > problem.min_tier1 && problem.kld > problem.codec_kld_budget) return;
  if (split.offloaded > 0 && !problem.flash_allowed) return;
  if (!best || better(split, best->split)) best = Candidate{split, codecs};
}

// One codec for all heads; nothing when a head does not have it.
std::optional<Assignment> uniform_assignment(const PlanInput& input, CodecId codec) {
  Assignment codecs;
  for (const PlanHead& head : input.heads) {
    const Result<CodecOption> option = find_option(head, codec);
    if (!option.ok() || option->page_bytes > head.exact_page_bytes) return std::nullopt;
    codecs.push_back(*option);
  }
  return codecs;
}

// Of every codec that all heads have, float16 first.
std::vector<Assignment> uniform_assignments(const PlanInput& input) {
  std::vector<Assignment> found = {*uniform_assignment(input, CodecId{})};
  if (input.heads.empty()) return found;
  for (const CodecOption& option : input.heads[0].options) {
    if (auto codecs = uniform_assignment(input, option.codec)) found.push_back(std::move(*codecs));
  }
  return found;
}

bool is_exact(const Assignment& codecs) { return codecs.empty() || codecs[0].codec == CodecId{}; }

SplitProblem problem_with(const PlanInput& input, const Assignment& codecs) {
  SplitProblem problem = problem_without_codecs(input);
  CodecSums(codecs).apply(problem);
  return problem;
}

// So many pages in RAM, a fixed share of them exact.
Split fixed_split(const SplitProblem& p, int64_t in_ram) {
  const auto share =
      static_cast<int64_t>(std::ceil(kFixedExactShare * static_cast<double>(in_ram)));
  const int64_t exact = std::max(p.min_exact, share);
  return make_split(p, exact, in_ram - exact);
}

std::optional<Candidate> best_fixed(const PlanInput& input) {
  std::optional<Candidate> best;
  for (const Assignment& codecs : uniform_assignments(input)) {
    const SplitProblem problem = problem_with(input, codecs);
    for (int64_t in_ram = problem.min_exact + problem.min_tier1; in_ram <= problem.pages;
         ++in_ram) {
      const Split split =
          is_exact(codecs) ? make_split(problem, in_ram, 0) : fixed_split(problem, in_ram);
      consider(problem, split, codecs, best);
    }
  }
  return best;
}

std::optional<Candidate> best_uniform(const PlanInput& input) {
  std::optional<Candidate> best;
  for (const Assignment& codecs : uniform_assignments(input)) {
    const SplitProblem problem = problem_with(input, codecs);
    std::optional<Split> split;
    improve(problem, split);
    if (split) consider(problem, *split, codecs, best);
  }
  return best;
}

std::optional<Candidate> best_refined(const PlanInput& input) {
  std::optional<Candidate> best = best_uniform(input);
  if (!best) return best;
  const Split split = best->split;
  const HullChain chain(input.heads, problem_without_codecs(input));
  chain.walk([&](const SplitProblem& problem, size_t number) {
    const Split same = make_split(problem, split.exact, split.tier1);
    if (better(same, best->split)) consider(problem, same, chain.assignment(number), best);
  });
  return best;
}

std::optional<Candidate> best_by(PlanRule rule, const PlanInput& input) {
  switch (rule) {
    case PlanRule::kFixed:
      return best_fixed(input);
    case PlanRule::kUniform:
      return best_uniform(input);
    case PlanRule::kRefined:
      return best_refined(input);
    case PlanRule::kJoint:
      break;
  }
  return std::nullopt;
}

}  // namespace

const char* plan_rule_name(PlanRule rule) {
  switch (rule) {
    case PlanRule::kFixed:
      return "fixed";
    case PlanRule::kUniform:
      return "uniform";
    case PlanRule::kRefined:
      return "refined";
    case PlanRule::kJoint:
      return "joint";
  }
  return "";
}

Result<PlanRule> parse_plan_rule(const std::string& name) {
  for (const PlanRule rule : kPlanRules) {
    if (name == plan_rule_name(rule)) return rule;
  }
  return invalid_argument("no rule for plans is called \"" + name +
                          "\"; use joint, refined, uniform or fixed");
}

Result<Plan> plan_by(PlanRule rule, const PlanInput& input) {
  Result<Plan> joint = make_plan(input);  // which checks the input, too
  const bool makes_sense = joint.ok() || joint.status().code() == StatusCode::kResourceExhausted;
  if (rule == PlanRule::kJoint || !makes_sense) return joint;
  const std::optional<Candidate> best = best_by(rule, input);
  if (best) return to_plan(input, best->split, best->codecs);
  return resource_exhausted(format("no plan of the rule \"%s\" fits", plan_rule_name(rule)));
}

}  // namespace tierkv
