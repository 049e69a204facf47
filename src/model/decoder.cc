#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/carve.h"

namespace tierkv {
namespace {

constexpr auto kNothing = [](int64_t, int64_t) {};

// The largest widths that any layer has.
struct Widths {
  int64_t q = 0, kv = 0, ff = 0, input = 0;

  explicit Widths(const ModelSpec& spec) {
    for (const LayerSpec& layer : spec.layers) {
      const KvLayerShape& a = layer.attention;
      q = std::max<int64_t>(q, a.n_heads * a.head_dim);
      kv = std::max<int64_t>(kv, a.n_kv_heads * a.head_dim);
      ff = std::max(ff, layer.n_ff);
    }
    input = std::max({spec.n_embd, q, ff});
  }
};

}  // namespace

// Activations of a chunk, the parts of one Buffer.
struct Decoder::Scratch {
  float* x;          // [n, n_embd] the residual stream
  float* h;          // [n, n_embd] normed input or block output
  float *q, *k, *v;  // [n, heads, head_dim]
  float* attended;   // [n, n_heads, head_dim]
  float *gate, *up;  // [n, n_ff]
  float* rope;
  std::byte* matmul;
  uint64_t total_bytes = 0;

  Scratch(std::byte* base, const ModelSpec& spec, int64_t max_chunk, int n_threads,
          Activations activations) {
    const Widths most(spec);
    Carver carver(base);
    carver.take(x, max_chunk * spec.n_embd);
    carver.take(h, max_chunk * spec.n_embd);
    carver.take(q, max_chunk * most.q);
    carver.take(k, max_chunk * most.kv);
    carver.take(v, max_chunk * most.kv);
    carver.take(attended, max_chunk * most.q);
    carver.take(gate, max_chunk * most.ff);
    carver.take(up, max_chunk * most.ff);
    carver.take(rope, RopeTable::memory_floats(spec, max_chunk));
    carver.take(matmul, MatmulRunner::memory_bytes(max_chunk, most.input, n_threads, activations));
    total_bytes = carver.bytes();
  }
};

uint64_t Decoder::scratch_bytes(const ModelSpec& spec, int64_t max_chunk, int n_threads,
                                Activations activations) {
  return buffer_footprint(Scratch(nullptr, spec, max_chunk, n_threads, activations).total_bytes);
}

Decoder::Decoder(const ModelSpec& spec, const Weights& weights, const Kernels& kernels,
                 ThreadPool& pool, Activations activations)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      pool_(pool),
      activations_(activations),
      matmul_(kernels, pool, activations),
      rope_(spec, weights.rope_freqs) {}

Result<std::unique_ptr<Decoder>> Decoder::create(const ModelSpec& spec, const Weights& weights,
                                                 const Kernels& kernels, ThreadPool& pool,
                                                 MemoryBudget& budget, int64_t max_chunk,
                                                 Activations activations) {
  std::unique_ptr<Decoder> decoder(new Decoder(spec, weights, kernels, pool, activations));
  TIERKV_RETURN_IF_ERROR(decoder->resize(budget, max_chunk));
  return decoder;
}

Status Decoder::resize(MemoryBudget& budget, int64_t max_chunk) {
  max_chunk_ = 0;
  memory_.reset();
  TIERKV_ASSIGN_OR_RETURN(
      memory_, Buffer::allocate(budget, MemoryKind::kScratch,
                                scratch_bytes(spec_, max_chunk, pool_.size(), activations_), true));
  max_chunk_ = max_chunk;
  scratch_ =
      std::make_unique<Scratch>(memory_.data(), spec_, max_chunk, pool_.size(), activations_);
  matmul_.set_memory(scratch_->matmul, max_chunk, Widths(spec_).input);
  rope_.set_memory(scratch_->rope, max_chunk);
  return {};
}

Decoder::~Decoder() = default;

Status Decoder::forward(std::span<const int32_t> tokens, KvCache& cache, ChunkTokens outputs,
                        const std::atomic<bool>* cancel, const LayerInput& on_layer) {
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  TIERKV_RETURN_IF_ERROR(embed(tokens));
  if (outputs.first < 0 || outputs.step < 1 || outputs.count(n_tokens) == 0) {
    return internal_error("a chunk must have an output");
  }
  return run_layers(0, n_tokens, cache, outputs, cancel, on_layer);
}

Status Decoder::forward_from(int first_layer, std::span<const float> x, KvCache& cache,
                             const std::atomic<bool>* cancel) {
  const int64_t n_tokens = static_cast<int64_t>(x.size()) / spec_.n_embd;
  TIERKV_RETURN_IF_ERROR(check_chunk(n_tokens));
  std::copy(x.begin(), x.end(), scratch_->x);
  return run_layers(first_layer, n_tokens, cache, {}, cancel, {});
}

Status Decoder::run_layers(int first_layer, int64_t n_tokens, KvCache& cache, ChunkTokens outputs,
                           const std::atomic<bool>* cancel, const LayerInput& on_layer) {
  TIERKV_RETURN_IF_ERROR(cache.begin(n_tokens));
  matmul_.for_rows(n_tokens, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) rope_.fill(row, cache.length() + row);
  });
  for (int layer = first_layer; layer < spec_.n_layers; ++layer) {
    if (on_layer) on_layer(layer, scratch_->x);
    const bool last = layer + 1 == spec_.n_layers;
    Status status = run_layer(layer, n_tokens, cache, last ? outputs : ChunkTokens());
    if (status.ok() && cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      status = cancelled("stopped at the caller's request");
    }
    if (!status.ok()) {
      cache.abandon();
      return status;
    }
  }
  return cache.commit();
}

