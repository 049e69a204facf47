// Selective reading of Tier-2: which extents of a layer are worth reading in a decode step, when a
// compressed copy of each is in RAM. What a copy would cost is estimated from the attention that it
// gets, which its states (max, sum) tell; extents that together cost no more than is allowed are
// left to their copies, the others are read. Nothing is ever left out of attention.
//
// The estimate, in nats of KLD a token: codec errors of tokens are independent, so the error of a
// head's output has a variance that goes with sum p_i^2 over the tokens' attention p_i, and KLD is
// quadratic in it. Of each split (a run of pages) its mass m and its largest p are known, and
// sum p_i^2 <= m max p. A head whose tokens are all stored through its codec costs head_kld
// (plan/accuracy.h) where these bounds add up to kMeanWeight; so
//   effect(extent) = sum over heads of head_kld / kMeanWeight * mean over the group of sum m max p.
// It is calibrated, not a bound: docs/decisions.md, "selective reading".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tierkv {

// The indices, ascending, of the fewest effects without which the others add up to no more than
// `allowance`; all of them when nothing is allowed. Of equal effects the first are read. An
// infinite effect is always read.
std::vector<size_t> worth_reading(std::span<const double> effects, double allowance);

class SelectiveRead {
 public:
  static constexpr double kMeanWeight = 0.01;

  // `head_kld` [layer of the model][KV head]; layers that are never offloaded have no heads.
  SelectiveRead(std::vector<std::vector<double>> head_kld, double kld_budget);

  // A KV head's part of an effect, for each unit of m max p.
  double weight(int layer, int kv_head) const { return head_kld_[layer][kv_head] / kMeanWeight; }

  // One layer of a step, in the order of layers: worth_reading() with the layer's part of the
  // budget, what earlier layers of the step left of theirs included.
  std::vector<size_t> choose(int layer, std::span<const double> effects);

  int64_t n_judged() const { return n_judged_; }    // extents so far
  int64_t n_skipped() const { return n_skipped_; }  // of these, left to their copies

 private:
  const std::vector<std::vector<double>> head_kld_;
  const double kld_budget_;
  double left_ = 0;  // of the budget, in this step
  int64_t n_judged_ = 0, n_skipped_ = 0;
};

}  // namespace tierkv
