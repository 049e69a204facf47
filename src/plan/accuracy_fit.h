// From what a calibration measured to an accuracy model.
#pragma once

#include <vector>

#include "plan/accuracy.h"

namespace tierkv {

// KLD of all heads at the reference widths over some of the pages.
struct BandKld {
  PageRange pages;
  double kld = 0;
};

// Means over passages, in nats a token. A passage: `pages` of a prefix of n_prefix tokens
// compressed, the tokens after the prefix compared.
struct AccuracyMeasurements {
  int64_t page_tokens = 64;
  PageRange pages;
  int64_t n_prefix = 0;
  std::vector<HeadSensitivity> heads;  // one at a time
  WidthFactors k_all{}, v_all{};       // KLD of all heads' K, or V, at each width
  std::vector<BandKld> bands;
};

// `floor` as in AccuracyModel. Always a model that a planner can use: factors never fall with fewer
// bits, the reach is within its bounds.
AccuracyModel fit_accuracy(const AccuracyMeasurements& measured, double floor);

inline constexpr double kLeastReach = 0.5, kMostReach = 2;

}  // namespace tierkv
