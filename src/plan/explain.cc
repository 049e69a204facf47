#include "plan/explain.h"

#include <algorithm>

#include "plan/problem.h"

namespace tierkv {
namespace {

constexpr double kSameTime = 1e-9;  // relative

uint64_t exact_page_bytes(const PlanInput& input) {
  uint64_t bytes = 0;
  for (const PlanHead& head : input.heads) bytes += head.exact_page_bytes;
  return bytes;
}

uint64_t tier1_page_bytes(const PlanInput& input, const Plan& plan) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < input.heads.size(); ++i) {
    const Result<CodecOption> option = find_option(input.heads[i], plan.codecs[i]);
    if (option.ok()) bytes += option->page_bytes;
  }
  return bytes;
}

bool at_most(const PlanPoint& a, const PlanPoint& b) {
  return a.ram_bytes <= b.ram_bytes && a.kld <= b.kld && a.seconds <= b.seconds;
}

bool dominates(const PlanPoint& a, const PlanPoint& b) { return at_most(a, b) && !at_most(b, a); }

// Of K and V together; float16 is the most.
double bits(CodecId codec) {
  if (codec.is_low_rank()) return 2e-3 * codec.rank_permille * codec.latent_bits;
  return codec == CodecId{} ? 32 : codec.k_bits + codec.v_bits;
}

}  // namespace

std::vector<ContextPart> context_parts(const PlanInput& input, const Plan& plan) {
  const uint64_t exact = exact_page_bytes(input);
  const uint64_t coded = plan.tier1_pages > 0 ? tier1_page_bytes(input, plan) : 0;
  const int64_t sinks = std::min(plan.sink_pages * input.page_tokens, plan.n_exact);
  std::vector<ContextPart> parts;
  int64_t first = 0;
  const auto add = [&](PartKind kind, int64_t tokens, int64_t pages, uint64_t page_bytes) {
    if (tokens <= 0) return;
    parts.push_back({kind, first, tokens, static_cast<uint64_t>(pages) * page_bytes});
    first += tokens;
  };
  add(PartKind::kSinks, sinks, plan.sink_pages, exact);
  add(PartKind::kCompressed, plan.n_compressed, plan.tier1_pages, coded);
  add(PartKind::kOffloaded, plan.n_offloaded, plan.n_offloaded / input.page_tokens, exact);
  add(PartKind::kWindow, plan.n_exact - sinks, plan.window_pages, exact);
  return parts;
}

std::vector<CodecCount> codec_counts(const Plan& plan) {
  std::vector<CodecCount> counts;
  if (plan.tier1_pages == 0) return counts;
  for (const CodecId codec : plan.codecs) {
    const auto found = std::find_if(counts.begin(), counts.end(),
                                    [&](const CodecCount& c) { return c.codec == codec; });
    if (found == counts.end()) {
      counts.push_back({codec, 1});
    } else {
      ++found->n_heads;
    }
  }
  std::stable_sort(counts.begin(), counts.end(), [](const CodecCount& a, const CodecCount& b) {
    if (bits(a.codec) != bits(b.codec)) return bits(a.codec) > bits(b.codec);
    return a.codec.k_bits > b.codec.k_bits;
  });
  return counts;
}

double tier1_bits_per_element(const PlanInput& input, const Plan& plan) {
  const uint64_t exact = exact_page_bytes(input);
  if (plan.tier1_pages == 0 || exact == 0) return 0;
  return 16 * static_cast<double>(tier1_page_bytes(input, plan)) / static_cast<double>(exact);
}

double codec_kld(const PlanInput& input, const Plan& plan) {
  if (plan.tier1_pages == 0) return 0;
  double sum = 0;
  for (size_t i = 0; i < input.heads.size(); ++i) {
    const Result<CodecOption> option = find_option(input.heads[i], plan.codecs[i]);
    if (option.ok()) sum += option->kld;
  }
  return sum;
}

bool improves(const Plan& changed, const Plan& plan) {
  if (changed.seconds_per_token < plan.seconds_per_token * (1 - kSameTime)) return true;
  const bool as_fast = changed.seconds_per_token <= plan.seconds_per_token * (1 + kSameTime);
  return as_fast && plan.flash && !changed.flash;
}

const Quality* stricter_quality(double kld_budget) {
  const Quality* found = nullptr;
  for (const Quality& quality : kQualities) {
    if (quality.kld < kld_budget) found = &quality;
  }
  return found;
}

const Quality* looser_quality(double kld_budget) {
  for (const Quality& quality : kQualities) {
    if (quality.kld > kld_budget) return &quality;
  }
  return nullptr;
}

std::vector<bool> pareto_front(std::span<const PlanPoint> points) {
  std::vector<bool> front;
  for (const PlanPoint& point : points) {
    front.push_back(std::none_of(points.begin(), points.end(),
                                 [&](const PlanPoint& other) { return dominates(other, point); }));
  }
  return front;
}

std::vector<uint64_t> ram_ladder(uint64_t least, uint64_t most, int n) {
  std::vector<uint64_t> ladder;
  const uint64_t range = most > least ? most - least : 0;
  const uint64_t steps = static_cast<uint64_t>(std::max(1, n - 1));
  for (uint64_t i = 0; i <= steps; ++i) {
    const uint64_t ram = least + range / steps * i + range % steps * i / steps;
    if (ladder.empty() || ram != ladder.back()) ladder.push_back(ram);
  }
  return ladder;
}

}  // namespace tierkv
