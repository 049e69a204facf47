#include "runtime/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "base/process.h"
#include "runtime/disk_probe.h"

namespace tierkv {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The same text for every model with as many tokens.
std::vector<int32_t> random_tokens(int64_t n_vocab, int64_t n) {
  std::minstd_rand random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % n_vocab);
  return tokens;
}

SessionOptions session_options(const BenchTest& test, const BenchOptions& options) {
  SessionOptions session;
  session.request = options.request;
  session.request.n_prompt = test.n_depth + test.n_prompt;
  session.request.n_expected = std::max<int64_t>(test.n_gen, 1);
  session.max_chunk = options.max_chunk;
  session.trace = options.trace;
  return session;
}

// One test's session, and the text that is fed to it.
class Subject {
 public:
  Subject(Engine& engine, const BenchTest& test, const BenchOptions& options)
      : engine_(engine),
        test_(test),
        options_(options),
        tokens_(random_tokens(engine.spec().n_vocab, test.n_depth + test.n_measured())) {}

  // Brings the session to the test's depth: by rewinding where the cache allows it (exact, and its
  // window layers still have what is needed), else by reading the depth anew.
  Status prepare() {
    if (session_ != nullptr && session_->rewind(test_.n_depth)) return {};
    session_.reset();  // its memory is needed for the next
    TIERKV_ASSIGN_OR_RETURN(session_, Session::create(engine_, session_options(test_, options_)));
    if (test_.n_depth == 0) return {};
    const std::span<const int32_t> depth = std::span(tokens_).first(test_.n_depth);
    return test_.n_gen > 0 ? session_->prefill(depth, {}, options_.cancel)
                           : session_->read(depth, {}, options_.cancel);
  }

  // The measured part: its seconds.
  Result<double> measure() {
    const std::span<const int32_t> text = std::span(tokens_).subspan(test_.n_depth);
    const double settling = session_->timings().settle_seconds, start = now();
    TIERKV_RETURN_IF_ERROR(test_.n_gen > 0 ? generate(text)
                                           : session_->read(text, {}, options_.cancel));
    // A session without depth settles at its first token, which is no part of generating it.
    return now() - start - (session_->timings().settle_seconds - settling);
  }

  TierReport tiers() const { return session_->tiers(); }
  double kv_bytes() const {
    return kv_bytes_per_token(engine_.kv_layout(), session_->tiers(), session_->length());
  }

 private:
  // What greedy decoding costs. The tokens are given, so that every run does the same work.
  Status generate(std::span<const int32_t> text) {
    for (const int32_t& token : text) {
      TIERKV_RETURN_IF_ERROR(session_->prefill({&token, 1}, {}, options_.cancel));
      const std::span<const float> logits = session_->logits();
      engine_.kernels().vector->argmax(logits.data(), static_cast<int64_t>(logits.size()));
    }
    return {};
  }

  Engine& engine_;
  const BenchTest test_;
  const BenchOptions& options_;
  const std::vector<int32_t> tokens_;
  std::unique_ptr<Session> session_;
};

// The disk's rate around each repetition, for tests that generate over flash.
class DiskRoof {
 public:
  // Before and after a repetition. Where there is no RAM or disk left for it there is no roof.
  double measure(Engine& engine, const BenchOptions& options) {
    if (probe_ == nullptr && !failed_) {
      Result<std::unique_ptr<DiskProbe>> probe = DiskProbe::create(engine, options.request);
      if (probe.ok()) probe_ = std::move(*probe);
    }
    const Result<double> rate = probe_ != nullptr ? probe_->measure() : io_error("no probe");
    failed_ |= !rate.ok();
    return rate.ok() ? *rate : 0;
  }

 private:
  std::unique_ptr<DiskProbe> probe_;
  bool failed_ = false;
};

void add_flash(BenchResult& result, const FlashStats& flash, double seconds, double disk_rate,
               int repetitions) {
  result.flash += flash;
  const double rate = static_cast<double>(flash.bytes_read) / seconds;
  result.flash_rate += rate / repetitions;
  result.disk_rate += disk_rate / repetitions;
  if (disk_rate > 0) result.disk_share += rate / disk_rate / repetitions;
}

Status warm_up(Engine& engine, const BenchTest& test, const BenchOptions& options) {
  Subject subject(engine, {test.n_prompt, std::min<int64_t>(test.n_gen, 1), 0}, options);
  TIERKV_RETURN_IF_ERROR(subject.prepare());
  return subject.measure().status();
}

// Products of one token with a layer's matrices: those that make its queries, keys and values, and
// the others.
struct LayerProducts {
  double qkv, rest;

  LayerProducts(const ModelSpec& spec, const LayerSpec& layer) {
    const KvLayerShape& a = layer.attention;
    const double n_embd = static_cast<double>(spec.n_embd);
    const double q = static_cast<double>(a.n_heads) * a.head_dim;
    const double kv = static_cast<double>(a.n_kv_heads) * a.head_dim;
    qkv = n_embd * (q + 2 * kv);
    rest = n_embd * (q + 3 * static_cast<double>(layer.n_ff));
  }
};

