// What attention to codes costs, made smooth: of codecs measured one by one, each for milliseconds,
// one or two catch a moment when the machine did something else, and the planner would avoid them,
// or flee to them, ever after.
#pragma once

#include <span>
#include <vector>

#include "runtime/device_costs.h"

namespace tierkv {

// The middle value, or the mean of the two in the middle; of one value or more.
double median(std::vector<double> values);

// Replaces each codec's seconds by a part for its K bits plus a part for its V bits, which is how
// the kernels work, by Tukey's median polish: up to half of a row or column may be off and not
// count. Every K width must come with every V width, once.
void smooth_costs(std::span<AttentionCosts::Codec> codecs);

}  // namespace tierkv
