#include "model/model_spec.h"

#include <cmath>

namespace tierkv {
namespace {

struct Architecture {
  const char* name;
  Result<ModelSpec> (*read)(const GgufFile& file);
};
constexpr Architecture kArchitectures[] = {
    {"llama", read_llama_spec},
    {"gemma3", read_gemma3_spec},
};

// An integer key within [low, high].
Result<int64_t> bounded(const GgufFile& file, const std::string& key, uint64_t low, uint64_t high,
                        const uint64_t* fallback = nullptr) {
  const Result<uint64_t> value =
      fallback != nullptr ? file.get_uint(key, *fallback) : file.get_uint(key);
  if (!value.ok()) return value.status();
  if (*value < low || *value > high) {
    return corrupt(format("%s: %s is %llu, outside %llu to %llu", file.path().c_str(), key.c_str(),
                          static_cast<unsigned long long>(*value),
                          static_cast<unsigned long long>(low),
                          static_cast<unsigned long long>(high)));
  }
  return static_cast<int64_t>(*value);
}

Status check_shape(const GgufFile& file, const std::string& name, uint64_t n_cols, uint64_t n_rows,
                   bool optional = false) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) {
    return optional ? Status() : corrupt(file.path() + ": tensor " + name + " is missing");
  }
  if (tensor->n_cols() == n_cols && tensor->n_rows() == n_rows) return {};
  return corrupt(
      format("%s: tensor %s is %llu x %llu, but the hyper-parameters ask for %llu x %llu",
             file.path().c_str(), name.c_str(), static_cast<unsigned long long>(tensor->n_cols()),
             static_cast<unsigned long long>(tensor->n_rows()),
             static_cast<unsigned long long>(n_cols), static_cast<unsigned long long>(n_rows)));
}

Status check_layer(const GgufFile& file, const ModelSpec& spec, int64_t index) {
  const std::string block = "blk." + std::to_string(index) + ".";
  const LayerSpec& layer = spec.layers[index];
  const uint64_t n_embd = spec.n_embd, head_dim = layer.attention.head_dim;
  const uint64_t n_q = layer.attention.n_heads * head_dim;
  const uint64_t n_kv = layer.attention.n_kv_heads * head_dim;
  const uint64_t n_ff = layer.n_ff;
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_norm.weight", n_embd, 1));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_q.weight", n_embd, n_q));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_k.weight", n_embd, n_kv));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_v.weight", n_embd, n_kv));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_output.weight", n_q, n_embd));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_q.bias", n_q, 1, true));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_k.bias", n_kv, 1, true));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_v.bias", n_kv, 1, true));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "ffn_norm.weight", n_embd, 1));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "ffn_gate.weight", n_embd, n_ff));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "ffn_up.weight", n_embd, n_ff));
  TIERKV_RETURN_IF_ERROR(check_shape(file, block + "ffn_down.weight", n_ff, n_embd));
  if (spec.qk_norm) {
    TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_q_norm.weight", head_dim, 1));
    TIERKV_RETURN_IF_ERROR(check_shape(file, block + "attn_k_norm.weight", head_dim, 1));
  }
  if (spec.post_norms) {
    TIERKV_RETURN_IF_ERROR(check_shape(file, block + "post_attention_norm.weight", n_embd, 1));
    TIERKV_RETURN_IF_ERROR(check_shape(file, block + "post_ffw_norm.weight", n_embd, 1));
  }
  return {};
}

Status check_tensors(const GgufFile& file, const ModelSpec& spec) {
  TIERKV_RETURN_IF_ERROR(check_shape(file, "token_embd.weight", spec.n_embd, spec.n_vocab));
  TIERKV_RETURN_IF_ERROR(check_shape(file, "output_norm.weight", spec.n_embd, 1));
  TIERKV_RETURN_IF_ERROR(check_shape(file, "output.weight", spec.n_embd, spec.n_vocab, true));
  TIERKV_RETURN_IF_ERROR(
      check_shape(file, "rope_freqs.weight", spec.layers[0].attention.head_dim / 2, 1, true));
  for (int64_t i = 0; i < spec.n_layers; ++i) TIERKV_RETURN_IF_ERROR(check_layer(file, spec, i));
  return {};
}

