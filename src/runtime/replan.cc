// Plans made anew: the answer has passed its prediction, or the RAM budget has changed. Tokens move
// from their originals on flash where those are there; pages that were compressed without one keep
// their codecs and their place.
#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "runtime/session.h"

namespace tierkv {
namespace {

// Tokens more to expect once a prediction was passed: as many again, so that an answer of any
// length is planned a logarithmic number of times.
constexpr int64_t kLeastExtension = 64;

// Seconds to read the originals of all of Tier-1 again, which other codecs take.
double encoding_seconds(const PlanInput& input, const Plan& plan) {
  double page_bytes = 0;
  for (const PlanHead& head : input.heads) page_bytes += static_cast<double>(head.exact_page_bytes);
  return static_cast<double>(plan.tier1_pages) * page_bytes / input.flash_bytes_per_second;
}

// Refuses a new ceiling, which `lacks` so many bytes of what the planner needs.
Status too_small(uint64_t bytes, uint64_t lacks, const Status& why) {
  if (why.code() != StatusCode::kResourceExhausted) return why;
  return resource_exhausted(
      format("a RAM budget of %s is too small for what the conversation holds; give at least %s",
             format_size(bytes).c_str(), format_size_argument(bytes + lacks + (1 << 20)).c_str()));
}

}  // namespace

// What KV may take under a ceiling, all else staying as it is.
uint64_t Session::kv_ram(uint64_t limit) const {
  if (limit == MemoryBudget::kUnlimited) return options_.kv_ram_bytes;
  const uint64_t kv = cache_->ram_bytes();
  const uint64_t others = engine_.budget().used() - std::min(kv, engine_.budget().used());
  const uint64_t scratch =
      plan_.tier1_pages > 0 || plan_.copies.pages > 0
          ? 0  // allocated
          : PageTable::codec_scratch_bytes(engine_.kv_layout(), engine_.pool().size(),
                                           options_.request.kv.codecs, n_context_ + chunk_);
  return std::min(limit - std::min(limit, others + scratch), options_.kv_ram_bytes);
}

// The plan for `input`, whose RAM and length are set, as things are now, for what is still to come.
Result<Plan> Session::plan_anew(PlanInput& input) const {
  input.answer_tokens = input.total_tokens - length();
  input.flash_in_use = cache_->uses_flash();
  input.bound_tier1_pages = cache_->n_bound();
  input.bound_codecs.clear();
  if (input.bound_tier1_pages > 0) input.bound_codecs = plan_.codecs;
  return plan_request(options_.request, input);
}

// Never an error because of the plan: what doesn't fit goes to flash, as the plan before has it.
Status Session::extend_plan() {
  const int64_t expected = std::max(expected_output_, kLeastExtension);
  expected_output_ = 2 * expected;
  plan_input_.total_tokens = std::min(length() + expected, n_context_);
  if (options_.request.kv.forced) return {};
  PlanInput input = plan_input_;
  Result<Plan> plan = plan_anew(input);
  if (!plan.ok()) return {};
  if (plan->codecs != plan_.codecs && plan_.tier1_pages > 0 && input.bound_codecs.empty()) {
    input.bound_codecs = plan_.codecs;
    const Result<Plan> same = make_plan(input);
    const double gain = same.ok() ? same->seconds_per_token - plan->seconds_per_token : INFINITY;
    if (gain * static_cast<double>(expected) < encoding_seconds(input, *plan)) plan = same;
  }
  ++n_replans_;
  return adopt(std::move(*plan), std::move(input));
}

// Moves every token to where `plan`, which was made from `input`, has it.
Status Session::adopt(Plan plan, PlanInput input) {
  TIERKV_RETURN_IF_ERROR(cache_->settle(plan));
  cache_->set_exact_limit(exact_page_limit(engine_.kv_layout(), options_.request, input, plan));
  plan_input_ = std::move(input);
  plan_ = std::move(plan);
  return {};
}

Status Session::set_ram_budget(uint64_t bytes) {
  engine_.measure_overhead();
  PlanInput input = plan_input_;
  input.ram_bytes = kv_ram(bytes);
  if (!settled_) {
    TIERKV_RETURN_IF_ERROR(check_prefill(engine_.kv_layout(), options_.request, input, at_once_));
    plan_input_ = input;
    engine_.budget().set_limit(bytes);
    cache_->set_exact_limit(prefill_pages(engine_.kv_layout(), input));
    return {};
  }
  Result<Plan> made = plan_anew(input);
  if (!made.ok())
    return too_small(bytes, tierkv::least_ram(input) - input.ram_bytes, made.status());
  Plan plan = std::move(*made);
  const bool more = bytes > engine_.budget().limit();
  if (more) engine_.budget().set_limit(bytes);
  ++n_replans_;
  const Status settled = adopt(std::move(plan), std::move(input));
  if (!more) engine_.budget().set_limit(bytes);
  return settled;
}

}  // namespace tierkv
