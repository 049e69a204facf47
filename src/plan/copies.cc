#include "plan/copies.h"

#include <algorithm>
#include <cmath>

#include "plan/problem.h"

namespace tierkv {
namespace {

uint64_t u64(int64_t value) { return static_cast<uint64_t>(value); }

// With sinks and window exact, and in Tier-1 only what can't leave it.
struct Middle {
  SplitProblem problem;
  int64_t pages = 0;  // on flash
  uint64_t room = 0;  // RAM for Tier-1 and copies

  explicit Middle(const PlanInput& input) : problem(problem_without_codecs(input)) {
    pages = problem.pages - problem.min_exact - problem.min_tier1;
    const uint64_t taken = problem.fixed_bytes + problem.flash_bytes +
                           u64(problem.min_exact) * problem.exact_page_bytes;
    room = problem.ram_bytes - std::min(problem.ram_bytes, taken);
  }
};

// What `codec` costs a head of this model, mean over all that have it. Not the head's own KLD: that
// knows how much attention a head pays, which selective reading sees for itself.
double mean_kld(const PlanInput& input, CodecId codec) {
  double sum = 0;
  int n = 0;
  for (const PlanHead& head : input.heads) {
    const Result<CodecOption> option = find_option(head, codec);
    if (!option.ok()) continue;
    sum += option->kld;
    ++n;
  }
  return n == 0 ? 0 : sum / n;
}

Result<std::vector<CodecId>> copy_codecs(const PlanInput& input, const Middle& middle,
                                         const std::vector<CodecId>& codecs) {
  if (!input.bound_codecs.empty()) return input.bound_codecs;
  if (codecs.size() == 1) return std::vector<CodecId>(input.heads.size(), codecs[0]);
  if (!codecs.empty()) return codecs;
  const double finest = static_cast<double>(middle.problem.exact_page_bytes) * kFinestCopyBits / 16;
  const uint64_t each = middle.room / u64(middle.pages + middle.problem.min_tier1);
  return codecs_within(input, std::min(each, static_cast<uint64_t>(finest)));
}

}  // namespace

double expected_reads(double kld_budget, double kld) {
  constexpr double kWrongGuesses = 1.35;
  if (!(kld > 0)) return 0;
  if (!(kld_budget > 0)) return 1;
  return std::clamp(kWrongGuesses * (0.03 - 0.075 * std::log(kld_budget / kld)), 0.0, 1.0);
}

Result<Plan> with_copies(const PlanInput& input, const Plan& plan,
                         const std::vector<CodecId>& codecs, bool forced) {
  const Middle middle(input);
  if (!plan.flash || middle.pages <= 0) return plan;
  TIERKV_ASSIGN_OR_RETURN(const std::vector<CodecId> chosen, copy_codecs(input, middle, codecs));
  Assignment assignment;
  FlashCopies copies;
  for (size_t i = 0; i < input.heads.size(); ++i) {
    TIERKV_ASSIGN_OR_RETURN(const CodecOption option, find_option(input.heads[i], chosen[i]));
    assignment.push_back(option);
    copies.head_kld.push_back(mean_kld(input, chosen[i]));
  }
  SplitProblem problem = middle.problem;
  CodecSums(assignment).apply(problem);
  const uint64_t tier1_bytes = u64(problem.min_tier1) * problem.codec_page_bytes;
  if (problem.codec_page_bytes == 0 || middle.room < tier1_bytes + problem.codec_page_bytes) {
    return plan;
  }
  copies.pages = std::min<int64_t>(
      middle.pages, static_cast<int64_t>((middle.room - tier1_bytes) / problem.codec_page_bytes));
  copies.kld_budget = input.kld_budget;

  Plan made = to_plan(input, make_split(problem, problem.min_exact, problem.min_tier1), assignment);
  for (size_t i = 0; i < assignment.size(); ++i) made.codecs[i] = assignment[i].codec;
  const double copied = static_cast<double>(copies.pages);
  const double share = expected_reads(input.kld_budget, problem.kld);
  const double read = static_cast<double>(middle.pages) - copied * (1 - share);
  const double in_codes = copied * static_cast<double>(problem.page_tokens);
  const double all_read =
      std::max(0.0, static_cast<double>(middle.pages) * problem.flash_page_seconds -
                        problem.overlap_seconds);
  made.seconds_per_token +=
      in_codes * problem.codec_seconds - in_codes * problem.exact_seconds * (1 - share) +
      std::max(0.0, read * problem.flash_page_seconds - problem.overlap_seconds) - all_read;
  if (!forced && made.seconds_per_token >= plan.seconds_per_token) return plan;
  made.ram_bytes += u64(copies.pages) * problem.codec_page_bytes;
  made.kld += std::min(input.kld_budget, problem.kld);
  made.copies = std::move(copies);
  return made;
}

}  // namespace tierkv
