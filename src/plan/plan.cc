#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/size.h"
#include "plan/hull_chain.h"
#include "plan/problem.h"
#include "plan/quality.h"
#include "plan/split.h"

namespace tierkv {
namespace {

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

unsigned long long ull(uint64_t value) { return value; }

int64_t page_count(const PlanInput& in) {
  return in.total_tokens / in.page_tokens + (in.total_tokens % in.page_tokens != 0);
}

bool valid_counts(const PlanInput& in) {
  constexpr int64_t kMost = int64_t{1} << 40;  // far past every use, far from overflow
  const auto between = [](int64_t value, int64_t low) { return value >= low && value <= kMost; };
  return between(in.page_tokens, 1) && between(in.total_tokens, 0) && between(in.extent_pages, 1) &&
         between(in.min_sink_pages, 0) && between(in.min_window_pages, 1) &&
         between(in.bound_tier1_pages, 0);
}

bool valid_head(const PlanHead& head) {
  return is_amount(head.exact_seconds_per_token) &&
         std::all_of(head.options.begin(), head.options.end(), [](const CodecOption& option) {
           return is_amount(option.kld) && is_amount(option.seconds_per_token);
         });
}

// Whether no sum of bytes below can overflow: each page count times each head's largest page.
bool bytes_in_range(const PlanInput& in) {
  const double pages = static_cast<double>(page_count(in) + in.extent_pages + 1);
  double bytes = static_cast<double>(in.fixed_bytes) + static_cast<double>(in.staging_bytes);
  for (const PlanHead& head : in.heads) {
    uint64_t largest = head.exact_page_bytes;
    for (const CodecOption& option : head.options) largest = std::max(largest, option.page_bytes);
    bytes += pages * static_cast<double>(largest);
  }
  return bytes < 0x1p62;
}

Result<Assignment> find_options(const PlanInput& in, const std::vector<CodecId>& codecs);

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
  const bool reach_makes_sense = !in.reach || (in.reach->exponent >= 0 && in.reach->exponent <= 8);
  const bool share_makes_sense = !in.codec_kld_share || *in.codec_kld_share > 0;
  if (!(in.kld_budget >= 0) || !share_makes_sense || !is_amount(in.overlap_seconds) ||
      !is_amount(in.step_seconds) || !reach_makes_sense ||
      !std::all_of(in.heads.begin(), in.heads.end(), valid_head)) {
    return invalid_argument("KLD and seconds must be numbers that are not negative");
  }
  if (!bytes_in_range(in)) return invalid_argument("the plan's sizes in bytes are absurdly large");
  return in.bound_codecs.empty() ? Status() : find_options(in, in.bound_codecs).status();
}

std::shared_ptr<const std::vector<double>> shares_of(const PlanInput& in, int64_t pages) {
  if (!in.reach) return nullptr;
  const int64_t answer =
      std::clamp<int64_t>(in.answer_tokens, 1, std::max<int64_t>(in.total_tokens, 1));
  return std::make_shared<const std::vector<double>>(
      tier1_shares(*in.reach, in.page_tokens, pages, in.min_sink_pages, in.min_window_pages,
                   {in.total_tokens - answer, in.total_tokens}));
}

}  // namespace

