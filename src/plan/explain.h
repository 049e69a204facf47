// What a plan means and why it is as it is, in numbers for whoever shows them: the tiers along the
// context, how often each codec is used, whether lifting a constraint would help, and which of many
// plans no other one beats.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/quality.h"

namespace tierkv {

enum class PartKind : uint8_t { kSinks, kCompressed, kOffloaded, kWindow };

// A run of tokens that lie in one place. `bytes` are in RAM, of kOffloaded on flash; whole pages,
// since that is what is allocated, window-only layers aside.
struct ContextPart {
  PartKind kind = PartKind::kSinks;
  int64_t first_token = 0, n_tokens = 0;
  uint64_t bytes = 0;
};

// In the context's order, without those that hold no token. `plan` was made from `input`.
std::vector<ContextPart> context_parts(const PlanInput& input, const Plan& plan);

struct CodecCount {
  CodecId codec;
  int n_heads = 0;
};
// Most bits first, float16 before all. Empty while Tier-1 is.
std::vector<CodecCount> codec_counts(const Plan& plan);

// Of Tier-1, scales included; float16 has 16. 0 while Tier-1 is empty.
double tier1_bits_per_element(const PlanInput& input, const Plan& plan);

// What the plan's codecs would cost with all tokens in Tier-1, which codec_kld_budget bounds. 0
// while Tier-1 is empty.
double codec_kld(const PlanInput& input, const Plan& plan);

// Whether `changed`, made with a constraint lifted or loosened, is worth more than `plan`: faster
// by more than rounding, or as fast and without flash.
bool improves(const Plan& changed, const Plan& plan);

// The named quality next to a KLD budget, less or more of it; null where there is none.
const Quality* stricter_quality(double kld_budget);
const Quality* looser_quality(double kld_budget);

// What a plan costs in each of the three ways.
struct PlanPoint {
  uint64_t ram_bytes = 0;
  double kld = 0;
  double seconds = 0;
};
// For each point whether it is on the Pareto front: no other is at least as good in all three and
// better in one. Of equal points all are.
std::vector<bool> pareto_front(std::span<const PlanPoint> points);

// n values from `least` to `most`, evenly spaced; only those that differ.
std::vector<uint64_t> ram_ladder(uint64_t least, uint64_t most, int n);

}  // namespace tierkv
