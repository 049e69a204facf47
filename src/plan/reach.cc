#include "plan/reach.h"

#include <algorithm>
#include <cmath>

namespace tierkv {
namespace {

constexpr int64_t kQuerySamples = 4;  // positions that stand for all of a range
constexpr double kNearTokens =
    64;  // below this distance falls off no more: nothing nearer is compressed

// Tokens that a page weighs, seen from `query`.
double weight(Reach reach, int64_t page_tokens, int64_t page, double query) {
  const double middle = (static_cast<double>(page) + 0.5) * static_cast<double>(page_tokens);
  const double distance = std::max(query - middle, 0.0) + kNearTokens;
  return static_cast<double>(page_tokens) * std::pow(distance, -reach.exponent);
}

// The middles of kQuerySamples equal parts.
double sample(TokenRange queries, int64_t i) {
  const double length = static_cast<double>(queries.end - queries.begin);
  return static_cast<double>(queries.begin) +
         length * (static_cast<double>(i) + 0.5) / kQuerySamples;
}

double weight_sum(Reach reach, int64_t page_tokens, PageRange pages, TokenRange queries) {
  double sum = 0;
  for (int64_t i = 0; i < kQuerySamples; ++i) {
    for (int64_t page = pages.begin; page < pages.end; ++page) {
      sum += weight(reach, page_tokens, page, sample(queries, i)) / kQuerySamples;
    }
  }
  return sum;
}

double setting(Reach reach) { return weight_sum(reach, 64, {1, 45}, {3072, 3584}); }

}  // namespace

double reach_share(Reach reach, int64_t page_tokens, PageRange pages, TokenRange queries) {
  return weight_sum(reach, page_tokens, pages, queries) / setting(reach);
}

std::vector<double> tier1_shares(Reach reach, int64_t page_tokens, int64_t n_pages,
                                 int64_t sink_pages, int64_t window_pages, TokenRange queries) {
  std::vector<double> shares(static_cast<size_t>(n_pages) + 1, 0.0);
  const double unit = kQuerySamples * setting(reach);
  for (int64_t i = 0; i < kQuerySamples; ++i) {
    // The ends of the parts: the last query sees every page that can be in Tier-1.
    const int64_t length = queries.end - queries.begin;
    const double query = static_cast<double>(queries.begin + length * (i + 1) / kQuerySamples - 1);
    const int64_t own = static_cast<int64_t>(query) / page_tokens;
    const int64_t end = std::min(own + 1 - window_pages, n_pages);
    for (int64_t page = sink_pages; page < end; ++page) {
      shares[static_cast<size_t>(page - sink_pages + 1)] +=
          weight(reach, page_tokens, page, query) / unit;
    }
  }
  for (size_t t = 1; t < shares.size(); ++t) shares[t] += shares[t - 1];
  return shares;
}

}  // namespace tierkv
