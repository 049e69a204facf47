// How much a cache layout costs in accuracy: perplexity of a text, and the KL divergence of its
// next- token distributions from those of the exact cache. The setting of docs/decisions.md, "how
// accuracy is measured": a prefix is prefilled exactly and settled into its tiers, then the rest of
// the text is read token by token (teacher forcing), each new token kept exact.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "kv/tiered_attention.h"
#include "model/matmul_runner.h"
#include "runtime/engine.h"
#include "runtime/kv_request.h"

namespace tierkv {

struct EvalOptions {
  int64_t prefix = 3072;
  int64_t tokens = 512;
  KvRequest request;  // how KV is laid out under test; its numbers of tokens are set here
  uint64_t kv_ram_bytes = MemoryBudget::kUnlimited;  // of the layout under test
  // 0: the prefix's layout stays and new tokens are kept exact. Else new tokens move as in a run
  // that expects an answer of so many.
  int64_t n_expected = 0;
  // kFloat32 isolates what the layout does: with kInt8, any change at all shows up as the rounding
  // noise of two runs whose activations round differently.
  Activations activations = Activations::kFloat32;
  AttentionMath attention = AttentionMath::kFloat32;  // of prefill
  // Called with the logits under test, [n, n_vocab], of predictions for text positions first.. .
  std::function<void(int64_t first, int64_t n, const float* logits)> on_logits;
};

// Over predictions of tokens [max(prefix, 1), prefix + tokens).
struct EvalResult {
  int64_t n = 0;
  double ppl = 0;        // under the layout
  double ppl_exact = 0;  // under the exact cache; equals ppl when that is the layout
  double kld = 0, kld_p99 = 0, kld_max = 0;  // nats, of exact from layout
  double top1 = 1;                           // share of positions with the same most likely token
  double bits_per_element = 16;              // of Tier-1
  uint64_t basis_bytes = 0;                  // of low-rank layers, beside that
  double bits_per_element_with_basis = 16;
  int64_t n_exact = 0, n_compressed = 0, n_offloaded = 0;  // tokens after settling, or at the end
  double predicted_kld = 0;  // of this very layout and these predictions, by the accuracy model
  int64_t n_replans = 0;
  FlashStats flash;  // while the part under test was read
  Plan plan;         // the last; empty when the layout is exact
};

using EvalProgress = std::function<void(int64_t done, int64_t total)>;

// `engine` loaded. Layout "exact" (KvSpec{} forced exact) skips the comparison with itself.
Result<EvalResult> evaluate(Engine& engine, std::span<const int32_t> text,
                            const EvalOptions& options, const EvalProgress& progress = {});

// log(sum(exp(logits))) and the largest logit's index, over n values.
struct LogSumExp {
  double value = 0;
  int64_t argmax = 0;
};
LogSumExp log_sum_exp(std::span<const float> logits, const Kernels& kernels);

// KL divergence of `q` from `p`, both given as logits: sum p (log p - log q), in nats.
double kl_divergence(std::span<const float> p, std::span<const float> q, const Kernels& kernels);

}  // namespace tierkv
