// How much compressed pages matter by where they lie. Attention falls off with distance, and with
// it what an error costs: measured as a power of the distance. An answer carries what it was given:
// its own keys and values hold the error of the pages that its first tokens read, so a page counts
// for all of an answer as it does for the first token that finds it compressed, however far the
// answer gets from it (docs/decisions.md, "Accuracy model"). Everything is relative to the setting
// in which heads' KLDs are given: 3,072 tokens, all but a page of sinks and three pages of window
// compressed, and the answer to them.
#pragma once

#include <cstdint>
#include <vector>

namespace tierkv {

struct PageRange {
  int64_t begin = 0, end = 0;
};
struct TokenRange {
  int64_t begin = 0, end = 0;
};

struct Reach {
  double exponent = 0;  // of the distance: 0 is all pages alike
  friend bool operator==(const Reach&, const Reach&) = default;
};

// KLD of compressing `pages`, of page_tokens each, in units of the setting's, for an answer whose
// first token is at position answer_begin.
double reach_share(Reach reach, int64_t page_tokens, PageRange pages, int64_t answer_begin);

// For t = 0 .. n_pages: the share of t Tier-1 pages after the sinks, for the tokens of `answer`
// (mean), from each of which the window_pages - 1 pages before its own are still exact.
std::vector<double> tier1_shares(Reach reach, int64_t page_tokens, int64_t n_pages,
                                 int64_t sink_pages, int64_t window_pages, TokenRange answer);

}  // namespace tierkv
