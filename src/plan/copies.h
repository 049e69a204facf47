// Plans that read flash selectively: the RAM that would keep some of the middle exact or in Tier-1
// holds coarser copies of all of it instead, beside originals on flash of which few are read.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace tierkv {

// The share of the bytes of flash pages with copies that a step is expected to read, wrong guesses
// included, when copies alone would cost `kld`: fitted to SmolLM2 (docs/decisions.md).
double expected_reads(double kld_budget, double kld);

// Copies no finer than this are chosen, in bits an element: they cost so little KLD that reading
// has nothing left to win.
inline constexpr double kFinestCopyBits = 5.25;

// `plan`, made from `input`, or the one with copies if it is faster (always taken when the layout
// is `forced`): sinks and window exact, all else on flash. `codecs` of the copies: one for all
// heads or one each; none: the best for the RAM that is left. Where RAM does not hold copies of all
// pages, so many have one; where it holds none, or flash is not used, the answer is `plan`.
Result<Plan> with_copies(const PlanInput& input, const Plan& plan,
                         const std::vector<CodecId>& codecs, bool forced);

}  // namespace tierkv
