// Tiny random models in GGUF form for tests, in float32 so that an oracle can be exact.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "gguf/gguf.h"
#include "gguf/test_writer.h"

namespace tierkv {

struct TinyShape {
  std::string architecture = "llama";
  uint32_t n_layers = 2, n_embd = 64, n_ff = 96, n_heads = 4, n_kv_heads = 2, head_dim = 32;
  uint32_t n_vocab = 40, n_context = 512;
  float rope_base = 10000;
  bool rope_freqs = false, biases = false, tied = true;
  uint32_t window = 24, period = 2;  // gemma3
};

class TinyModel {
 public:
  explicit TinyModel(TinyShape shape) : shape(std::move(shape)) { write(); }

  Result<GgufFile> file() const {
    return GgufFile::parse(std::make_unique<MemoryFile>(writer_.bytes()));
  }
  GgufTestWriter& writer() { return writer_; }
  const std::vector<float>& tensor(const std::string& name) const { return tensors_.at(name); }
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }

  const TinyShape shape;

 private:
  void write() {
    const std::string a = shape.architecture + ".";
    const bool gemma = shape.architecture == "gemma3";
    writer_.add("general.architecture", shape.architecture)
        .add(a + "block_count", shape.n_layers)
        .add(a + "embedding_length", shape.n_embd)
        .add(a + "context_length", shape.n_context)
        .add(a + "feed_forward_length", shape.n_ff)
        .add(a + "attention.head_count", shape.n_heads)
        .add(a + "attention.head_count_kv", shape.n_kv_heads)
        .add(a + "attention.key_length", shape.head_dim)
        .add(a + "attention.value_length", shape.head_dim)
        .add(a + "attention.layer_norm_rms_epsilon", 1e-5f)
        .add(a + "rope.freq_base", shape.rope_base);
    if (gemma) {
      writer_.add(a + "attention.sliding_window", shape.window);
      writer_.add(a + "attention.sliding_window_pattern", shape.period);
    }
    const uint64_t d = shape.head_dim, e = shape.n_embd;
    const uint64_t q = shape.n_heads * d, kv = shape.n_kv_heads * d;
    add("token_embd.weight", {e, shape.n_vocab}, 1);
    add("output_norm.weight", {e}, 0, 1);
    if (!shape.tied) add("output.weight", {e, shape.n_vocab}, 0.3f);
    if (shape.rope_freqs) add("rope_freqs.weight", {d / 2}, 0.5f, 3);
    for (uint32_t i = 0; i < shape.n_layers; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      add(block + "attn_norm.weight", {e}, 0.1f, 1);
      add(block + "attn_q.weight", {e, q}, 0.2f);
      add(block + "attn_k.weight", {e, kv}, 0.2f);
      add(block + "attn_v.weight", {e, kv}, 0.2f);
      if (shape.biases) {
        add(block + "attn_q.bias", {q}, 0.5f);
        add(block + "attn_k.bias", {kv}, 0.5f);
        add(block + "attn_v.bias", {kv}, 0.5f);
      }
      add(block + "attn_output.weight", {q, e}, 0.2f);
      add(block + "ffn_norm.weight", {e}, 0.1f, 1);
      add(block + "ffn_gate.weight", {e, shape.n_ff}, 0.2f);
      add(block + "ffn_up.weight", {e, shape.n_ff}, 0.2f);
      add(block + "ffn_down.weight", {shape.n_ff, e}, 0.2f);
      if (gemma) {
        add(block + "attn_q_norm.weight", {d}, 0.1f, 1);
        add(block + "attn_k_norm.weight", {d}, 0.1f, 1);
        add(block + "post_attention_norm.weight", {e}, 0.1f, 1);
        add(block + "post_ffw_norm.weight", {e}, 0.1f, 1);
      }
    }
  }

  void add(const std::string& name, const std::vector<uint64_t>& dims, float spread,
           float mean = 0) {
    uint64_t n = 1;
    for (const uint64_t dim : dims) n *= dim;
    std::normal_distribution<float> normal(mean, spread > 0 ? spread : 1e-9f);
    std::vector<float> values(n);
    for (float& x : values) x = normal(random_);
    writer_.add_tensor(name, TensorType::kF32, dims, tensor_bytes(values));
    tensors_[name] = std::move(values);
  }

  std::mt19937 random_{11};
  GgufTestWriter writer_;
  std::map<std::string, std::vector<float>> tensors_;
};

}  // namespace tierkv
