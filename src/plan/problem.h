// From a PlanInput to what plan/split.h solves, and back: for make_plan, and for what explains
// plans or makes them in other ways to compare.
#pragma once

#include "plan/hull_chain.h"
#include "plan/plan.h"
#include "plan/split.h"

namespace tierkv {

// Everything but what the codecs decide (CodecSums::apply adds that). `input` must make sense,
// which make_plan checks.
SplitProblem problem_without_codecs(const PlanInput& input);

// What a head has for a codec; float16 for 0/0.
Result<CodecOption> find_option(const PlanHead& head, CodecId codec);

Plan to_plan(const PlanInput& input, const Split& split, const Assignment& codecs);

}  // namespace tierkv
