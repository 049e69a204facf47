#include "runtime/evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/session.h"

namespace tierkv {
namespace {

constexpr int64_t kStep = 16;  // tokens read at once after the prefix: the decode kernels' batch

// Accumulates one prediction after another.
class Tally {
 public:
  explicit Tally(const Kernels& kernels) : kernels_(kernels) {}

  void add(std::span<const float> test, std::span<const float> exact, int32_t target) {
    const LogSumExp t = log_sum_exp(test, kernels_);
    nll_ += t.value - test[target];
    ++n_;
    if (exact.empty()) return;
    const LogSumExp e = log_sum_exp(exact, kernels_);
    nll_exact_ += e.value - exact[target];
    same_top_ += t.argmax == e.argmax;
    klds_.push_back(kl_divergence(exact, test, kernels_));
  }

  EvalResult result() {
    EvalResult r;
    r.n = n_;
    const double n = static_cast<double>(n_);
    r.ppl = r.ppl_exact = std::exp(nll_ / n);
    if (klds_.empty()) return r;
    r.ppl_exact = std::exp(nll_exact_ / n);
    r.top1 = static_cast<double>(same_top_) / n;
    for (const double kld : klds_) r.kld += kld / n;
    std::sort(klds_.begin(), klds_.end());
    r.kld_p99 = klds_[std::min(klds_.size() - 1, klds_.size() * 99 / 100)];
    r.kld_max = klds_.back();
    return r;
  }

