#include "plan/accuracy_fit.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace tierkv {
namespace {

constexpr double kLeastKld = 1e-12;  // below every rounding

// How much bands of a few passages scatter about a power law (log KLD), and the exponents of models
// about the default (docs/decisions.md, "Accuracy model").
constexpr double kBandScatter = 0.3, kReachScatter = 0.3;

// Sum of squared differences of log KLD between the bands and the exponent's, at the best scale.
double reach_misfit(const AccuracyMeasurements& measured, Reach reach) {
  double sum = 0, squares = 0;
  for (const BandKld& band : measured.bands) {
    const double share = reach_share(reach, measured.page_tokens, band.pages, measured.n_prefix);
    const double ratio = std::log(std::max(band.kld, kLeastKld) / share);
    sum += ratio;
    squares += ratio * ratio;
  }
  return squares - sum * sum / static_cast<double>(measured.bands.size());
}

// The likeliest exponent, given that scatter.
Reach fit_reach(const AccuracyMeasurements& measured) {
  constexpr int kSteps = 60;
  Reach best = default_accuracy().reach;
  if (measured.bands.size() < 2) return best;
  double least = INFINITY;
  for (int i = 0; i <= kSteps; ++i) {
    const Reach reach{kLeastReach + (kMostReach - kLeastReach) * i / kSteps};
    const double unusual = (reach.exponent - default_accuracy().reach.exponent) / kReachScatter;
    const double misfit =
        reach_misfit(measured, reach) / (kBandScatter * kBandScatter) + unusual * unusual;
    if (misfit < least) least = misfit, best = reach;
  }
  return best;
}

// What all heads cost at each width, in units of the sum of what each costs at the reference.
WidthFactors fit_factors(const WidthFactors& all, double sum, std::span<const uint8_t> widths) {
  WidthFactors factors{};
  double before = 0;
  for (const uint8_t bits : widths) {
    before = factors[bits] = std::max(before, all[bits] / std::max(sum, kLeastKld));
  }
  return factors;
}

}  // namespace

AccuracyModel fit_accuracy(const AccuracyMeasurements& measured, double floor) {
  AccuracyModel model;
  model.floor = floor;
  model.reach = fit_reach(measured);
  HeadSensitivity sum;
  for (const HeadSensitivity& head : measured.heads) {
    sum.k += head.k;
    sum.v += head.v;
  }
  model.k_factor = fit_factors(measured.k_all, sum.k, kKeyWidths);
  model.v_factor = fit_factors(measured.v_all, sum.v, kValueWidths);
  // From the passages' setting to that of plan/reach.h.
  const double share =
      reach_share(model.reach, measured.page_tokens, measured.pages, measured.n_prefix);
  for (const HeadSensitivity& head : measured.heads) {
    model.heads.push_back({head.k / share, head.v / share});
  }
  return model;
}

}  // namespace tierkv
