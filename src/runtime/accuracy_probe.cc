#include "runtime/accuracy_probe.h"

#include <algorithm>

#include "runtime/evaluate.h"
#include "runtime/kv_request.h"

namespace tierkv {
namespace {

constexpr uint64_t kLogitBytes = 64 << 20;  // of logits made at once, about

}  // namespace

Result<std::unique_ptr<AccuracyProbe>> AccuracyProbe::create(Engine& engine, const Shape& shape) {
  if (!engine.loaded()) return internal_error("the engine's weights are not loaded");
  if (shape.tokens < 1 || shape.tokens > kMostTokens || shape.prefix % kPageTokens != 0 ||
      shape.prefix < (kSinkPages + kWindowPages + 1) * kPageTokens) {
    return invalid_argument(
        format("calibration needs a prefix of whole pages of %d tokens, at least %lld, and 1 to "
               "%lld tokens to compare",
               kPageTokens, static_cast<long long>((kSinkPages + kWindowPages + 1) * kPageTokens),
               static_cast<long long>(kMostTokens)));
  }
  if (shape.prefix + shape.tokens > engine.spec().n_context) {
    return invalid_argument(
        format("calibration with %lld tokens does not fit in the model's context of %lld",
               static_cast<long long>(shape.prefix + shape.tokens),
               static_cast<long long>(engine.spec().n_context)));
  }
  std::unique_ptr<AccuracyProbe> probe(new AccuracyProbe(engine, shape));
  TIERKV_RETURN_IF_ERROR(probe->allocate());
  return probe;
}

Status AccuracyProbe::allocate() {
  const ModelSpec& spec = engine_.spec();
  MemoryBudget& budget = engine_.budget();
  TIERKV_ASSIGN_OR_RETURN(
      decoder_, Decoder::create(spec, engine_.weights(), engine_.kernels(), engine_.pool(), budget,
                                kMostTokens, Activations::kFloat32));
  TIERKV_ASSIGN_OR_RETURN(
      cache_, TieredCache::create(engine_.kv_layout(), budget, engine_.kernels(), engine_.pool(),
                                  kMostTokens, {}, AttentionMath::kFloat32));
  trial_ = std::make_unique<CodecTrial>(*cache_, budget);
  const auto floats = [&](int64_t n) {
    return Buffer::allocate(budget, MemoryKind::kScratch, n * sizeof(float));
  };
  const int64_t row_bytes = spec.n_vocab * static_cast<int64_t>(sizeof(float));
  batch_ = std::clamp<int64_t>(static_cast<int64_t>(kLogitBytes) / row_bytes, 1, shape_.tokens);
  TIERKV_ASSIGN_OR_RETURN(inputs_, floats(spec.n_layers * shape_.tokens * spec.n_embd));
  TIERKV_ASSIGN_OR_RETURN(reference_, floats(shape_.tokens * spec.n_vocab));
  TIERKV_ASSIGN_OR_RETURN(logits_, floats(batch_ * spec.n_vocab));
  return {};
}

Status AccuracyProbe::read(std::span<const int32_t> text, const Progress& progress,
                           const std::atomic<bool>* cancel) {
  const int64_t total = shape_.prefix + shape_.tokens;
  if (static_cast<int64_t>(text.size()) < total) {
    return invalid_argument(
        format("the text has %zu tokens, calibration needs %lld; give a longer "
               "one, or a smaller --prefix",
               text.size(), static_cast<long long>(total)));
  }
  if (!cache_->rewind(0)) return internal_error("the calibration's cache can't be read anew");
  for (int64_t done = 0; done < shape_.prefix;) {
    const int64_t n = std::min(kMostTokens, shape_.prefix - done);
    TIERKV_RETURN_IF_ERROR(
        decoder_->forward(text.subspan(done, n), *cache_, ChunkTokens::last_of(n), cancel));
    done += n;
    if (progress) progress(done, total);
  }
  TIERKV_RETURN_IF_ERROR(read_chunk(text.subspan(shape_.prefix, shape_.tokens), cancel));
  if (progress) progress(total, total);
  return {};
}

Status AccuracyProbe::read_chunk(std::span<const int32_t> tokens, const std::atomic<bool>* cancel) {
  const int64_t n = shape_.tokens * engine_.spec().n_embd;
  const auto keep = [&](int layer, const float* x) {
    std::copy(x, x + n, inputs_.as<float>() + layer * n);
  };
  TIERKV_RETURN_IF_ERROR(decoder_->forward(tokens, *cache_, {}, cancel, keep));
  for (int64_t row = 0; row < shape_.tokens; row += batch_) {
    decoder_->logits(row, std::min(batch_, shape_.tokens - row),
                     reference_.as<float>() + row * engine_.spec().n_vocab);
  }
  return {};
}

Result<double> AccuracyProbe::measure(std::span<const TrialHead> heads, int64_t page_begin,
                                      int64_t page_end, const std::atomic<bool>* cancel) {
  if (page_begin < 0 || page_end > shape_.prefix / kPageTokens) {
    return internal_error("a trial goes beyond the prefix");
  }
  if (!cache_->rewind(shape_.prefix)) {
    return internal_error("the calibration's cache can't be rewound");
  }
  int first_layer = static_cast<int>(engine_.spec().n_layers);
  for (const TrialHead& head : heads) first_layer = std::min(first_layer, head.layer);
  TIERKV_RETURN_IF_ERROR(trial_->replace(heads, page_begin, page_end));
  const int64_t n = shape_.tokens * engine_.spec().n_embd;
  Status status;
  if (first_layer < engine_.spec().n_layers) {
    status = decoder_->forward_from(first_layer, {layer_input(first_layer), static_cast<size_t>(n)},
                                    *cache_, cancel);
  }
  trial_->restore();
  if (!status.ok()) return status;
  return heads.empty() ? 0.0 : mean_kld();
}

double AccuracyProbe::mean_kld() {
  const int64_t n_vocab = engine_.spec().n_vocab;
  std::vector<double> kld(static_cast<size_t>(shape_.tokens));
  for (int64_t row = 0; row < shape_.tokens; row += batch_) {
    const int64_t n = std::min(batch_, shape_.tokens - row);
    decoder_->logits(row, n, logits_.as<float>());
    engine_.pool().parallel_for(n, [&](int64_t i, int) {
      const size_t vocab = static_cast<size_t>(n_vocab);
      kld[row + i] = kl_divergence({reference_.as<float>() + (row + i) * n_vocab, vocab},
                                   {logits_.as<float>() + i * n_vocab, vocab}, engine_.kernels());
    });
  }
  double sum = 0;
  for (const double value : kld) sum += value;
  return sum / static_cast<double>(shape_.tokens);
}

int64_t AccuracyProbe::first_page() const { return kSinkPages; }
int64_t AccuracyProbe::last_page() const { return shape_.prefix / kPageTokens - kWindowPages; }

}  // namespace tierkv
