#include "plan/split.h"

#include <algorithm>
#include <cmath>

namespace tierkv {
namespace {

constexpr double kSameTime = 1e-12;  // relative; sums of a few hundred terms round less than this

uint64_t u64(int64_t value) { return static_cast<uint64_t>(value); }

double seconds(const SplitProblem& p, int64_t tier1, double offloaded_pages) {
  const double tier1_tokens = static_cast<double>(tier1 * p.page_tokens);
  const double exact_tokens = static_cast<double>(p.tokens) - tier1_tokens;
  const double reading = offloaded_pages * p.flash_page_seconds - p.overlap_seconds;
  return exact_tokens * p.exact_seconds + tier1_tokens * p.codec_seconds + std::max(0.0, reading);
}

double kld(const SplitProblem& p, int64_t tier1) {
  if (p.shares) return (*p.shares)[static_cast<size_t>(tier1)] * p.kld;
  return tier1 == 0 ? 0 : static_cast<double>(tier1) * p.kld / static_cast<double>(p.pages);
}

bool within_kld(const SplitProblem& p, int64_t tier1) {
  if (p.shares) return kld(p, tier1) <= p.kld_budget;
  return static_cast<double>(tier1) * p.kld <= p.kld_budget * static_cast<double>(p.pages);
}

// Most pages that the KLD budgets let into Tier-1 beside those that can't leave it.
int64_t tier1_by_kld(const SplitProblem& p) {
  if (p.kld > p.codec_kld_budget) return p.min_tier1;
  if (p.shares) {
    int64_t low = 0, high = p.pages;
    while (low < high) {
      const int64_t middle = high - (high - low) / 2;
      if (within_kld(p, middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return std::max(low, p.min_tier1);
  }
  if (p.kld <= p.kld_budget) return p.pages;
  int64_t tier1 = static_cast<int64_t>(p.kld_budget * static_cast<double>(p.pages) / p.kld);
  while (tier1 > 0 && !within_kld(p, tier1)) --tier1;
  while (tier1 < p.pages && within_kld(p, tier1 + 1)) ++tier1;
  return std::max(tier1, p.min_tier1);
}

void consider(const Split& split, std::optional<Split>& best) {
  if (!best || better(split, *best)) best = split;
}

// Fewest Tier-1 pages with which everything fits RAM; nullopt: not even with all of them there.
std::optional<int64_t> tier1_by_ram(const SplitProblem& p) {
  if (p.ram_bytes < p.fixed_bytes) return std::nullopt;
  const uint64_t room = p.ram_bytes - p.fixed_bytes, all = u64(p.pages) * p.exact_page_bytes;
  if (all <= room) return p.min_tier1;
  const uint64_t saved = p.exact_page_bytes - p.codec_page_bytes;
  if (saved == 0) return std::nullopt;
  const uint64_t tier1 = (all - room + saved - 1) / saved;
  if (tier1 > u64(p.pages - p.min_exact)) return std::nullopt;
  return std::max(static_cast<int64_t>(tier1), p.min_tier1);
}

// Without flash one number is free and everything is linear in it: the best is an end.
void improve_without_flash(const SplitProblem& p, std::optional<Split>& best) {
  const std::optional<int64_t> least = tier1_by_ram(p);
  const int64_t most = std::min(tier1_by_kld(p), p.pages - p.min_exact);
  if (!least || *least > most) return;
  consider(make_split(p, p.pages - *least, *least), best);
  consider(make_split(p, p.pages - most, most), best);
}

// With flash (at least one page offloaded), for a given number of Tier-1 pages the best number of
// exact ones is known; over the Tier-1 pages, a convex lower bound of the time says where to look.
class FlashSearch {
 public:
  FlashSearch(const SplitProblem& problem, std::optional<Split>& best) : p_(problem), best_(best) {}

  void run() {
    const uint64_t least = p_.fixed_bytes + p_.flash_bytes +
                           u64(p_.min_exact) * p_.exact_page_bytes +
                           u64(p_.min_tier1) * p_.codec_page_bytes;
    if (!p_.flash_allowed || p_.pages <= p_.min_exact + p_.min_tier1 || p_.ram_bytes < least) {
      return;
    }
    room_ = p_.ram_bytes - p_.fixed_bytes - p_.flash_bytes;
    free_pages_ = pages_read_for_free();
    const int64_t most = most_tier1(room_ - u64(p_.min_exact) * p_.exact_page_bytes);
    const int64_t start = least_bound(most);
    for (int64_t c = start; c <= most && may_win(bound(c), kld(p_, c)); ++c) try_tier1(c);
    for (int64_t c = start - 1; c >= p_.min_tier1 && may_win(bound(c), 0); --c) try_tier1(c);
  }

 private:
  int64_t most_tier1(uint64_t room) const {
    const int64_t most = std::min(tier1_by_kld(p_), p_.pages - p_.min_exact - 1);
    if (p_.codec_page_bytes == 0) return most;
    return static_cast<int64_t>(std::min(u64(most), room / p_.codec_page_bytes));
  }

  int64_t pages_read_for_free() const {
    const double pages = static_cast<double>(p_.pages);
    if (pages * p_.flash_page_seconds <= p_.overlap_seconds) return p_.pages;
    return static_cast<int64_t>(p_.overlap_seconds / p_.flash_page_seconds);
  }

  int64_t most_exact(int64_t tier1) const {
    const int64_t most = p_.pages - tier1 - 1;
    if (p_.exact_page_bytes == 0) return most;
    const uint64_t fitting = (room_ - u64(tier1) * p_.codec_page_bytes) / p_.exact_page_bytes;
    return static_cast<int64_t>(std::min(u64(most), fitting));
  }

  // As many exact pages as RAM holds, but no more than make reading from flash free.
  void try_tier1(int64_t tier1) {
    const int64_t enough = std::max(p_.min_exact, p_.pages - tier1 - free_pages_);
    consider(make_split(p_, std::min(enough, most_exact(tier1)), tier1), best_);
  }

  // Time when exact pages may be split: convex in tier1, and no more than the time of whole pages.
  double bound(int64_t tier1) const {
    double exact = static_cast<double>(p_.pages - tier1 - 1);
    if (p_.exact_page_bytes != 0) {
      const uint64_t room = room_ - u64(tier1) * p_.codec_page_bytes;
      exact = std::min(exact, static_cast<double>(room) / static_cast<double>(p_.exact_page_bytes));
    }
    return seconds(p_, tier1, static_cast<double>(p_.pages - tier1) - exact);
  }

  // The first place where the bound is least.
  int64_t least_bound(int64_t most) const {
    int64_t low = p_.min_tier1, high = most;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (bound(middle) > bound(middle + 1)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  bool may_win(double least_seconds, double least_kld) const {
    if (!best_ || least_seconds < best_->seconds * (1 - kSameTime)) return true;
    const bool same = least_seconds <= best_->seconds * (1 + kSameTime);
    return same && best_->offloaded > 0 && least_kld <= best_->kld;
  }

  const SplitProblem& p_;
  std::optional<Split>& best_;
  uint64_t room_ = 0;       // RAM for exact and Tier-1 pages
  int64_t free_pages_ = 0;  // offloaded pages whose reading computation hides
};

}  // namespace

Split make_split(const SplitProblem& p, int64_t exact, int64_t tier1) {
  const int64_t offloaded = p.pages - exact - tier1;
  return {.exact = exact,
          .tier1 = tier1,
          .offloaded = offloaded,
          .ram_bytes = p.fixed_bytes + u64(exact) * p.exact_page_bytes +
                       u64(tier1) * p.codec_page_bytes + (offloaded > 0 ? p.flash_bytes : 0),
          .kld = kld(p, tier1),
          .seconds = seconds(p, tier1, static_cast<double>(offloaded))};
}

bool better(const Split& a, const Split& b) {
  if (a.seconds < b.seconds * (1 - kSameTime)) return true;
  if (b.seconds < a.seconds * (1 - kSameTime)) return false;
  const bool a_flash = a.offloaded > 0, b_flash = b.offloaded > 0;
  if (a_flash != b_flash) return b_flash;
  if (a.kld != b.kld) return a.kld < b.kld;
  return a.ram_bytes < b.ram_bytes;
}

void improve(const SplitProblem& problem, std::optional<Split>& best) {
  improve_without_flash(problem, best);
  FlashSearch(problem, best).run();
}

uint64_t least_ram(const SplitProblem& p) {
  const int64_t tier1 = std::min(tier1_by_kld(p), p.pages - p.min_exact);
  const uint64_t without = make_split(p, p.pages - tier1, tier1).ram_bytes;
  if (!p.flash_allowed || p.pages <= p.min_exact + p.min_tier1) return without;
  return std::min(without, make_split(p, p.min_exact, p.min_tier1).ram_bytes);
}

}  // namespace tierkv
