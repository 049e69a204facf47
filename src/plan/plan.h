// A plan: which tokens of one request lie in which tier, and how Tier-1 stores each KV head of each
// full-attention layer. Numbers only: plan/ knows no files, clocks or models. Everything is counted
// in pages of page_tokens tokens.
//
//   position   0 .. sinks | sinks .. | .. | last window_pages
//   tier       exact      | Tier-1   | Tier-2 | exact
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/reach.h"

namespace tierkv {

// How Tier-1 stores one KV head of one layer: k_bits/v_bits of the rotated-integer codec, or, when
// rank_permille is not 0, latents of the low-rank codec, which all KV heads of a layer have in
// common or none; float16 when all are 0.
struct CodecId {
  uint8_t k_bits = 0;
  uint8_t v_bits = 0;
  uint16_t rank_permille = 0;  // of K and V's dimensions over all KV heads
  uint8_t latent_bits = 0;     // 16 or 8

  bool is_low_rank() const { return rank_permille != 0; }
  friend bool operator==(const CodecId&, const CodecId&) = default;
};

std::string codec_name(CodecId codec);  // "k5v4"; "lr50", "lr37.5i8"; "exact"
// Inverse; K in 3,4,5,6,8, V in 2,3,4,5,6,8; rank from 5 to 100 %.
Result<CodecId> parse_codec(const std::string& name);

// One choice for one KV head.
struct CodecOption {
  CodecId codec;
  uint64_t page_bytes = 0;       // of this head alone
  double kld = 0;                // nats a token if all tokens were stored so: PlanInput::reach
  double seconds_per_token = 0;  // of decode attention over one stored token
};

// A KV head of a full-attention layer. Layers that keep only a window are part of
// PlanInput::fixed_bytes.
struct PlanHead {
  uint64_t exact_page_bytes = 0;
  double exact_seconds_per_token = 0;
  std::vector<CodecOption> options;  // any order; dominated ones are ignored
};

struct PlanInput {
  int64_t page_tokens = 64;
  int64_t total_tokens = 0;    // prompt and predicted output
  uint64_t ram_bytes = 0;      // for KV: tiers, staging and the window layers
  uint64_t fixed_bytes = 0;    // KV that no choice changes: window-only layers
  uint64_t staging_bytes = 0;  // taken as soon as flash is used
  int64_t extent_pages = 4;    // with flash, pages leave RAM only in whole extents
  bool flash_in_use = false;   // already: that holds for every plan, also one without Tier-2
  int64_t min_sink_pages = 1;
  int64_t min_window_pages = 3;  // recent tokens kept exact, the page being filled included
  double kld_budget = 2e-3;      // nats a token
  // The part of the budget that the codecs may cost with all tokens in Tier-1, however few lie
  // there: kCodecKldShare (plan/quality.h) where it counts. Absent: no limit.
  std::optional<double> codec_kld_share;
  // What a part of the tokens in Tier-1 costs of the heads' KLD. Absent: its share of all pages.
  // Else their KLD is of the setting in plan/reach.h, and the answer's tokens, the last
  // answer_tokens of all, are those that read Tier-1.
  std::optional<Reach> reach;
  int64_t answer_tokens = 0;
  bool flash_allowed = true;
  double flash_bytes_per_second = 1e9;
  double overlap_seconds = 0;   // of flash reads a step that computation hides
  double step_seconds = 0;      // of a step without attention
  std::vector<PlanHead> heads;  // layer by layer
  // When a plan is made anew: pages of Tier-1 whose float16 originals are gone. They stay there,
  // whatever it costs, and so do the codecs (one per element of heads).
  int64_t bound_tier1_pages = 0;
  std::vector<CodecId> bound_codecs;  // empty: free
};

// Selective reading of Tier-2 (kv/selective_read.h): copies of its pages in RAM, in the plan's
// codecs, and what leaving originals unread may cost.
struct FlashCopies {
  int64_t pages = 0;             // most that have a copy; 0: every page is read
  double kld_budget = 0;         // nats a token
  std::vector<double> head_kld;  // what its codec costs, mean over heads; per element of heads
};

struct Plan {
  int64_t sink_pages = 0;
  int64_t window_pages = 0;     // at least this many recent pages are exact
  int64_t tier1_pages = 0;      // most pages that Tier-1 may hold
  bool flash = false;           // Tier-2 is in use
  std::vector<CodecId> codecs;  // per element of PlanInput::heads
  FlashCopies copies;           // of Tier-2's pages

  // What the plan expects when total_tokens have been seen.
  int64_t n_exact = 0, n_compressed = 0, n_offloaded = 0;  // tokens
  uint64_t ram_bytes = 0;
  double kld = 0;
  double seconds_per_token = 0;
};

// The best plan: least decode time within RAM and KLD; of equals the one without flash (it wears),
// then less KLD, then fewer bytes. float16 is an option of every head's Tier-1. When no plan fits
// the answer is kResourceExhausted and says the least ram_bytes that would do.
Result<Plan> make_plan(const PlanInput& input);

// What the codecs may cost with all tokens in Tier-1; infinite without a limit.
double codec_kld_budget(const PlanInput& input);

// The least PlanInput::ram_bytes for which make_plan succeeds.
uint64_t least_ram(const PlanInput& input);

// Layouts that --kv forces. kAllFlash keeps only the least
// sinks and window exact. Limits on RAM hold as in make_plan; the KLD budget is not looked at.
enum class ForcedLayout { kExact, kAllTier1, kAllFlash };
// kAllTier1 takes `codecs`: one for all heads, or one per element of PlanInput::heads.
Result<Plan> make_forced_plan(const PlanInput& input, ForcedLayout layout,
                              const std::vector<CodecId>& codecs);

// Codecs whose Tier-1 page, of all heads, has at most page_bytes, with as little KLD as the hull
// chain and what it leaves of the bytes allow; those with the fewest bytes if none do.
Result<std::vector<CodecId>> codecs_within(const PlanInput& input, uint64_t page_bytes);

}  // namespace tierkv
