// How long an answer will be, from earlier requests whose prompts looked alike. Answers that were
// cut off say only that they were at least so long: they count as censored (Kaplan and Meier 1958).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/fingerprint.h"

namespace tierkv {

// One earlier request.
struct Observation {
  Fingerprint fingerprint{};
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  bool censored = false;  // the answer was cut off, not ended by the model
};

enum class PredictionSource : uint8_t {
  kDefault,     // nothing is known
  kHistory,     // earlier requests, none of them alike
  kNeighbours,  // earlier requests that are alike
  kGiven,       // the user said so
};

struct Prediction {
  int64_t tokens = 0;
  PredictionSource source = PredictionSource::kDefault;
  int n_neighbours = 0;
};

// The rule's settings; docs/decisions.md has what others gave.
struct PredictorOptions {
  int n_neighbours = 8;
  int least_neighbours = 2;       // with fewer that are alike, the whole history speaks
  double least_similarity = 0.2;  // positive: the cosine from which on a request is alike
  double quantile = 0.55;
};

// The quantile of the neighbours' lengths, weighted by similarity; without neighbours that of all
// `seen`; without any `fallback`. At least 1.
Prediction predict_output(std::span<const Observation> seen, const Fingerprint& fingerprint,
                          int64_t fallback, const PredictorOptions& options = {});

// The rule to compare with: the mean of all lengths, cut off or not; without any `fallback`.
int64_t predict_static_mean(std::span<const Observation> seen, int64_t fallback);

// The cosines of `fingerprint` with each of `seen`, after the mean of `seen` has been taken from
// both: what all prompts share would drown what tells them apart. 0 where one is zero.
std::vector<float> similarities(std::span<const Observation> seen, const Fingerprint& fingerprint);

struct WeightedLength {
  int64_t tokens = 0;
  double weight = 1;  // positive
  bool censored = false;
};

// The least length that a share `quantile` of answers does not pass, by the product-limit estimate;
// the longest length seen where too many were cut off to tell. `lengths` is not empty.
int64_t length_quantile(std::vector<WeightedLength> lengths, double quantile);

}  // namespace tierkv