Status Decoder::check_chunk(int64_t n_tokens) const {
  if (n_tokens >= 1 && n_tokens <= max_chunk_) return {};
  return invalid_argument(
      format("a chunk must have 1 to %lld tokens", static_cast<long long>(max_chunk_)));
}

Status Decoder::embed(std::span<const int32_t> tokens) {
  TIERKV_RETURN_IF_ERROR(check_chunk(static_cast<int64_t>(tokens.size())));
  for (const int32_t token : tokens) {
    if (token < 0 || token >= spec_.n_vocab) {
      return invalid_argument(format("token id %d is outside the vocabulary of %lld", token,
                                     static_cast<long long>(spec_.n_vocab)));
    }
  }
  float* x = scratch_->x;
  matmul_.for_rows(static_cast<int64_t>(tokens.size()), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* to = x + row * spec_.n_embd;
      unpack_row(weights_.token_embd, tokens[row], to);
      if (spec_.embedding_scale != 1) {
        kernels_.vector->scale(to, spec_.embedding_scale, spec_.n_embd, to);
      }
    }
  });
  return {};
}

// Leaves in x the rows of `outputs` only.
Status Decoder::run_layer(int index, int64_t n_tokens, KvCache& cache, ChunkTokens outputs) {
  const Scratch& s = *scratch_;
  const LayerWeights& w = weights_.layers[index];
  const KvLayerShape& a = spec_.layers[index].attention;
  {
    const TraceScope scope(trace_, "q, k, v", index);
    project_qkv(index, n_tokens);
  }
  {
    const TraceScope scope(trace_, "attention", index);
    TIERKV_RETURN_IF_ERROR(cache.attend(index, s.q, s.k, s.v, outputs, s.attended));
  }
  const TraceScope scope(trace_, "feed forward", index);
  const int64_t n_rows = outputs.count(n_tokens);
  keep_rows(outputs, n_rows);
  const MatmulJob output[] = {{&w.attn_output, s.h}};
  matmul_.run(s.attended, n_rows, a.n_heads * a.head_dim, output, &w.ffn_gate, kNothing);
  feed_forward(index, n_rows);
  return {};
}

// The residual stream's rows that `rows` names move to its beginning.
void Decoder::keep_rows(ChunkTokens rows, int64_t n_rows) {
  float* x = scratch_->x;
  const int64_t n = spec_.n_embd;
  for (int64_t i = 0; i < n_rows; ++i) {
    const int64_t from = rows.first + i * rows.step;
    if (from != i) std::copy_n(x + from * n, n, x + i * n);
  }
}

// x -> q, k, v with biases, norms and rotary embedding applied.
void Decoder::project_qkv(int index, int64_t n_tokens) {
  const Scratch& s = *scratch_;
  const LayerWeights& w = weights_.layers[index];
  const KvLayerShape& a = spec_.layers[index].attention;
  const VectorKernels& vec = *kernels_.vector;
  const MatmulJob qkv[] = {{&w.attn_q, s.q}, {&w.attn_k, s.k}, {&w.attn_v, s.v}};
  matmul_.run(s.h, n_tokens, spec_.n_embd, qkv, &w.attn_output, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      vec.rms_norm(s.x + row * spec_.n_embd, w.attn_norm, spec_.norm_eps, spec_.n_embd,
                   s.h + row * spec_.n_embd);
    }
  });
  const auto finish_heads = [&](float* row, int n_heads, const float* bias, const float* norm,
                                bool rotate, int64_t index_in_chunk) {
    if (bias != nullptr) vec.add(row, bias, n_heads * a.head_dim, row);
    for (int head = 0; head < n_heads; ++head) {
      float* at = row + head * a.head_dim;
      if (norm != nullptr) vec.rms_norm(at, norm, spec_.norm_eps, a.head_dim, at);
      if (rotate) {
        vec.rope(at, rope_.cosines(index, index_in_chunk), rope_.sines(index, index_in_chunk),
                 a.head_dim, spec_.rope_pairing);
      }
    }
  };
  matmul_.for_rows(n_tokens, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      finish_heads(s.q + r * a.n_heads * a.head_dim, a.n_heads, w.attn_q_bias, w.attn_q_norm, true,
                   r);
      finish_heads(s.k + r * a.n_kv_heads * a.head_dim, a.n_kv_heads, w.attn_k_bias, w.attn_k_norm,
                   true, r);
      finish_heads(s.v + r * a.n_kv_heads * a.head_dim, a.n_kv_heads, w.attn_v_bias, nullptr, false,
                   r);
    }
  });
}

