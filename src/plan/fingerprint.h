// What a prompt asks for, in 256 bytes: directions that the model's hidden states (after the output
// norm) take, projected from its width to 128 dimensions. Prompts that want the same kind of answer
// point in similar directions. The projection is part of the history's format: signs from a
// counter-based generator, the same on every machine.
//
// Two rules:
//   kTail     the mean over the last 16 tokens, and the last token's, each at unit length. Default:
//             it predicts better, and takes nothing that prefill has not computed.
//   kEntropy  the mean over tokens all over the prompt, weighted by the entropy of the output
//   there:
//             the paper's (docs/decisions.md compares them).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tierkv {

inline constexpr int kFingerprintDims = 128;
inline constexpr int64_t kTailTokens = 16;

enum class FingerprintRule : uint8_t { kTail, kEntropy };

// float16; of unit length up to rounding, or all zero when nothing is known.
using Fingerprint = std::array<uint16_t, kFingerprintDims>;

// A weighted sum of hidden states [n_embd].
class HiddenSum {
 public:
  explicit HiddenSum(int64_t n_embd) : sum_(static_cast<size_t>(n_embd), 0.0) {}
  void add(std::span<const float> hidden, double weight);
  const std::vector<double>& sum() const { return sum_; }

 private:
  std::vector<double> sum_;
};

// The weight of a token whose output has so much entropy, in nats: where the model is certain
// everywhere, all tokens count the same.
double entropy_weight(double nats);

// Of one or two sums of the same width, each taken at unit length.
Fingerprint make_fingerprint(std::span<const HiddenSum* const> parts);

// The sign with which dimension `from` of the parts, laid end to end, counts in dimension `to`: +1
// or -1.
int projection_sign(int64_t from, int to);

}  // namespace tierkv
