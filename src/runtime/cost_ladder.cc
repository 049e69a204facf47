#include "runtime/cost_ladder.h"

#include <algorithm>
#include <array>

namespace tierkv {
namespace {

constexpr int kRounds = 10;  // it settles in three or four

using Parts = std::array<double, 9>;  // by bits

// Sets part[b], for each b that `bits` gives of a codec, to the median of what the codecs of so
// many bits cost beside the other part.
template <typename Bits, typename Rest>
void polish(std::span<const AttentionCosts::Codec> codecs, Bits bits, Rest rest, Parts& part) {
  std::array<std::vector<double>, 9> left;
  for (const auto& entry : codecs) {
    left[bits(entry.codec)].push_back(entry.seconds - rest(entry.codec));
  }
  for (size_t b = 0; b < part.size(); ++b) {
    if (!left[b].empty()) part[b] = median(std::move(left[b]));
  }
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

void smooth_costs(std::span<AttentionCosts::Codec> codecs) {
  Parts k{}, v{};
  for (int i = 0; i < kRounds; ++i) {
    polish(
        codecs, [](CodecId c) { return c.k_bits; }, [&](CodecId c) { return v[c.v_bits]; }, k);
    polish(
        codecs, [](CodecId c) { return c.v_bits; }, [&](CodecId c) { return k[c.k_bits]; }, v);
  }
  for (auto& entry : codecs) {
    entry.seconds = std::max(k[entry.codec.k_bits] + v[entry.codec.v_bits], 0.0);
  }
}

}  // namespace tierkv
