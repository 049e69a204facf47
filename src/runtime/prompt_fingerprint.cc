#include "runtime/prompt_fingerprint.h"

#include <algorithm>
#include <cmath>

#include "base/carve.h"

namespace tierkv {
namespace {

constexpr int64_t kLeastStride = 32;
constexpr int64_t kMostTaken = 256;
constexpr int64_t kCostShare = 100;  // the layers' products for each of the output's
constexpr int64_t kRows = 16;
constexpr int64_t kLogits = 1 << 16;  // of all rows, in one slice

int64_t products_of_layers(const ModelSpec& spec) {
  int64_t n = 0;
  for (const LayerSpec& layer : spec.layers) {
    const KvLayerShape& a = layer.attention;
    n += spec.n_embd * (2 * (a.n_heads + a.n_kv_heads) * a.head_dim + 3 * layer.n_ff);
  }
  return n;
}

struct Scratch {
  float* rows;
  float* logits;
  uint64_t total_bytes = 0;

  Scratch(std::byte* base, const ModelSpec& spec, FingerprintRule rule) {
    const bool entropy = rule == FingerprintRule::kEntropy;
    Carver carver(base);
    carver.take(rows, (entropy ? kRows : 1) * spec.n_embd);
    carver.take(logits, entropy ? kLogits : 0);
    total_bytes = carver.bytes();
  }
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t fingerprint_stride(const ModelSpec& spec, int64_t n_tokens) {
  const int64_t by_cost =
      divide_up(kCostShare * spec.n_embd * spec.n_vocab, products_of_layers(spec));
  return std::max({kLeastStride, divide_up(n_tokens, kMostTaken), by_cost});
}

// With blocks of exponentials that stay in the first-level cache, and sixteen sums side by side.
void EntropySum::add(std::span<const float> logits, const VectorKernels& kernels) {
  constexpr int64_t kBlock = 512, kLanes = 16;
  const int64_t n = static_cast<int64_t>(logits.size());
  const float max = kernels.max(logits.data(), n);
  double sum = 0, weighted = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    const float* x = logits.data() + begin;
    float e[kBlock], lanes[kLanes] = {};
    sum += kernels.exp_sum(x, max, count, e);
    for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += e[i + lane] * (x[i + lane] - max);
      }
    }
    for (int64_t i = count / kLanes * kLanes; i < count; ++i) weighted += e[i] * (x[i] - max);
    for (const float lane : lanes) weighted += lane;
  }
  if (sum_ == 0 || max > max_) {  // what there was moves to the new maximum
    const double by = sum_ == 0 ? 0 : max_ - static_cast<double>(max);
    weighted_ = std::exp(by) * (weighted_ + sum_ * by);
    sum_ *= std::exp(by);
    max_ = max;
  }
  const double by = static_cast<double>(max) - max_;
  weighted_ += std::exp(by) * (weighted + sum * by);
  sum_ += std::exp(by) * sum;
}

// H = log Z - E[x], both relative to the maximum.
double EntropySum::nats() const { return sum_ > 0 ? std::log(sum_) - weighted_ / sum_ : 0; }

uint64_t PromptFingerprint::scratch_bytes(const ModelSpec& spec, FingerprintRule rule) {
  return buffer_footprint(Scratch(nullptr, spec, rule).total_bytes);
}

PromptFingerprint::PromptFingerprint(FingerprintRule rule, const ModelSpec& spec, Decoder& decoder,
                                     const Kernels& kernels, ThreadPool& pool)
    : rule_(rule),
      spec_(spec),
      decoder_(decoder),
      kernels_(kernels),
      pool_(pool),
      sum_(spec.n_embd),
      last_(spec.n_embd) {}

Result<std::unique_ptr<PromptFingerprint>> PromptFingerprint::create(
    FingerprintRule rule, const ModelSpec& spec, Decoder& decoder, const Kernels& kernels,
    ThreadPool& pool, MemoryBudget& budget) {
  std::unique_ptr<PromptFingerprint> out(new PromptFingerprint(rule, spec, decoder, kernels, pool));
  TIERKV_ASSIGN_OR_RETURN(out->memory_, Buffer::allocate(budget, MemoryKind::kScratch,
                                                         Scratch(nullptr, spec, rule).total_bytes));
  const Scratch scratch(out->memory_.data(), spec, rule);
  out->rows_ = scratch.rows;
  out->logits_ = scratch.logits;
  return out;
}

std::span<const float> PromptFingerprint::row(int64_t index) const {
  return {rows_ + index * spec_.n_embd, static_cast<size_t>(spec_.n_embd)};
}

void PromptFingerprint::begin(int64_t n_tokens) {
  n_tokens_ = n_tokens;
  stride_ = fingerprint_stride(spec_, n_tokens);
  done_ = n_rows_ = 0;
  sum_ = last_ = HiddenSum(spec_.n_embd);
}

// Of the next n tokens, those that the fingerprint takes, if any: each stride_-th before the last
// token, or the last kTailTokens.
ChunkTokens PromptFingerprint::taken(int64_t n) const {
  const int64_t rest = n_tokens_ - done_;
  if (rule_ == FingerprintRule::kEntropy) return {(rest - 1) % stride_, stride_};
  return {std::clamp<int64_t>(rest - kTailTokens, 0, n), 1};
}

ChunkTokens PromptFingerprint::wanted(int64_t n) const {
  const ChunkTokens tokens = taken(n);
  return tokens.count(n) > 0 ? tokens : ChunkTokens::last_of(n);
}

void PromptFingerprint::take(int64_t n, float* last_logits) {
  const int64_t n_taken = taken(n).count(n);
  done_ += n;
  const bool whole = done_ == n_tokens_;
  for (int64_t i = 0; i < n_taken; ++i) {
    const bool last = whole && i + 1 == n_taken;
    decoder_.hidden(i, 1, rows_ + n_rows_ * spec_.n_embd);
    if (rule_ == FingerprintRule::kTail) {
      sum_.add(row(0), 1);
      if (last) last_.add(row(0), 1);
    } else if (++n_rows_ == kRows && !last) {
      flush(nullptr);
    }
  }
  if (!whole) return;
  if (rule_ == FingerprintRule::kEntropy) return flush(last_logits);
  decoder_.logits(n_taken - 1, 1, last_logits);
}

Fingerprint PromptFingerprint::finish() const {
  const HiddenSum* const parts[] = {&sum_, &last_};
  return make_fingerprint({parts, rule_ == FingerprintRule::kTail ? size_t{2} : size_t{1}});
}

void PromptFingerprint::flush(float* last_logits) {
  const int64_t slice = kLogits / n_rows_ / kPanelRows * kPanelRows;
  EntropySum entropy[kRows];
  for (int64_t first = 0; first < spec_.n_vocab; first += slice) {
    const int64_t n = std::min(slice, spec_.n_vocab - first);
    decoder_.logits_of(rows_, n_rows_, first, n, logits_);
    pool_.parallel_for(n_rows_, [&](int64_t i, int) {
      entropy[i].add({logits_ + i * n, static_cast<size_t>(n)}, *kernels_.vector);
    });
    if (last_logits != nullptr) {
      std::copy_n(logits_ + (n_rows_ - 1) * n, n, last_logits + first);
    }
  }
  for (int64_t i = 0; i < n_rows_; ++i) sum_.add(row(i), entropy_weight(entropy[i].nats()));
  n_rows_ = 0;
}

}  // namespace tierkv
