#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>

namespace tierkv {

Status validate(const SamplingOptions& o) {
  if (!(o.temperature >= 0 && o.temperature <= 100)) {
    return invalid_argument("temperature must be 0 (greedy) or more, at most 100");
  }
  if (o.top_k < 0) return invalid_argument("top-k must be 0 (off) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return invalid_argument("top-p must be above 0, at most 1");
  if (!(o.min_p >= 0 && o.min_p <= 1)) return invalid_argument("min-p must lie between 0 and 1");
  if (!(o.repeat_penalty > 0 && o.repeat_penalty <= 100)) {
    return invalid_argument("the repetition penalty must be above 0 (1 is off)");
  }
  if (o.repeat_last_n < 0) return invalid_argument("repeat-last-n must be 0 or more");
  return {};
}

Sampler::Sampler(const SamplingOptions& options, const Kernels& kernels)
    : options_(options), kernels_(kernels), random_(options.seed) {}

int32_t Sampler::sample(std::span<float> logits, std::span<const int32_t> recent) {
  if (options_.repeat_penalty != 1) penalise(logits, recent);
  if (options_.temperature == 0) {
    return static_cast<int32_t>(
        kernels_.vector->argmax(logits.data(), static_cast<int64_t>(logits.size())));
  }
  collect(logits);
  return draw();
}

// Each recent token once: divides positive logits, multiplies negative ones (CTRL, arXiv
// 1909.05858).
void Sampler::penalise(std::span<float> logits, std::span<const int32_t> recent) const {
  const size_t n = std::min<size_t>(recent.size(), static_cast<size_t>(options_.repeat_last_n));
  std::vector<int32_t> tokens(recent.end() - static_cast<std::ptrdiff_t>(n), recent.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  for (const int32_t token : tokens) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
  }
}

// The candidates that top-k leaves, best first; equal logits by token id.
void Sampler::collect(std::span<const float> logits) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const size_t keep = options_.top_k == 0
                          ? logits.size()
                          : std::min<size_t>(logits.size(), static_cast<size_t>(options_.top_k));
  candidates_.clear();
  for (size_t i = 0; i < keep; ++i) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  std::make_heap(candidates_.begin(), candidates_.end(), better);  // the worst in front
  constexpr size_t kBlock = 1024;
  for (size_t begin = keep; begin < logits.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, logits.size());
    // Later tokens lose ties, so a block without a larger logit has no candidate.
    const int64_t n = static_cast<int64_t>(end - begin);
    if (!(kernels_.vector->max(&logits[begin], n) > candidates_.front().logit)) continue;
    for (size_t i = begin; i < end; ++i) {
      if (!(logits[i] > candidates_.front().logit)) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.back() = {logits[i], static_cast<int32_t>(i)};
      std::push_heap(candidates_.begin(), candidates_.end(), better);
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
}

// top-p and min-p act on the untempered probabilities, as in llama.cpp's default chain.
int32_t Sampler::draw() {
  const float best = candidates_[0].logit;
  std::vector<double> p(candidates_.size());
  double total = 0;
  for (size_t i = 0; i < p.size(); ++i)
    total += p[i] = std::exp(double{candidates_[i].logit} - best);
  size_t n = 0;
  for (double seen = 0; n < p.size(); ++n) {
    const bool enough = seen >= options_.top_p * total;
    if (n > 0 && (enough || p[n] < options_.min_p)) break;  // p[0] is 1
    seen += p[n];
  }
  double tempered = 0;
  for (size_t i = 0; i < n; ++i) {
    p[i] = std::exp((double{candidates_[i].logit} - best) / options_.temperature);
    tempered += p[i];
  }
  const double at = static_cast<double>(random_() >> 11) * 0x1p-53 * tempered;
  double seen = 0;
  for (size_t i = 0; i < n; ++i) {
    seen += p[i];
    if (at < seen) return candidates_[i].token;
  }
  return candidates_[n - 1].token;
}

}  // namespace tierkv