Status check_numbers(const GgufFile& file, const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const KvLayerShape& a = layer.attention;
    const bool sane = a.n_heads % a.n_kv_heads == 0 && a.head_dim % 16 == 0 && a.head_dim <= 512 &&
                      layer.rope_base > 0 && layer.rope_scale > 0 &&
                      std::isfinite(layer.rope_base) && std::isfinite(layer.rope_scale);
    if (!sane) {
      return unsupported(
          format("%s: %d query heads, %d KV heads of %d dimensions: the heads must "
                 "divide evenly and have a multiple of 16 dimensions, at most 512",
                 file.path().c_str(), a.n_heads, a.n_kv_heads, a.head_dim));
    }
  }
  if (!(spec.norm_eps >= 0 && spec.norm_eps < 1)) {
    return corrupt(file.path() + ": layer_norm_rms_epsilon is not a small number");
  }
  return {};
}

}  // namespace

Result<ModelSpec> read_model_spec(const GgufFile& file) {
  TIERKV_ASSIGN_OR_RETURN(const std::string name, file.get_string("general.architecture"));
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) {
      TIERKV_ASSIGN_OR_RETURN(ModelSpec spec, architecture.read(file));
      TIERKV_RETURN_IF_ERROR(check_numbers(file, spec));
      TIERKV_RETURN_IF_ERROR(check_tensors(file, spec));
      return spec;
    }
    known += std::string(known.empty() ? "" : ", ") + architecture.name;
  }
  return unsupported(file.path() + ": architecture \"" + name +
                     "\" is not supported; these are: " + known);
}

Result<ModelSpec> read_common_spec(const GgufFile& file) {
  ModelSpec spec;
  TIERKV_ASSIGN_OR_RETURN(spec.architecture, file.get_string("general.architecture"));
  TIERKV_ASSIGN_OR_RETURN(spec.name, file.get_string("general.name", ""));
  const std::string a = spec.architecture + ".";
  TIERKV_ASSIGN_OR_RETURN(spec.n_layers, bounded(file, a + "block_count", 1, 1024));
  TIERKV_ASSIGN_OR_RETURN(spec.n_embd, bounded(file, a + "embedding_length", 32, 1 << 17));
  TIERKV_ASSIGN_OR_RETURN(spec.n_context, bounded(file, a + "context_length", 1, 1 << 28));
  TIERKV_ASSIGN_OR_RETURN(const int64_t n_ff,
                          bounded(file, a + "feed_forward_length", 32, 1 << 20));
  TIERKV_ASSIGN_OR_RETURN(const int64_t n_heads,
                          bounded(file, a + "attention.head_count", 1, 1024));
  const uint64_t default_kv = n_heads;
  TIERKV_ASSIGN_OR_RETURN(const int64_t n_kv_heads,
                          bounded(file, a + "attention.head_count_kv", 1, n_heads, &default_kv));
  const uint64_t default_dim = spec.n_embd / n_heads;
  TIERKV_ASSIGN_OR_RETURN(const int64_t head_dim,
                          bounded(file, a + "attention.key_length", 1, 512, &default_dim));
  const uint64_t key_dim = head_dim;
  TIERKV_RETURN_IF_ERROR(
      bounded(file, a + "attention.value_length", key_dim, key_dim, &key_dim).status());
  TIERKV_RETURN_IF_ERROR(
      bounded(file, a + "rope.dimension_count", key_dim, key_dim, &key_dim).status());
  TIERKV_ASSIGN_OR_RETURN(const double eps, file.get_float(a + "attention.layer_norm_rms_epsilon"));
  TIERKV_ASSIGN_OR_RETURN(const double base, file.get_float(a + "rope.freq_base", 10000));
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) return corrupt(file.path() + ": tensor token_embd.weight is missing");
  spec.n_vocab = static_cast<int64_t>(embedding->n_rows());
  spec.norm_eps = static_cast<float>(eps);
  spec.tied_embeddings = file.find_tensor("output.weight") == nullptr;

  LayerSpec layer;
  layer.attention.n_heads = static_cast<int>(n_heads);
  layer.attention.n_kv_heads = static_cast<int>(n_kv_heads);
  layer.attention.head_dim = static_cast<int>(head_dim);
  layer.attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  layer.n_ff = n_ff;
  layer.rope_base = static_cast<float>(base);
  layer.rope_factors = file.find_tensor("rope_freqs.weight") != nullptr;
  spec.layers.assign(spec.n_layers, layer);
  return spec;
}

uint64_t model_hash(const GgufFile& file) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](const void* data, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
    }
  };
  for (const GgufTensor& tensor : file.tensors()) {
    add(tensor.name.data(), tensor.name.size());
    add(tensor.shape.data(), tensor.shape.size() * sizeof(uint64_t));
    add(&tensor.type, sizeof tensor.type);
    add(&tensor.offset, sizeof tensor.offset);
  }
  return hash;
}

}  // namespace tierkv
