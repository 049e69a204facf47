#include "kv/low_rank_ranks.h"

#include <algorithm>

namespace tierkv {
namespace {

uint64_t block_bytes(const LowRankChoice& choice) {
  return low_rank_block_bytes(choice.rank, choice.latent_bits);
}

LowRankChoice one_step_more(LowRankChoice choice) {
  choice.rank += kRankStep;
  return choice;
}

}  // namespace

// Spectra fall, so that the best next step, over and over, is best in the end.
std::vector<LowRankChoice> share_ranks(const std::vector<LowRankSpectrum>& spectra,
                                       std::vector<LowRankChoice> nominal) {
  std::vector<LowRankChoice> shared = nominal;
  uint64_t room = 0;
  for (size_t i = 0; i < nominal.size(); ++i) {
    if (nominal[i].rank == 0) continue;
    shared[i].rank = kRankStep;
    room += block_bytes(nominal[i]) - block_bytes(shared[i]);
  }
  const auto step_bytes = [&](size_t i) {
    return block_bytes(one_step_more(shared[i])) - block_bytes(shared[i]);
  };
  const auto gain = [&](size_t i) {
    const size_t step = static_cast<size_t>(shared[i].rank / kRankStep);
    const int64_t width = static_cast<int64_t>(spectra[i].size()) * kRankStep;
    const bool may = nominal[i].rank > 0 && step_bytes(i) <= room &&
                     shared[i].rank < most_low_rank(nominal[i].rank, width);
    return may ? std::max(spectra[i][step], 0.0) : -1;  // rounding makes a 0 negative
  };
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i < shared.size(); ++i) {
      const bool evens = gain(i) == gain(best) && shared[i].rank < shared[best].rank;
      if (gain(i) > gain(best) || evens) best = i;
    }
    if (shared.empty() || gain(best) < 0) return shared;
    room -= step_bytes(best);
    shared[best] = one_step_more(shared[best]);
  }
}

}  // namespace tierkv
