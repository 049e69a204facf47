// Plans made with less freedom than make_plan's, to see what each freedom is worth:
//
//   fixed       a fourth of the tokens in RAM exact, the rest compressed, all heads with one codec
//   uniform     the best split into tiers, all heads with one codec
//   refined     that split, then the best codecs within it: tiers and codecs one after the other
//   joint       make_plan
//
// In each the best of what the rule leaves open, by make_plan's order of preference, within the
// same RAM and KLD; so a rule loses by what it rules out and by nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.h"

namespace tierkv {

enum class PlanRule : uint8_t { kFixed, kUniform, kRefined, kJoint };
inline constexpr PlanRule kPlanRules[] = {PlanRule::kFixed, PlanRule::kUniform, PlanRule::kRefined,
                                          PlanRule::kJoint};
const char* plan_rule_name(PlanRule rule);
// kInvalidArgument: a name that no rule has.
Result<PlanRule> parse_plan_rule(const std::string& name);

// Of the tokens in RAM, the part that kFixed keeps exact; never less than sinks and window.
inline constexpr double kFixedExactShare = 0.25;

// kResourceExhausted when the rule has no plan that fits.
Result<Plan> plan_by(PlanRule rule, const PlanInput& input);

}  // namespace tierkv
