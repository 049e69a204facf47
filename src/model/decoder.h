// The forward pass of every decoder-only architecture, driven by a ModelSpec. Names follow the
// papers: RMSNorm, rotary embedding, grouped-query attention, gated feed-forward. It works on
// chunks of tokens; where their keys and values are kept is the KvCache's matter.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "model/matmul_runner.h"
#include "model/model_spec.h"
#include "model/rope_table.h"
#include "model/weights.h"

namespace tierkv {

class Decoder {
 public:
  static uint64_t scratch_bytes(const ModelSpec& spec, int64_t max_chunk, int n_threads,
                                Activations activations = Activations::kInt8);

  // References must outlive the decoder.
  static Result<std::unique_ptr<Decoder>> create(const ModelSpec& spec, const Weights& weights,
                                                 const Kernels& kernels, ThreadPool& pool,
                                                 MemoryBudget& budget, int64_t max_chunk,
                                                 Activations activations = Activations::kInt8);

  ~Decoder();

  // Other scratch memory, for chunks of at most max_chunk tokens. What the last chunk left there is
  // lost: no logits() or hidden() before the next one. After an error there is none.
  Status resize(MemoryBudget& budget, int64_t max_chunk);

  // Where each layer's attention and matrix products are noted, if not null.
  void set_trace(Trace* trace) { trace_ = trace; }
  // Gets the residual stream [n_tokens, n_embd] that enters a layer.
  using LayerInput = std::function<void(int layer, const float* x)>;

  // Runs a chunk that follows what `cache` holds, and commits it there. `outputs` are the tokens
  // whose logits may be asked for, at least one: of the others the last layer makes keys and values
  // only. On an error, and when `cancel` becomes true between two layers (kCancelled), the cache is
  // as it was.
  Status forward(std::span<const int32_t> tokens, KvCache& cache, ChunkTokens outputs = {},
                 const std::atomic<bool>* cancel = nullptr, const LayerInput& on_layer = {});

  // The layers from `first_layer` on of a chunk whose residual stream [n_tokens, n_embd] there is
  // known: measuring what a change in that layer does. The cache learns nothing of lower layers.
  Status forward_from(int first_layer, std::span<const float> x, KvCache& cache,
                      const std::atomic<bool>* cancel = nullptr);

  // Logits [n_rows, n_vocab] of rows [row, row + n_rows) of the last chunk's outputs.
  void logits(int64_t row, int64_t n_rows, float* out);
  // Such rows after the output norm, [n_rows, n_embd]: what logits are products of.
  void hidden(int64_t row, int64_t n_rows, float* out);
  // Of such rows, at most a chunk of them, the logits [n_rows, n] of tokens [first, first + n), to
  // the bit those of logits(). `first` is a multiple of kPanelRows.
  void logits_of(const float* hidden, int64_t n_rows, int64_t first, int64_t n, float* out);

 private:
  struct Scratch;

  Decoder(const ModelSpec& spec, const Weights& weights, const Kernels& kernels, ThreadPool& pool,
          Activations activations);

  Status check_chunk(int64_t n_tokens) const;
  Status embed(std::span<const int32_t> tokens);
  Status run_layers(int first_layer, int64_t n_tokens, KvCache& cache, ChunkTokens outputs,
                    const std::atomic<bool>* cancel, const LayerInput& on_layer);
  Status run_layer(int index, int64_t n_tokens, KvCache& cache, ChunkTokens outputs);
  void project_qkv(int index, int64_t n_tokens);
  void keep_rows(ChunkTokens rows, int64_t n_rows);
  void add_residual(const float* post_norm, int64_t row);
  void feed_forward(int index, int64_t n_tokens);
  void cap_logits(int64_t n, float* logits) const;

  const ModelSpec& spec_;
  const Weights& weights_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  int64_t max_chunk_ = 0;
  const Activations activations_;
  Trace* trace_ = nullptr;
  Buffer memory_;
  std::unique_ptr<const Scratch> scratch_;  // its parts
  MatmulRunner matmul_;
  RopeTable rope_;
};

}  // namespace tierkv
