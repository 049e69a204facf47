// What one architecture needs to be run by the one decoder, as data read from a GGUF. An
// architecture is a function that fills a ModelSpec (arch_llama.cc, arch_gemma3.cc), listed in
// model_spec.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/vector.h"
#include "kv/kv_cache.h"

namespace tierkv {

enum class Activation : uint8_t { kSilu, kGelu };  // of the gated feed-forward

struct LayerSpec {
  KvLayerShape attention;
  int64_t n_ff = 0;
  float rope_base = 10000;
  float rope_scale = 1;       // positions are multiplied by this: 1 / scaling factor
  bool rope_factors = false;  // rope_freqs.weight divides the frequencies
};

struct ModelSpec {
  std::string architecture;  // "llama"
  std::string name;          // general.name, may be empty
  int64_t n_layers = 0, n_embd = 0, n_vocab = 0;
  int64_t n_context = 0;  // tokens the model was trained for
  float norm_eps = 1e-5f;
  float embedding_scale = 1;  // of token embeddings
  float final_softcap = 0;    // logits become softcap * tanh(logit / softcap); 0: none
  RopePairing rope_pairing = RopePairing::kAdjacent;
  Activation activation = Activation::kSilu;
  bool qk_norm = false;     // RMS norm of each head of Q and K before RoPE
  bool post_norms = false;  // RMS norm of attention's and feed-forward's output before the residual
  bool tied_embeddings = false;  // no output.weight: token_embd.weight serves
  std::vector<LayerSpec> layers;
};

// Fails when the architecture is unknown (and lists those that are), or when hyper-parameters are
// missing, absurd, or contradict each other or the tensors' shapes.
Result<ModelSpec> read_model_spec(const GgufFile& file);

// Bytes that identify the model's weights and shapes, for files bound to it: a hash of the header.
uint64_t model_hash(const GgufFile& file);

// Architectures, for read_model_spec. Each fills what it adds to read_common_spec.
Result<ModelSpec> read_llama_spec(const GgufFile& file);
Result<ModelSpec> read_gemma3_spec(const GgufFile& file);
// Sizes, context, norms' eps and uniform layers, from the keys that all architectures share.
Result<ModelSpec> read_common_spec(const GgufFile& file);

}  // namespace tierkv