// x += h, through a norm where the architecture has one.
void Decoder::add_residual(const float* post_norm, int64_t row) {
  const Scratch& s = *scratch_;
  const int64_t n = spec_.n_embd;
  float *x = s.x + row * n, *h = s.h + row * n;
  if (post_norm != nullptr) kernels_.vector->rms_norm(h, post_norm, spec_.norm_eps, n, h);
  kernels_.vector->add(x, h, n, x);
}

// h, the attention's output, joins x; then x -> x + feed_forward(x).
void Decoder::feed_forward(int index, int64_t n_tokens) {
  const Scratch& s = *scratch_;
  const LayerWeights& w = weights_.layers[index];
  const int64_t n_ff = spec_.layers[index].n_ff;
  const VectorKernels& vec = *kernels_.vector;
  const MatmulJob gate_up[] = {{&w.ffn_gate, s.gate}, {&w.ffn_up, s.up}};
  matmul_.run(s.h, n_tokens, spec_.n_embd, gate_up, &w.ffn_down, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      add_residual(w.post_attention_norm, row);
      vec.rms_norm(s.x + row * spec_.n_embd, w.ffn_norm, spec_.norm_eps, spec_.n_embd,
                   s.h + row * spec_.n_embd);
    }
  });
  const auto activate = spec_.activation == Activation::kSilu ? vec.silu_mul : vec.gelu_mul;
  const MatmulJob down[] = {{&w.ffn_down, s.h}};
  const PackedMatrix* following =
      index + 1 < spec_.n_layers ? &weights_.layers[index + 1].attn_q : &weights_.output;
  matmul_.run(s.gate, n_tokens, n_ff, down, following, [&](int64_t begin, int64_t end) {
    activate(s.gate + begin * n_ff, s.up + begin * n_ff, (end - begin) * n_ff,
             s.gate + begin * n_ff);
  });
  matmul_.for_rows(n_tokens, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) add_residual(w.post_ffw_norm, row);
  });
}

void Decoder::logits(int64_t row, int64_t n_rows, float* out) {
  const TraceScope scope(trace_, "logits");
  const Scratch& s = *scratch_;
  const int64_t n = spec_.n_embd;
  const float* x = s.x + row * n;
  const MatmulJob job[] = {{&weights_.output, out}};
  matmul_.run(s.h, n_rows, n, job, &weights_.layers[0].attn_q, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.vector->rms_norm(x + r * n, weights_.output_norm, spec_.norm_eps, n, s.h + r * n);
    }
  });
  cap_logits(n_rows * spec_.n_vocab, out);
}

void Decoder::hidden(int64_t row, int64_t n_rows, float* out) {
  const int64_t n = spec_.n_embd;
  const float* x = scratch_->x + row * n;
  matmul_.for_rows(n_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.vector->rms_norm(x + r * n, weights_.output_norm, spec_.norm_eps, n, out + r * n);
    }
  });
}

void Decoder::logits_of(const float* hidden, int64_t n_rows, int64_t first, int64_t n, float* out) {
  PackedMatrix slice = weights_.output;
  slice.data += first / kPanelRows * packed_panel_bytes(slice.type, slice.n_cols);
  slice.n_rows = n;
  const MatmulJob job[] = {{&slice, out}};
  matmul_.run(hidden, n_rows, spec_.n_embd, job, nullptr, kNothing);
  cap_logits(n_rows * n, out);
}

void Decoder::cap_logits(int64_t n, float* logits) const {
  const float cap = spec_.final_softcap;
  if (cap == 0) return;
  for (int64_t i = 0; i < n; ++i) logits[i] = cap * std::tanh(logits[i] / cap);
}

}  // namespace tierkv
