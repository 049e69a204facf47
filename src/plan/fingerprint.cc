#include "plan/fingerprint.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace tierkv {
namespace {

using Projected = std::array<double, kFingerprintDims>;

// splitmix64 (Steele, Lea, Flood 2014) of a counter.
uint64_t random_bits(uint64_t counter) {
  uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// The signs of dimension `from` for 64 dimensions from 64 * word on.
uint64_t sign_bits(int64_t from, int word) {
  return random_bits(static_cast<uint64_t>(from) * (kFingerprintDims / 64) + word);
}

void add_signed(int64_t from, double x, Projected& out) {
  for (int word = 0; word < kFingerprintDims / 64; ++word) {
    const uint64_t bits = sign_bits(from, word);
    for (int j = 0; j < 64; ++j) out[64 * word + j] += (bits >> j & 1) != 0 ? x : -x;
  }
}

// 1 / |x|; 0 where x is zero or no number.
template <typename Values>
double inverse_norm(const Values& values) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  return squares > 0 && std::isfinite(squares) ? 1 / std::sqrt(squares) : 0;
}

}  // namespace

int projection_sign(int64_t from, int to) {
  return (sign_bits(from, to / 64) >> to % 64 & 1) != 0 ? 1 : -1;
}

double entropy_weight(double nats) { return std::max(nats, 1e-6); }

void HiddenSum::add(std::span<const float> hidden, double weight) {
  for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * hidden[i];
}

Fingerprint make_fingerprint(std::span<const HiddenSum* const> parts) {
  Projected projected{};
  int64_t from = 0;
  for (const HiddenSum* part : parts) {
    const double scale = inverse_norm(part->sum());
    for (const double x : part->sum()) {
      if (scale != 0) add_signed(from, x * scale, projected);
      ++from;
    }
  }
  Fingerprint out{};
  const double scale = inverse_norm(projected);
  for (int i = 0; i < kFingerprintDims && scale != 0; ++i) {
    out[i] = f32_to_f16(static_cast<float>(projected[i] * scale));
  }
  return out;
}

}  // namespace tierkv
