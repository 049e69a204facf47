// Measures what codecs cost on a text: a prefix is read exactly; for each trial, some KV heads of
// it are replaced by what a codec makes of them, a chunk that follows is read again, and its
// next-token distributions are compared with those of the exact prefix. Layers below the first that
// a trial changes are not run again: the chunk's residual stream at every layer is kept. Everything
// in float32, since int8 activations would bury what a good codec costs (docs/decisions.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "kv/codec_trial.h"
#include "kv/tiered_cache.h"
#include "model/decoder.h"
#include "runtime/engine.h"

namespace tierkv {

class AccuracyProbe {
 public:
  struct Shape {
    int64_t prefix = 0;  // tokens: whole pages
    int64_t tokens = 0;  // of the chunk; at most kMostTokens
  };
  static constexpr int64_t kMostTokens = 512;

  // `engine` loaded; it must outlive the probe.
  static Result<std::unique_ptr<AccuracyProbe>> create(Engine& engine, const Shape& shape);

  using Progress = std::function<void(int64_t done, int64_t total)>;
  // Reads the prefix and the chunk from the text's beginning, which must have as many tokens.
  Status read(std::span<const int32_t> text, const Progress& progress = {},
              const std::atomic<bool>* cancel = nullptr);

  // Mean KLD, in nats, of the chunk's distributions after the trial from the exact ones. The cache
  // is as it was afterwards.
  Result<double> measure(std::span<const TrialHead> heads, int64_t page_begin, int64_t page_end,
                         const std::atomic<bool>* cancel = nullptr);

  // Pages of the prefix that Tier-1 would hold at most: all but sinks and window.
  int64_t first_page() const;
  int64_t last_page() const;

 private:
  AccuracyProbe(Engine& engine, const Shape& shape) : engine_(engine), shape_(shape) {}
  Status allocate();
  Status read_chunk(std::span<const int32_t> tokens, const std::atomic<bool>* cancel);
  double mean_kld();
  const float* layer_input(int layer) const {
    return inputs_.as<float>() + layer * shape_.tokens * engine_.spec().n_embd;
  }

  Engine& engine_;
  const Shape shape_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<TieredCache> cache_;
  std::unique_ptr<CodecTrial> trial_;
  Buffer inputs_;     // [n_layers, tokens, n_embd]: the chunk's residual stream
  Buffer reference_;  // [tokens, n_vocab]: the exact logits
  Buffer logits_;     // [batch, n_vocab]
  int64_t batch_ = 0;
};

}  // namespace tierkv
