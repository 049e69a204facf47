// How many pages go to which tier when every head's codec is fixed. Two whole numbers are free,
// pages kept exact and pages in Tier-1; the rest is offloaded. All limits and the time are linear
// or convex in them, so the answer lies next to a vertex of the polygon that the limits cut out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tierkv {

// One request, summed over the heads. Checked by the caller: nothing below overflows.
struct SplitProblem {
  int64_t tokens = 0, page_tokens = 1;
  int64_t pages = 0;      // of all tokens; the last may be partly filled and is always exact
  int64_t min_exact = 0;  // pages, at most `pages`
  int64_t min_tier1 = 0;  // pages, at most pages - min_exact; limits on KLD don't count for them
  uint64_t ram_bytes = 0, fixed_bytes = 0;
  uint64_t flash_bytes = 0;                             // RAM that using flash costs
  uint64_t exact_page_bytes = 0, codec_page_bytes = 0;  // the codec's: no more than the exact ones
  double exact_seconds = 0, codec_seconds = 0;          // per token
  double kld = 0;                                       // with all tokens in Tier-1
  // The part of it that t Tier-1 pages cost, for t = 0 .. pages, ascending; null: t / pages.
  std::shared_ptr<const std::vector<double>> shares;
  double kld_budget = 0;        // of the Tier-1 pages there are
  double codec_kld_budget = 0;  // of `kld`, however few they are
  bool flash_allowed = false;
  double flash_page_seconds = 0;  // to read one page of all heads
  double overlap_seconds = 0;     // of reading that computation hides
};

struct Split {
  int64_t exact = 0, tier1 = 0, offloaded = 0;  // pages
  uint64_t ram_bytes = 0;
  double kld = 0;
  double seconds = 0;
};

Split make_split(const SplitProblem& problem, int64_t exact, int64_t tier1);

// The order of preference: less time, then no flash (it wears), then less KLD, then fewer bytes.
// Times that differ by rounding are the same.
bool better(const Split& a, const Split& b);

// Replaces `best` by the problem's best split within RAM and KLD, if there is one and it is better.
void improve(const SplitProblem& problem, std::optional<Split>& best);

// The least ram_bytes for which the problem has a split. Everything exact fits some RAM, so there
// is always one.
uint64_t least_ram(const SplitProblem& problem);

}  // namespace tierkv