SplitProblem problem_without_codecs(const PlanInput& in) {
  SplitProblem p;
  p.tokens = in.total_tokens;
  p.page_tokens = in.page_tokens;
  p.pages = page_count(in);
  p.min_exact = std::min(p.pages, in.min_sink_pages + in.min_window_pages);
  p.min_tier1 = std::min(in.bound_tier1_pages, p.pages - p.min_exact);
  p.ram_bytes = in.ram_bytes;
  p.fixed_bytes = in.fixed_bytes;
  p.kld_budget = in.kld_budget;
  p.codec_kld_budget = codec_kld_budget(in);
  p.shares = shares_of(in, p.pages);
  p.flash_allowed = in.flash_allowed;
  p.overlap_seconds = in.overlap_seconds;
  for (const PlanHead& head : in.heads) {
    p.exact_page_bytes += head.exact_page_bytes;
    p.exact_seconds += head.exact_seconds_per_token;
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

Result<CodecOption> find_option(const PlanHead& head, CodecId codec) {
  if (codec == CodecId{}) return exact_option(head);
  const auto found = std::find_if(head.options.begin(), head.options.end(),
                                  [&](const CodecOption& option) { return option.codec == codec; });
  if (found != head.options.end()) return *found;
  return invalid_argument("a KV head of this model has no codec " + codec_name(codec));
}

namespace {

Result<Assignment> find_options(const PlanInput& in, const std::vector<CodecId>& codecs) {
  if (codecs.size() != 1 && codecs.size() != in.heads.size()) {
    return invalid_argument(format("the layout has codecs for %zu KV heads, the model has %zu",
                                   codecs.size(), in.heads.size()));
  }
  Assignment assignment;
  for (size_t i = 0; i < in.heads.size(); ++i) {
    TIERKV_ASSIGN_OR_RETURN(CodecOption option,
                            find_option(in.heads[i], codecs.size() == 1 ? codecs[0] : codecs[i]));
    assignment.push_back(option);
  }
  return assignment;
}

HullChain chain_of(const PlanInput& in) {
  if (in.bound_codecs.empty()) return HullChain(in.heads, problem_without_codecs(in));
  return HullChain(*find_options(in, in.bound_codecs), problem_without_codecs(in));
}

}  // namespace

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
  plan.seconds_per_token = in.step_seconds + split.seconds;
  return plan;
}

namespace {

std::string needs(const PlanInput& in, uint64_t least) {
  return format(
      "the KV cache of %lld tokens needs at least %s of RAM (%llu bytes), %s more than the "
      "%s there is for it",
      static_cast<long long>(in.total_tokens), format_size(least).c_str(), ull(least),
      format_size(least - in.ram_bytes).c_str(), format_size(in.ram_bytes).c_str());
}

struct Choice {
  Split split;
  size_t number = 0;  // of the chain's assignment
};

std::optional<Choice> best_choice(const HullChain& chain) {
  std::optional<Split> best;
  size_t best_number = 0;
  chain.walk([&](const SplitProblem& problem, size_t number) {
    const std::optional<Split> before = best;
    improve(problem, best);
    const bool improved = best && (!before || better(*best, *before));
    if (improved) best_number = number;
  });
  if (!best) return std::nullopt;
  return Choice{*best, best_number};
}

// The strictest quality that would fit without more RAM, as advice; empty when none does.
std::string quality_advice(PlanInput in) {
  for (const Quality& quality : kQualities) {
    in.kld_budget = quality.kld;
    if (const std::optional<Choice> choice = best_choice(chain_of(in))) {
      return format(", or choose --quality %s (it takes a KLD of %.2g)", quality.name,
                    choice->split.kld);
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
  const HullChain chain = chain_of(input);
  const std::optional<Choice> best = best_choice(chain);
  if (!best) return does_not_fit(input);
  return to_plan(input, best->split, chain.assignment(best->number));
}

double codec_kld_budget(const PlanInput& input) {
  return input.codec_kld_share ? *input.codec_kld_share * input.kld_budget : INFINITY;
}

uint64_t least_ram(const PlanInput& input) {
  uint64_t least = UINT64_MAX;  // what makes no sense fits no RAM
  if (!validate(input).ok()) return least;
  HullChain(input.heads, problem_without_codecs(input))
      .walk([&](const SplitProblem& problem, size_t) {
        least = std::min(least, least_ram(problem));
      });
  return least;
}

Result<Plan> make_forced_plan(const PlanInput& input, ForcedLayout layout,
                              const std::vector<CodecId>& codecs) {
  TIERKV_RETURN_IF_ERROR(validate(input));
  if (layout == ForcedLayout::kAllFlash && !input.flash_allowed) {
    return invalid_argument("--kv flash needs a place for its file: give one with --flash DIR");
  }
  const bool tier1 = layout == ForcedLayout::kAllTier1;
  TIERKV_ASSIGN_OR_RETURN(const Assignment assignment,
                          find_options(input, tier1 ? codecs : std::vector<CodecId>{CodecId{}}));
  SplitProblem problem = problem_without_codecs(input);
  CodecSums(assignment).apply(problem);
  const Split split = forced_split(problem, layout);
  if (split.ram_bytes > input.ram_bytes) {
    return resource_exhausted(needs(input, split.ram_bytes) +
                              " in the layout that --kv forces: give it more (--ram), or leave the "
                              "layout to the planner (--kv auto)");
  }
  return to_plan(input, split, assignment);
}

namespace {

// What has the least KLD of `now` and those options of its head that have at most `bytes`.
CodecOption best_within(const PlanHead& head, const CodecOption& now, uint64_t bytes) {
  CodecOption best = now;
  const auto consider = [&](const CodecOption& option) {
    if (option.page_bytes <= bytes && option.kld < best.kld) best = option;
  };
  for (const CodecOption& option : head.options) consider(option);
  consider(exact_option(head));
  return best;
}

// The chain moves in steps; what they leave of `spare` bytes goes to the heads that gain most by
// it, which matters where heads are few.
void use_spare(const PlanInput& in, uint64_t spare, Assignment& codecs) {
  while (spare > 0) {
    CodecOption best;
    size_t best_head = 0;
    double most_saved = 0;
    for (size_t i = 0; i < codecs.size(); ++i) {
      const CodecOption option = best_within(in.heads[i], codecs[i], codecs[i].page_bytes + spare);
      const double saved = codecs[i].kld - option.kld;
      if (saved <= most_saved) continue;
      most_saved = saved;
      best = option;
      best_head = i;
    }
    if (most_saved == 0) return;
    spare = spare + codecs[best_head].page_bytes - best.page_bytes;
    codecs[best_head] = best;
  }
}

}  // namespace

Result<std::vector<CodecId>> codecs_within(const PlanInput& input, uint64_t page_bytes) {
  TIERKV_RETURN_IF_ERROR(validate(input));
  const HullChain chain = chain_of(input);
  std::optional<size_t> first;  // along the chain bytes fall and KLD rises
  uint64_t bytes = 0;           // there
  size_t last = 0;
  chain.walk([&](const SplitProblem& problem, size_t number) {
    if (!first && problem.codec_page_bytes <= page_bytes) {
      first = number;
      bytes = problem.codec_page_bytes;
    }
    last = number;
  });
  Assignment assignment = chain.assignment(first.value_or(last));
  if (first && input.bound_codecs.empty()) use_spare(input, page_bytes - bytes, assignment);
  std::vector<CodecId> codecs;
  for (const CodecOption& option : assignment) codecs.push_back(option.codec);
  return codecs;
}

}  // namespace tierkv
