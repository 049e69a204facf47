// The names of --quality: how much KLD compression may cost, in nats a token, strictest first.
#pragma once

namespace tierkv {

struct Quality {
  const char* name;
  double kld;
};
inline constexpr Quality kQualities[] = {
    {"exact", 0}, {"high", 5e-4}, {"balanced", 2e-3}, {"compact", 1e-2}};

// What codecs may cost with all tokens in Tier-1, as a part of a quality's KLD. That KLD is a mean
// over an answer's tokens, most of which hardly look at what lies far away; a question about it
// does, and loses many times the mean (docs/decisions.md, "Accuracy model").
inline constexpr double kCodecKldShare = 0.125;
// Of the accuracy that is assumed of models without a profile, which errs on the high side.
inline constexpr double kAssumedCodecKldShare = 0.5;

}  // namespace tierkv
