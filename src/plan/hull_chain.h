// The planning problem under each assignment of the hull chain (plan/hull.h), one after the other:
// from one to the next only one head's codec changes, so that hundreds of heads with dozens of
// codecs take well under a millisecond.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/hull.h"
#include "plan/split.h"

namespace tierkv {

using Assignment = std::vector<CodecOption>;  // one per head

// What the codecs of all heads add up to, kept up to date as they change one by one. A tree of
// partial sums: a running sum would drift, and the limits are exact.
class CodecSums {
 public:
  explicit CodecSums(const Assignment& codecs) {
    while (n_leaves_ < codecs.size()) n_leaves_ *= 2;
    nodes_.resize(2 * n_leaves_);
    for (size_t i = 0; i < codecs.size(); ++i) nodes_[n_leaves_ + i] = leaf(codecs[i]);
    for (size_t i = n_leaves_ - 1; i > 0; --i) nodes_[i] = sum(nodes_[2 * i], nodes_[2 * i + 1]);
  }
  void set(size_t head, const CodecOption& codec) {
    size_t i = n_leaves_ + head;
    nodes_[i] = leaf(codec);
    while (i /= 2) nodes_[i] = sum(nodes_[2 * i], nodes_[2 * i + 1]);
  }
  void apply(SplitProblem& p) const {
    p.codec_page_bytes = nodes_[1].bytes;
    p.codec_seconds = nodes_[1].seconds;
    p.kld = nodes_[1].kld;
  }

 private:
  struct Node {
    uint64_t bytes = 0;
    double seconds = 0, kld = 0;
  };
  static Node leaf(const CodecOption& c) { return {c.page_bytes, c.seconds_per_token, c.kld}; }
  static Node sum(const Node& a, const Node& b) {
    return {a.bytes + b.bytes, a.seconds + b.seconds, a.kld + b.kld};
  }
  size_t n_leaves_ = 1;
  std::vector<Node> nodes_;
};

// The assignments of the hull chain: number 0 is float16 everywhere, each next one moves one head
// on.
class HullChain {
 public:
  // `problem`: everything but what the codecs decide.
  HullChain(const std::vector<PlanHead>& heads, const SplitProblem& problem) : problem_(problem) {
    for (const PlanHead& head : heads) hulls_.push_back(lower_hull(head));
    steps_ = hull_steps(hulls_);
  }

  // The chain that is one assignment long.
  HullChain(const Assignment& codecs, const SplitProblem& problem) : problem_(problem) {
    for (const CodecOption& codec : codecs) hulls_.push_back({codec});
  }

  // Calls visit(problem, number) for every assignment.
  template <typename Visit>
  void walk(Visit visit) const {
    SplitProblem problem = problem_;
    CodecSums sums(assignment(0));
    sums.apply(problem);
    visit(problem, 0);
    std::vector<size_t> vertex(hulls_.size(), 0);
    for (size_t i = 0; i < steps_.size(); ++i) {
      const int head = steps_[i];
      sums.set(head, hulls_[head][++vertex[head]]);
      sums.apply(problem);
      visit(problem, i + 1);
    }
  }

  Assignment assignment(size_t number) const {
    std::vector<size_t> vertex(hulls_.size(), 0);
    for (size_t i = 0; i < number; ++i) ++vertex[steps_[i]];
    Assignment codecs;
    for (size_t head = 0; head < hulls_.size(); ++head) {
      codecs.push_back(hulls_[head][vertex[head]]);
    }
    return codecs;
  }

 private:
  SplitProblem problem_;
  std::vector<Assignment> hulls_;
  std::vector<int> steps_;
};

}  // namespace tierkv
