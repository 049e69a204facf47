// What a user may ask of the KV cache, and the numbers that follow from it: what --kv, --quality,
// --expect, --flash and --flash-io become before the planner sees them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/extent_stream.h"
#include "kv/kv_layout.h"
#include "plan/ablation.h"
#include "plan/accuracy.h"
#include "plan/plan.h"
#include "runtime/device_costs.h"

namespace tierkv {

// --kv: absent (the planner chooses), "exact", "flash", a codec such as "k5v4", or a number of bits
// an element such as "4.25", which the planner distributes over the KV heads.
struct KvSpec {
  std::optional<ForcedLayout> forced;
  std::vector<CodecId> codecs;  // of kAllTier1: one for all, or one per KV head (Plan::codecs)
  double bits_per_element = 0;  // of kAllTier1, instead of codecs
};
Result<KvSpec> parse_kv_spec(const std::string& text);

// --quality: the most KLD a token that compression may cost, in nats, or the name of one:
// exact 0, high 5e-4, balanced 2e-3, compact 1e-2.
Result<double> parse_quality(const std::string& text);
inline constexpr double kDefaultKldBudget = 2e-3;

// --flash-io: auto, uring, pool.
Result<FlashBackend> parse_flash_io(const std::string& text);
// Pages that every plan keeps exact: the first tokens, and the most recent.
inline constexpr int64_t kSinkPages = 1;
inline constexpr int64_t kWindowPages = 3;

// Tokens of answer to expect when neither a history nor --expect says better.
inline constexpr int64_t kDefaultExpectedOutput = 256;

// What the planner's KLDs come from.
struct AccuracyChoice {
  AccuracyModel model = default_accuracy();
  std::string source = "default";  // or "profile"
  std::string file;                // of the profile
  std::string note;  // a sentence when a profile was found but could not be used; else empty
};

// How a decode step reads Tier-2: all of it, or only what its copies in RAM do not serve
// (kv/selective_read.h).
enum class FlashRead : uint8_t { kExact, kAuto };

// --flash-copy: "auto" (from the RAM that is left: empty), or a codec such as k4v3 for all heads.
Result<std::vector<CodecId>> parse_flash_copy(const std::string& text);

struct KvRequest {
  int64_t n_prompt = 0;
  int64_t n_expected = kDefaultExpectedOutput;
  KvSpec kv;
  double kld_budget = kDefaultKldBudget;
  PlanRule plan_rule = PlanRule::kJoint;  // others are for comparison
  DeviceCosts costs;
  std::string flash_directory;  // empty: flash is not allowed
  FlashBackend flash_io = FlashBackend::kAuto;
  FlashOverlap flash_overlap = FlashOverlap::kOn;
  FlashRead flash_read = FlashRead::kExact;
  std::vector<CodecId> flash_copy;  // of kAuto: one codec for all heads; empty: chosen
  bool saved = false;               // a saved session: flash is in use from the first token on
  AccuracyChoice accuracy;
};

// The planner's input: sizes from the layout, errors from the request's accuracy model, costs from
// the defaults measured in docs/decisions.md. `ram_bytes` is what the whole KV side may take;
// chunks have `chunk` tokens.
PlanInput make_plan_input(const KvLayout& layout, const KvRequest& request, uint64_t ram_bytes,
                          int64_t chunk);

// The best codecs of so many bits an element of Tier-1, scales included.
Result<std::vector<CodecId>> codecs_of_bits(const PlanInput& input, double bits);

// A plan for the request, forced or chosen. Errors are in terms of `ram_bytes`.
Result<Plan> plan_request(const KvRequest& request, const PlanInput& input);

// Exact pages that may be in RAM while the prompt is read.
int64_t prefill_pages(const KvLayout& layout, const PlanInput& input);

// Whether reading the prompt brings flash into use: the session is saved, or the prompt's exact
// pages are more than RAM may hold.
bool prompt_needs_flash(const KvLayout& layout, const KvRequest& request, const PlanInput& input);

// Exact pages that may be in RAM once the prompt has been read: the plan's; where it keeps all of
// them exact, as many as there is RAM for, should the answer become longer than expected.
int64_t exact_page_limit(const KvLayout& layout, const KvRequest& request, const PlanInput& input,
                         const Plan& plan);

// What the KV comes to under `plan` at the end of the answer, input.total_tokens with the prompt:
// plan.ram_bytes without what that keeps free (a page in motion, a chunk's window pages, staging
// while flash rests).
uint64_t expected_kv_bytes(const KvLayout& layout, const PlanInput& input, const Plan& plan);

// OK when the prompt can be read in chunks of `chunk` tokens: its exact pages fit in RAM, or flash
// may take those that don't. Else kResourceExhausted.
Status check_prefill(const KvLayout& layout, const KvRequest& request, const PlanInput& input,
                     int64_t chunk);

// The least ram_bytes with which the request can be read and planned.
uint64_t least_kv_ram(const KvLayout& layout, const KvRequest& request, int64_t chunk);

// ~/.cache/tierkv or $XDG_CACHE_HOME/tierkv: on a disk, where /tmp may be RAM.
std::string default_flash_directory();

}  // namespace tierkv
