// Which codec assignments are worth looking at. Per head only the options on the lower convex hull
// of (bytes, KLD) can be best for some exchange rate between the two; and walking the hull steps of
// all heads in the order of KLD paid per byte saved passes, for each budget, through the best
// assignment (Everett's generalised Lagrange multipliers). docs/decisions.md has the figures.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace tierkv {

// float16, which every head has.
CodecOption exact_option(const PlanHead& head);

// A head's hull, from float16 (KLD 0) to the fewest bytes: bytes fall, KLD rises, and each step
// pays at least as much KLD per byte as the one before it.
std::vector<CodecOption> lower_hull(const PlanHead& head);

// The chain of assignments: for each step, the head that moves on to its next hull vertex. All
// heads start at their first.
std::vector<int> hull_steps(const std::vector<std::vector<CodecOption>>& hulls);

}  // namespace tierkv
