#include "plan/reach.h"

#include <algorithm>
#include <cmath>

namespace tierkv {
namespace {

constexpr double kNearTokens =
    64;  // below this distance falls off no more: nothing nearer is compressed

// Tokens that a page weighs, seen from the token at position `from`.
double weight(Reach reach, int64_t page_tokens, int64_t page, int64_t from) {
  const double middle = (static_cast<double>(page) + 0.5) * static_cast<double>(page_tokens);
  const double distance = std::max(static_cast<double>(from) - middle, 0.0) + kNearTokens;
  return static_cast<double>(page_tokens) * std::pow(distance, -reach.exponent);
}

double weight_sum(Reach reach, int64_t page_tokens, PageRange pages, int64_t from) {
  double sum = 0;
  for (int64_t page = pages.begin; page < pages.end; ++page) {
    sum += weight(reach, page_tokens, page, from);
  }
  return sum;
}

double setting(Reach reach) { return weight_sum(reach, 64, {1, 45}, 3072); }

}  // namespace

double reach_share(Reach reach, int64_t page_tokens, PageRange pages, int64_t answer_begin) {
  return weight_sum(reach, page_tokens, pages, answer_begin) / setting(reach);
}

std::vector<double> tier1_shares(Reach reach, int64_t page_tokens, int64_t n_pages,
                                 int64_t sink_pages, int64_t window_pages, TokenRange answer) {
  std::vector<double> shares(static_cast<size_t>(n_pages) + 1, 0.0);
  const double unit = setting(reach);
  for (int64_t page = sink_pages; page < n_pages; ++page) {
    // The answer's first token that finds the page compressed, and the part of the answer after it.
    const int64_t first = std::max(answer.begin, (page + window_pages) * page_tokens);
    if (first >= answer.end) break;
    const double part =
        static_cast<double>(answer.end - first) / static_cast<double>(answer.end - answer.begin);
    shares[static_cast<size_t>(page - sink_pages + 1)] =
        part * weight(reach, page_tokens, page, first) / unit;
  }
  for (size_t t = 1; t < shares.size(); ++t) shares[t] += shares[t - 1];
  return shares;
}

}  // namespace tierkv
