// The accuracy model: what storing KV heads in Tier-1 costs, in nats of KLD a token, as numbers
// that add up. Errors of different heads, of K and of V are independent, so their KLDs add; each is
// a sensitivity of the head, its KLD at a reference width, times a factor of the width. The numbers
// come from a model's profile (runtime/calibrate.h) or, without one, from defaults on the high side
// (docs/decisions.md, "Accuracy model").
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace tierkv {

inline constexpr std::array<uint8_t, 5> kKeyWidths = {8, 6, 5, 4, 3};
inline constexpr std::array<uint8_t, 6> kValueWidths = {8, 6, 5, 4, 3, 2};
inline constexpr int kReferenceKeyBits = 4, kReferenceValueBits = 3;

// What scoring in codes costs beside the codes themselves (int8 queries, 7-bit weights), all heads
// (docs/decisions.md, "Accuracy model").
inline constexpr double kScoringFloor = 2e-5;

// A factor for each number of bits; those that no code has are 0.
using WidthFactors = std::array<double, 9>;

// KLD with the tokens of a head in the setting of plan/reach.h at the reference width in K, or V,
// and everything else exact.
struct HeadSensitivity {
  double k = 0, v = 0;
  friend bool operator==(const HeadSensitivity&, const HeadSensitivity&) = default;
};

struct AccuracyModel {
  // As PlanInput::heads. Empty: of any model, `every_model` is what all heads have together.
  std::vector<HeadSensitivity> heads;
  HeadSensitivity every_model;
  WidthFactors k_factor{}, v_factor{};  // 1 at the reference widths
  double floor = 0;  // of all heads together, whatever the width: what scoring codes rounds
  Reach reach;
  friend bool operator==(const AccuracyModel&, const AccuracyModel&) = default;
};

// For models without a profile.
AccuracyModel default_accuracy();

// KLD of head number `head` of n_heads when all of its tokens are stored through `codec`.
double head_kld(const AccuracyModel& model, size_t head, size_t n_heads, CodecId codec);

// KLD with every head's tokens in the setting of plan/reach.h stored through its codec.
double codecs_kld(const AccuracyModel& model, const std::vector<CodecId>& codecs);

// KLD of Tier-1 with these codecs, one a head, in `pages` of page_tokens each, for an answer whose
// first token is at position answer_begin.
double predicted_kld(const AccuracyModel& model, const std::vector<CodecId>& codecs,
                     int64_t page_tokens, PageRange pages, int64_t answer_begin);

}  // namespace tierkv
