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
  session.request = options.request;
  session.request.n_prompt = n_prompt;
  session.request.n_expected = options.prefix + options.tokens - n_prompt;
  session.request.kv = kv;
  if (kv.forced != ForcedLayout::kExact) {
    session.kv_ram_bytes = options.kv_ram_bytes;
    if (options.n_expected > 0) session.request.n_expected = options.n_expected;
  }
  session.activations = options.activations;
  session.attention = options.attention;
  return Session::create(engine, session);
}

// Without a comparison: one pass over the text.
Result<EvalResult> evaluate_exact(Engine& engine, std::span<const int32_t> text,
                                  const EvalOptions& options, const EvalProgress& progress) {
  TIERKV_ASSIGN_OR_RETURN(auto session, open_session(engine, options, options.request.kv,
                                                     options.prefix + options.tokens));
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

// What the exact cache says.
class ExactSide {
 public:
  virtual ~ExactSide() = default;
  // The logits [n, n_vocab] of predictions that follow text positions prefix + done and after.
  virtual Result<const float*> logits(int64_t done, int64_t n) = 0;
};

// A session of its own, read step by step.
class SecondSession : public ExactSide {
 public:
  SecondSession(std::unique_ptr<Session> session, std::span<const int32_t> text, int64_t n_vocab)
      : session_(std::move(session)),
        text_(text),
        n_vocab_(n_vocab),
        logits_(static_cast<size_t>(kStep * n_vocab)) {
    session_->hold_new_tokens();
  }
  Result<const float*> logits(int64_t done, int64_t n) override {
    TIERKV_RETURN_IF_ERROR(session_->score(
        text_.subspan(static_cast<size_t>(done), static_cast<size_t>(n)), kStep,
        [&](int64_t first, int64_t rows, const float* logits) {
          std::copy(logits, logits + rows * n_vocab_, logits_.begin() + first * n_vocab_);
        }));
    return logits_.data();
  }

 private:
  std::unique_ptr<Session> session_;
  std::span<const int32_t> text_;  // after the prefix
  int64_t n_vocab_;
  std::vector<float> logits_;
};

// What the session under test said while it was still exact.
class Remembered : public ExactSide {
 public:
  Remembered(std::vector<float> logits, int64_t n_vocab)
      : logits_(std::move(logits)), n_vocab_(n_vocab) {}
  Result<const float*> logits(int64_t done, int64_t) override {
    return logits_.data() + done * n_vocab_;
  }

 private:
  std::vector<float> logits_;
  int64_t n_vocab_;
};

// A session that has read the prefix and settled it, and what the exact cache says.
struct Comparison {
  std::unique_ptr<Session> test;
  std::unique_ptr<ExactSide> exact;
};

// One session can be read exactly, rewound and settled, if its cache forgets nothing and the exact
// logits fit in memory: that halves the time.
bool one_session_will_do(Engine& engine, const EvalOptions& options) {
  constexpr int64_t kMostLogitBytes = 256 << 20;
  return engine.budget().limit() == MemoryBudget::kUnlimited &&
         engine.kv_layout().window_page_bytes == 0 && options.prefix > 1 &&
         options.tokens * engine.spec().n_vocab * static_cast<int64_t>(sizeof(float)) <=
             kMostLogitBytes;
}

Result<Comparison> compare_in_one_session(Engine& engine, std::span<const int32_t> text,
                                          const EvalOptions& options,
                                          const PrefillProgress& progress) {
  const int64_t n_vocab = engine.spec().n_vocab;
  TIERKV_ASSIGN_OR_RETURN(auto session,
                          open_session(engine, options, options.request.kv, options.prefix));
  session->hold_new_tokens();
  TIERKV_RETURN_IF_ERROR(session->read(text.first(options.prefix), progress));
  std::vector<float> exact(static_cast<size_t>(options.tokens * n_vocab));
  for (int64_t done = 0; done + 1 < options.tokens; done += kStep) {
    const int64_t n = std::min(kStep, options.tokens - 1 - done);
    TIERKV_RETURN_IF_ERROR(session->score(text.subspan(options.prefix + done, n), kStep,
                                          [&](int64_t first, int64_t rows, const float* logits) {
                                            std::copy(logits, logits + rows * n_vocab,
                                                      exact.begin() + (done + first) * n_vocab);
                                          }));
  }
  // The prefix's last token is read once more: settling comes with reading.
  if (!session->rewind(options.prefix - 1)) return internal_error("the exact cache can't go back");
  TIERKV_RETURN_IF_ERROR(session->prefill(text.subspan(options.prefix - 1, 1)));
  return Comparison{std::move(session), std::make_unique<Remembered>(std::move(exact), n_vocab)};
}

Result<Comparison> compare_in_two_sessions(Engine& engine, std::span<const int32_t> text,
                                           const EvalOptions& options,
                                           const PrefillProgress& progress) {
  const auto prefix = text.first(options.prefix);
  TIERKV_ASSIGN_OR_RETURN(
      auto exact,
      open_session(engine, options, KvSpec{.forced = ForcedLayout::kExact}, options.prefix));
  TIERKV_ASSIGN_OR_RETURN(auto test,
                          open_session(engine, options, options.request.kv, options.prefix));
  TIERKV_RETURN_IF_ERROR(exact->prefill(prefix, progress));
  TIERKV_RETURN_IF_ERROR(test->prefill(prefix, progress));
  return Comparison{std::move(test),
                    std::make_unique<SecondSession>(std::move(exact), text.subspan(options.prefix),
                                                    engine.spec().n_vocab)};
}

// KLD of the last plan's codecs in the Tier-1 that `tiers` reports, by the accuracy model.
double foretold_kld(const EvalOptions& options, const Plan& plan, const TierReport& tiers) {
  const AccuracyModel& model = options.request.accuracy.model;
  const int64_t pages = tiers.n_compressed / kPageTokens;
  if (options.n_expected == 0) {  // the layout stays
    return predicted_kld(model, plan.codecs, kPageTokens, {kSinkPages, kSinkPages + pages},
                         options.prefix);
  }
  // What the answer has added was still exact when its first tokens were predicted.
  return codecs_kld(model, plan.codecs) *
         tier1_shares(model.reach, kPageTokens, pages, kSinkPages, plan.window_pages,
                      {options.prefix, options.prefix + options.tokens})
             .back();
}

Result<EvalResult> evaluate_against_exact(Engine& engine, std::span<const int32_t> text,
                                          const EvalOptions& options,
                                          const EvalProgress& progress) {
  const int64_t n_vocab = engine.spec().n_vocab, total = options.prefix + options.tokens;
  const auto prefill_progress = [&](int64_t done, int64_t) {
    if (progress) progress(done, total);
  };
  const auto compare =
      one_session_will_do(engine, options) ? compare_in_one_session : compare_in_two_sessions;
  TIERKV_ASSIGN_OR_RETURN(const Comparison sides, compare(engine, text, options, prefill_progress));
  Session& test = *sides.test;
  if (options.n_expected == 0) test.hold_new_tokens();
  TierReport tiers = test.tiers();
  const FlashStats flash_before = tiers.flash;
  // Selective reading is of single steps.
  const int64_t step = options.request.flash_read == FlashRead::kExact ? kStep : 1;

  Tally tally(engine.kernels());
  // The prefix's last logits were computed before settling: the same for both.
  tally.add(test.logits(), test.logits(), text[options.prefix]);
  for (int64_t done = 0; done + 1 < options.tokens;) {
    const int64_t n = std::min(step, options.tokens - 1 - done);
    TIERKV_ASSIGN_OR_RETURN(const float* exact, sides.exact->logits(done, n));
    TIERKV_RETURN_IF_ERROR(test.score(
        text.subspan(options.prefix + done, n), kStep,
        [&](int64_t first, int64_t rows, const float* logits) {
          for (int64_t i = 0; i < rows; ++i) {
            const size_t vocab = static_cast<size_t>(n_vocab);
            tally.add({logits + i * n_vocab, vocab}, {exact + (first + i) * n_vocab, vocab},
                      text[options.prefix + done + first + i + 1]);
          }
          if (options.on_logits) options.on_logits(options.prefix + done + first, rows, logits);
        }));
    done += n;
    if (progress) progress(options.prefix + done, total);
  }
  if (options.n_expected > 0) tiers = test.tiers();
  EvalResult result = tally.result();
  result.n_replans = test.n_replans();
  result.flash = test.tiers().flash - flash_before;
  result.n_exact = tiers.n_exact;
  result.n_compressed = tiers.n_compressed;
  result.n_offloaded = tiers.n_offloaded;
  if (tiers.bits_per_element > 0) {
    result.bits_per_element = tiers.bits_per_element;
    result.basis_bytes = tiers.basis_bytes;
    result.bits_per_element_with_basis =
        tiers.bits_per_element *
        (1 + static_cast<double>(tiers.basis_bytes) / static_cast<double>(tiers.tier1_page_bytes));
  }
  result.plan = test.plan();
  result.predicted_kld = foretold_kld(options, result.plan, tiers);
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
  const bool exact = options.request.kv.forced == ForcedLayout::kExact;
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
  constexpr size_t kBlock = 1024, kLanes = 8;
  const LogSumExp p_norm = log_sum_exp(p, kernels), q_norm = log_sum_exp(q, kernels);
  const float top = p[static_cast<size_t>(p_norm.argmax)];
  double total = 0, sums[kLanes] = {};  // of exp(p - top), and of that times (p - q)
  for (size_t begin = 0; begin < p.size(); begin += kBlock) {
    float weight[kBlock] = {}, change[kBlock] = {};
    const size_t n = std::min(kBlock, p.size() - begin);
    total += kernels.vector->exp_sum(&p[begin], top, static_cast<int64_t>(n), weight);
    for (size_t i = 0; i < n; ++i) change[i] = p[begin + i] - q[begin + i];
    for (size_t i = 0; i < kBlock; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        sums[lane] += static_cast<double>(weight[i + lane]) * change[i + lane];
      }
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum / total - (p_norm.value - q_norm.value);
}

}  // namespace tierkv
