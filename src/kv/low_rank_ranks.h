// Which rank each layer of the low-rank codec gets: what latents a codec's share of the rank gives
// all layers together go to the layers where they keep most, since spectra differ (in Gemma 3 270M
// the same rank loses three times as much of one layer's values as of another's).
#pragma once

#include <cstdint>
#include <vector>

#include "kv/kv_layout.h"
#include "kv/low_rank_basis.h"

namespace tierkv {

// Ranks that lose least of all layers together, in blocks of no more bytes than those of `nominal`;
// one spectrum (of no matter for
// layers of another codec) and one nominal choice per layer of the model.
std::vector<LowRankChoice> share_ranks(const std::vector<LowRankSpectrum>& spectra,
                                       std::vector<LowRankChoice> nominal);

}  // namespace tierkv