// Keys that the queries at [begin, end) see, themselves included.
double keys_seen(int64_t begin, int64_t end, int64_t window) {
  double keys = 0;
  for (int64_t position = begin; position < end; ++position) {
    keys += static_cast<double>(window == 0 ? position + 1 : std::min(position + 1, window));
  }
  return keys;
}

uint64_t packed_bytes(const PackedMatrix& matrix) {
  return packed_matrix_bytes(matrix.type, matrix.n_rows, matrix.n_cols);
}

}  // namespace

std::string BenchTest::name() const {
  std::string text = n_gen > 0 ? "tg" + std::to_string(n_gen) : "pp" + std::to_string(n_prompt);
  if (n_depth > 0) text += " @ d" + std::to_string(n_depth);
  return text;
}

Status check_bench(Engine& engine, const BenchTest& test, const BenchOptions& options) {
  const int64_t needed = test.n_depth + test.n_measured();
  if (needed > engine.spec().n_context) {
    return invalid_argument(
        format("%s needs %lld tokens of context, but the model has %lld; give less of -p, -n or -d",
               test.name().c_str(), static_cast<long long>(needed),
               static_cast<long long>(engine.spec().n_context)));
  }
  return Session::check_fits(engine, session_options(test, options)).with_context(test.name());
}

Result<BenchResult> run_bench(Engine& engine, const BenchTest& test, const BenchOptions& options) {
  TIERKV_RETURN_IF_ERROR(check_bench(engine, test, options));
  reset_peak_resident_bytes();
  if (options.warmup) TIERKV_RETURN_IF_ERROR(warm_up(engine, test, options));
  BenchResult result;
  Subject subject(engine, test, options);
  DiskRoof disk;
  for (int i = 0; i < options.repetitions; ++i) {
    TIERKV_RETURN_IF_ERROR(subject.prepare());
    result.tiers = subject.tiers();
    const double kv_before = subject.kv_bytes();
    const bool over_flash = test.n_gen > 0 && result.tiers.n_offloaded > 0 && options.disk_roof;
    const double disk_before = over_flash ? disk.measure(engine, options) : 0;
    TIERKV_ASSIGN_OR_RETURN(const double seconds, subject.measure());
    const FlashStats flash = subject.tiers().flash - result.tiers.flash;
    const double disk_after = over_flash ? disk.measure(engine, options) : 0;
    add_flash(result, flash, seconds, (disk_before + disk_after) / 2, options.repetitions);
    result.samples_ns.push_back(std::llround(seconds * 1e9));
    const double kv_mean = (kv_before + subject.kv_bytes()) / 2;
    result.read_bytes = static_cast<double>(test.n_gen) *
                        (static_cast<double>(weight_bytes_per_token(engine.weights())) + kv_mean);
    if (options.progress) options.progress(i + 1);
  }
  if (test.n_prompt > 0) {
    result.operations = prompt_operations(engine.spec(), test.n_depth, test.n_prompt);
  }
  result.peak_rss_bytes = peak_resident_bytes();
  return result;
}

MeanAndDeviation mean_and_deviation(const std::vector<double>& values) {
  MeanAndDeviation result;
  const double n = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / n;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / (n - 1));
  return result;
}

double prompt_operations(const ModelSpec& spec, int64_t n_depth, int64_t n_tokens) {
  const int64_t end = n_depth + n_tokens;
  double products = static_cast<double>(spec.n_embd) * static_cast<double>(spec.n_vocab);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const KvLayerShape& a = spec.layers[i].attention;
    const LayerProducts each(spec, spec.layers[i]);
    const int64_t n_outputs = i + 1 < spec.layers.size() ? n_tokens : 1;
    products += static_cast<double>(n_tokens) * each.qkv;
    products += static_cast<double>(n_outputs) * each.rest;
    // q k, and the weighted sum of v.
    products += 2.0 * a.head_dim * a.n_heads * keys_seen(end - n_outputs, end, a.window);
  }
  return 2 * products;
}

uint64_t weight_bytes_per_token(const Weights& weights) {
  uint64_t bytes = packed_bytes(weights.output);
  for (const LayerWeights& w : weights.layers) {
    for (const PackedMatrix* matrix :
         {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output, &w.ffn_gate, &w.ffn_up, &w.ffn_down}) {
      bytes += packed_bytes(*matrix);
    }
  }
  return bytes;
}

double kv_bytes_per_token(const KvLayout& layout, const TierReport& tiers, int64_t length) {
  const double full_token = static_cast<double>(layout.full_page_bytes) / kPageTokens;
  double bytes =
      full_token * (static_cast<double>(tiers.n_exact + tiers.n_offloaded) +
                    static_cast<double>(tiers.n_compressed) * tiers.bits_per_element / 16);
  for (int layer = 0; layer < static_cast<int>(layout.shapes.size()); ++layer) {
    if (layout.is_full(layer)) continue;
    const int64_t seen = std::min(length, layout.shapes[layer].window);
    bytes += static_cast<double>(layout.layer_page_bytes(layer)) / kPageTokens *
             static_cast<double>(seen);
  }
  return bytes;
}

}  // namespace tierkv