 private:
  const Kernels& kernels_;
  int64_t n_ = 0, same_top_ = 0;
  double nll_ = 0, nll_exact_ = 0;
  std::vector<double> klds_;
};

Result<std::unique_ptr<Session>> open_session(Engine& engine, const EvalOptions& options,
                                              const KvSpec& kv, int64_t n_prompt) {
  SessionOptions session;
  session.request.n_prompt = n_prompt;
  session.request.n_expected = options.prefix + options.tokens - n_prompt;
  session.request.kv = kv;
  if (kv.forced != ForcedLayout::kExact) {
    session.kv_ram_bytes = options.kv_ram_bytes;
    if (options.n_expected > 0) session.request.n_expected = options.n_expected;
  }
  session.request.kld_budget = options.kld_budget;
  session.request.costs = options.costs;
  session.request.flash_directory = options.flash_directory;
  session.activations = options.activations;
  session.attention = options.attention;
  return Session::create(engine, session);
}

// Without a comparison: one pass over the text.
Result<EvalResult> evaluate_exact(Engine& engine, std::span<const int32_t> text,
                                  const EvalOptions& options, const EvalProgress& progress) {
  TIERKV_ASSIGN_OR_RETURN(
      auto session, open_session(engine, options, options.kv, options.prefix + options.tokens));
  Tally tally(engine.kernels());
  const int64_t n_vocab = engine.spec().n_vocab;
  const int64_t last = options.prefix + options.tokens - 1;
  const auto sink = [&](int64_t first, int64_t n, const float* logits) {
    for (int64_t i = 0; i < n; ++i) {
      if (first + i + 1 < options.prefix || first + i >= last) continue;
      tally.add({logits + i * n_vocab, static_cast<size_t>(n_vocab)}, {}, text[first + i + 1]);
    }
    if (options.on_logits) options.on_logits(first, n, logits);
    if (progress) progress(first + n, options.prefix + options.tokens);
  };
  TIERKV_RETURN_IF_ERROR(session->score(text.first(options.prefix + options.tokens), 512, sink));
  EvalResult result = tally.result();
  result.n_exact = session->tiers().n_exact;
  return result;
}

Result<EvalResult> evaluate_against_exact(Engine& engine, std::span<const int32_t> text,
                                          const EvalOptions& options,
                                          const EvalProgress& progress) {
  const int64_t n_vocab = engine.spec().n_vocab, total = 2 * options.prefix + options.tokens;
  TIERKV_ASSIGN_OR_RETURN(
      auto exact,
      open_session(engine, options, KvSpec{.forced = ForcedLayout::kExact}, options.prefix));
  TIERKV_ASSIGN_OR_RETURN(auto test, open_session(engine, options, options.kv, options.prefix));
  int64_t offset = 0;
  const auto prefill_progress = [&](int64_t done, int64_t) {
    if (progress) progress(offset + done, total);
  };
  TIERKV_RETURN_IF_ERROR(exact->prefill(text.first(options.prefix), prefill_progress));
  offset = options.prefix;
  TIERKV_RETURN_IF_ERROR(test->prefill(text.first(options.prefix), prefill_progress));
  exact->hold_new_tokens();
  if (options.n_expected == 0) test->hold_new_tokens();
  TierReport tiers = test->tiers();

  Tally tally(engine.kernels());
  // The prefix's last logits were computed before settling: the same for both.
  tally.add(test->logits(), exact->logits(), text[options.prefix]);
  std::vector<float> exact_logits(static_cast<size_t>(kStep * n_vocab));
  for (int64_t done = 0; done + 1 < options.tokens;) {
    const int64_t n = std::min(kStep, options.tokens - 1 - done);
    const std::span<const int32_t> step = text.subspan(options.prefix + done, n);
    TIERKV_RETURN_IF_ERROR(
        exact->score(step, kStep, [&](int64_t first, int64_t rows, const float* logits) {
          std::copy(logits, logits + rows * n_vocab, exact_logits.begin() + first * n_vocab);
        }));
    TIERKV_RETURN_IF_ERROR(
        test->score(step, kStep, [&](int64_t first, int64_t rows, const float* logits) {
          for (int64_t i = 0; i < rows; ++i) {
            const size_t vocab = static_cast<size_t>(n_vocab);
            tally.add({logits + i * n_vocab, vocab},
                      {exact_logits.data() + (first + i) * n_vocab, vocab},
                      text[options.prefix + done + first + i + 1]);
          }
          if (options.on_logits) options.on_logits(options.prefix + done + first, rows, logits);
        }));
    done += n;
    if (progress) progress(2 * options.prefix + done, total);
  }
  if (options.n_expected > 0) tiers = test->tiers();
  EvalResult result = tally.result();
  result.n_replans = test->n_replans();
  result.predicted_kld = test->plan().kld;
  result.predicted_kv_bytes = test->plan().ram_bytes;
  result.n_exact = tiers.n_exact;
  result.n_compressed = tiers.n_compressed;
  result.n_offloaded = tiers.n_offloaded;
  if (tiers.bits_per_element > 0) result.bits_per_element = tiers.bits_per_element;
  return result;
}

}  // namespace

Result<EvalResult> evaluate(Engine& engine, std::span<const int32_t> text,
                            const EvalOptions& options, const EvalProgress& progress) {
  if (options.prefix < 0 || options.tokens < 2) {
    return invalid_argument("the prefix must be 0 or more tokens, the evaluated part 2 or more");
  }
  const int64_t needed = options.prefix + options.tokens;
  if (static_cast<int64_t>(text.size()) < needed) {
    return invalid_argument(
        format("the text has %zu tokens, but prefix and evaluated part need %lld", text.size(),
               static_cast<long long>(needed)));
  }
  const bool exact = options.kv.forced == ForcedLayout::kExact;
  if (!exact && options.prefix == 0) {
    return invalid_argument("a layout other than exact needs a prefix to lay out");
  }
  return exact ? evaluate_exact(engine, text, options, progress)
               : evaluate_against_exact(engine, text, options, progress);
}

LogSumExp log_sum_exp(std::span<const float> logits, const Kernels& kernels) {
  const int64_t n = static_cast<int64_t>(logits.size());
  const int64_t top = kernels.vector->argmax(logits.data(), n);
  const float max = logits[top];
  return {max + std::log(kernels.vector->exp_sum(logits.data(), max, n, nullptr)), top};
}

double kl_divergence(std::span<const float> p, std::span<const float> q, const Kernels& kernels) {
  const double p_norm = log_sum_exp(p, kernels).value, q_norm = log_sum_exp(q, kernels).value;
  double kld = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_norm;
    if (log_p > -40) kld += std::exp(log_p) * (log_p - (q[i] - q_norm));
  }
  return kld;
}

}  // namespace tierkv
