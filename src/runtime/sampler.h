// From logits to a token: repetition penalty, then temperature, top-k, top-p and min-p, in the
// order and with the meanings llama.cpp's flags have. Temperature 0 is greedy: the first largest
// logit.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/kernels.h"

namespace tierkv {

struct SamplingOptions {
  float temperature = 0.8f;
  int64_t top_k = 40;          // 0: all
  float top_p = 0.95f;         // 1: off
  float min_p = 0.05f;         // 0: off
  float repeat_penalty = 1;    // 1: off
  int64_t repeat_last_n = 64;  // tokens it looks back on
  uint64_t seed = 0;
};

Status validate(const SamplingOptions& options);

class Sampler {
 public:
  Sampler(const SamplingOptions& options, const Kernels& kernels);

  // `logits` [n_vocab] may be changed. `recent`: the tokens so far, newest last.
  int32_t sample(std::span<float> logits, std::span<const int32_t> recent);

 private:
  struct Candidate {
    float logit;
    int32_t token;
  };

  void penalise(std::span<float> logits, std::span<const int32_t> recent) const;
  void collect(std::span<const float> logits);
  int32_t draw();

  const SamplingOptions options_;
  const Kernels& kernels_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
};

}  // namespace tierkv
