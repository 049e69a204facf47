#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/size.h"
#include "plan/hull.h"
#include "plan/split.h"

namespace tierkv {
namespace {

using Assignment = std::vector<CodecOption>;  // one per layer

struct Quality {
  const char* name;
  double kld;
};
constexpr Quality kQualities[] = {{"high", 5e-4}, {"balanced", 2e-3}, {"compact", 1e-2}};

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

unsigned long long ull(uint64_t value) { return value; }

int64_t page_count(const PlanInput& in) {
  return in.total_tokens / in.page_tokens + (in.total_tokens % in.page_tokens != 0);
}

bool valid_counts(const PlanInput& in) {
  constexpr int64_t kMost = int64_t{1} << 40;  // far past every use, far from overflow
  const auto between = [](int64_t value, int64_t low) { return value >= low && value <= kMost; };
  return between(in.page_tokens, 1) && between(in.total_tokens, 0) && between(in.extent_pages, 1) &&
         between(in.min_sink_pages, 0) && between(in.min_window_pages, 1);
}

bool valid_layer(const PlanLayer& layer) {
  return is_amount(layer.exact_seconds_per_token) &&
         std::all_of(layer.options.begin(), layer.options.end(), [](const CodecOption& option) {
           return is_amount(option.kld) && is_amount(option.seconds_per_token);
         });
}

// Whether no sum of bytes below can overflow: each page count times each layer's largest page.
bool bytes_in_range(const PlanInput& in) {
  const double pages = static_cast<double>(page_count(in) + in.extent_pages + 1);
  double bytes = static_cast<double>(in.fixed_bytes) + static_cast<double>(in.staging_bytes);
  for (const PlanLayer& layer : in.layers) {
    uint64_t largest = layer.exact_page_bytes;
    for (const CodecOption& option : layer.options) largest = std::max(largest, option.page_bytes);
    bytes += pages * static_cast<double>(largest);
  }
  return bytes < 0x1p62;
}

Status validate(const PlanInput& in) {
  if (!valid_counts(in)) {
    return invalid_argument(
        "the plan's counts make no sense: pages and extents hold at least one token and page, and "
        "the window at least the page being filled");
  }
  const bool flash_makes_sense =
      std::isfinite(in.flash_bytes_per_second) && in.flash_bytes_per_second > 0;
  if (in.flash_allowed && !flash_makes_sense) {
    return invalid_argument("the speed of flash must be a positive number of bytes a second");
  }
  if (!(in.kld_budget >= 0) || !is_amount(in.overlap_seconds) ||
      !std::all_of(in.layers.begin(), in.layers.end(), valid_layer)) {
    return invalid_argument("KLD and seconds must be numbers that are not negative");
  }
  if (!bytes_in_range(in)) return invalid_argument("the plan's sizes in bytes are absurdly large");
  return {};
}

// Everything but what the codecs decide.
SplitProblem problem_without_codecs(const PlanInput& in) {
  SplitProblem p;
  p.tokens = in.total_tokens;
  p.page_tokens = in.page_tokens;
  p.pages = page_count(in);
  p.min_exact = std::min(p.pages, in.min_sink_pages + in.min_window_pages);
  p.ram_bytes = in.ram_bytes;
  p.fixed_bytes = in.fixed_bytes;
  p.kld_budget = in.kld_budget;
  p.flash_allowed = in.flash_allowed;
  p.overlap_seconds = in.overlap_seconds;
  for (const PlanLayer& layer : in.layers) {
    p.exact_page_bytes += layer.exact_page_bytes;
    p.exact_seconds += layer.exact_seconds_per_token;
  }
  const uint64_t extent_bytes = static_cast<uint64_t>(in.extent_pages) * p.exact_page_bytes;
  p.flash_bytes = in.staging_bytes + extent_bytes;
  if (in.flash_in_use) {  // the extent that is being filled, the page at its end aside
    p.fixed_bytes += extent_bytes - p.exact_page_bytes;
    p.flash_bytes -= extent_bytes - p.exact_page_bytes;
  }
  if (in.flash_allowed) {
    p.flash_page_seconds = static_cast<double>(p.exact_page_bytes) / in.flash_bytes_per_second;
  }
  return p;
}

// Sums anew each time: a running sum would drift, and the limits are exact.
void set_codecs(SplitProblem& p, const Assignment& codecs) {
  p.codec_page_bytes = 0;
  p.codec_seconds = p.kld = 0;
  for (const CodecOption& codec : codecs) {
    p.codec_page_bytes += codec.page_bytes;
    p.codec_seconds += codec.seconds_per_token;
    p.kld += codec.kld;
  }
}

// Calls visit(problem, assignment) for every assignment of the hull chain, float16 first.
template <typename Visit>
void for_each_assignment(const PlanInput& in, Visit visit) {
  std::vector<Assignment> hulls;
  Assignment current;
  for (const PlanLayer& layer : in.layers) {
    hulls.push_back(lower_hull(layer));
    current.push_back(hulls.back()[0]);
  }
  SplitProblem problem = problem_without_codecs(in);
  set_codecs(problem, current);
  visit(problem, current);
  std::vector<size_t> vertex(hulls.size(), 0);
  for (const int layer : hull_steps(hulls)) {
    current[layer] = hulls[layer][++vertex[layer]];
    set_codecs(problem, current);
    visit(problem, current);
  }
}

Plan to_plan(const PlanInput& in, const Split& split, const Assignment& codecs) {
  Plan plan;
  plan.sink_pages = std::min(in.min_sink_pages, split.exact);
  plan.window_pages = split.exact - plan.sink_pages;
  plan.tier1_pages = split.tier1;
  plan.flash = split.offloaded > 0;
  for (const CodecOption& option : codecs) {
    plan.codecs.push_back(split.tier1 > 0 ? option.codec : CodecId{});
  }
  plan.n_compressed = split.tier1 * in.page_tokens;
  plan.n_offloaded = split.offloaded * in.page_tokens;
  plan.n_exact = in.total_tokens - plan.n_compressed - plan.n_offloaded;
  plan.ram_bytes = split.ram_bytes;
  plan.kld = split.kld;
  plan.seconds_per_token = split.seconds;
  return plan;
}

std::string needs(const PlanInput& in, uint64_t least) {
  return format(
      "the KV cache of %lld tokens needs at least %s of RAM (%llu bytes), %s more than the "
      "%s there is for it",
      static_cast<long long>(in.total_tokens), format_size(least).c_str(), ull(least),
      format_size(least - in.ram_bytes).c_str(), format_size(in.ram_bytes).c_str());
}

// The quality that would fit without more RAM, as advice; empty when none does.
std::string quality_advice(const PlanInput& in) {
  std::optional<double> least;
  for_each_assignment(in, [&](const SplitProblem& problem, const Assignment&) {
    const std::optional<double> kld = least_kld_in_ram(problem);
    if (kld && (!least || *kld < *least)) least = kld;
  });
  if (!least) return "";
  for (const Quality& quality : kQualities) {
    if (*least <= quality.kld) {
      return format(", or choose --quality %s (it takes a KLD of %.2g)", quality.name, *least);
    }
  }
  return "";
}

std::string flash_advice(const PlanInput& in) {
  PlanInput with_flash = in;
  with_flash.flash_allowed = true;
  with_flash.flash_bytes_per_second = 1;
  return !in.flash_allowed && least_ram(with_flash) <= in.ram_bytes
             ? ", or let it use flash storage (--flash DIR)"
             : "";
}

Status does_not_fit(const PlanInput& in) {
  return resource_exhausted(needs(in, least_ram(in)) + ": give it more (--ram)" +
                            quality_advice(in) + flash_advice(in) + ", or use a shorter context");
}

Result<Assignment> same_codec(const PlanInput& in, CodecId codec) {
  Assignment assignment;
  for (const PlanLayer& layer : in.layers) {
    if (codec == CodecId{}) {
      assignment.push_back({codec, layer.exact_page_bytes, 0, layer.exact_seconds_per_token});
      continue;
    }
    const auto found =
        std::find_if(layer.options.begin(), layer.options.end(),
                     [&](const CodecOption& option) { return option.codec == codec; });
    if (found == layer.options.end()) {
      return invalid_argument(
          format("layer %zu has no codec %s", assignment.size(), codec_name(codec).c_str()));
    }
    assignment.push_back(*found);
  }
  return assignment;
}

Split forced_split(const SplitProblem& p, ForcedLayout layout) {
  switch (layout) {
    case ForcedLayout::kExact:
      return make_split(p, p.pages, 0);
    case ForcedLayout::kAllTier1:
      return make_split(p, p.min_exact, p.pages - p.min_exact);
    case ForcedLayout::kAllFlash:
      break;
  }
  return make_split(p, p.min_exact, 0);
}

}  // namespace

Result<Plan> make_plan(const PlanInput& input) {
  TIERKV_RETURN_IF_ERROR(validate(input));
  std::optional<Split> best;
  Assignment codecs;
  for_each_assignment(input, [&](const SplitProblem& problem, const Assignment& assignment) {
    const std::optional<Split> before = best;
    improve(problem, best);
    const bool improved = best && (!before || better(*best, *before));
    if (improved) codecs = assignment;
  });
  if (!best) return does_not_fit(input);
  return to_plan(input, *best, codecs);
}

uint64_t least_ram(const PlanInput& input) {
  uint64_t least = UINT64_MAX;  // what makes no sense fits no RAM
  if (!validate(input).ok()) return least;
  for_each_assignment(input, [&](const SplitProblem& problem, const Assignment&) {
    least = std::min(least, least_ram(problem));
  });
  return least;
}

Result<Plan> make_forced_plan(const PlanInput& input, ForcedLayout layout, CodecId codec) {
  TIERKV_RETURN_IF_ERROR(validate(input));
  if (layout == ForcedLayout::kAllFlash && !input.flash_allowed) {
    return invalid_argument("--kv flash needs a place for its file: give one with --flash DIR");
  }
  if (layout != ForcedLayout::kAllTier1) codec = {};
  TIERKV_ASSIGN_OR_RETURN(const Assignment codecs, same_codec(input, codec));
  SplitProblem problem = problem_without_codecs(input);
  set_codecs(problem, codecs);
  const Split split = forced_split(problem, layout);
  if (split.ram_bytes > input.ram_bytes) {
    return resource_exhausted(needs(input, split.ram_bytes) +
                              " in the layout that --kv forces: give it more (--ram), or leave the "
                              "layout to the planner (--kv auto)");
  }
  return to_plan(input, split, codecs);
}

}  // namespace tierkv
