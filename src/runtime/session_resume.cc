#include "runtime/session_resume.h"

#include <algorithm>

#include "kv/tiered_cache.h"

namespace tierkv {
namespace {

// A next turn is worth reading so many tokens again.
constexpr int64_t kNextTurnBonus = 512;

int64_t shared_tokens(const SessionPoint& point, std::span<const int32_t> tokens) {
  const size_t n = std::min(static_cast<size_t>(point.n_tokens), tokens.size());
  return std::mismatch(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n),
                       point.tokens.begin())
             .first -
         tokens.begin();
}

bool is_next_turn(const SessionPoint& point, std::span<const int32_t> tokens) {
  return point.n_answered == static_cast<int64_t>(point.tokens.size()) &&
         point.tokens.size() < tokens.size() &&
         std::equal(point.tokens.begin(), point.tokens.end(), tokens.begin());
}

// The last place at or before `from` where reading can begin with chunks' arithmetic.
int64_t chunk_start(int64_t from, int64_t total, int64_t chunk, int64_t few_tokens) {
  const int64_t begin = from / chunk * chunk, end = std::min(begin + chunk, total);
  const bool many = end - begin > few_tokens;
  return many && end - from <= few_tokens ? std::max(begin, end - few_tokens - 1) : from;
}

Resume resume_from(const KvLayout& layout, const SessionPoint& point,
                   std::span<const int32_t> tokens, int64_t chunk, int64_t few_tokens) {
  Resume resume;
  resume.point = &point;
  resume.n_shared = shared_tokens(point, tokens);
  if (is_next_turn(point, tokens)) {
    resume.next_turn = true;
    resume.n_tokens = point.n_tokens;
    return resume;
  }
  const int64_t total = static_cast<int64_t>(tokens.size());
  const int64_t most = std::min(resume.n_shared, total - 1);
  for (const int64_t n : {chunk_start(most, total, chunk, few_tokens), most}) {
    if (!TieredCache::can_restore(layout, point, n)) continue;
    resume.n_tokens = n;
    return resume;
  }
  return resume;
}

}  // namespace

Resume choose_resume(const KvLayout& layout, std::span<const SessionPoint* const> points,
                     std::span<const int32_t> tokens, int64_t chunk, int64_t few_tokens) {
  Resume best;
  int64_t best_worth = 0, n_shared = 0;
  for (const SessionPoint* point : points) {
    const Resume resume = resume_from(layout, *point, tokens, chunk, few_tokens);
    n_shared = std::max(n_shared, resume.n_shared);
    const int64_t worth = resume.n_tokens + (resume.next_turn ? kNextTurnBonus : 0);
    if (resume.n_tokens > 0 && worth > best_worth) best = resume, best_worth = worth;
  }
  best.n_shared = n_shared;
  return best;
}

}  // namespace tierkv
