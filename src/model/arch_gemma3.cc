// gemma3: text models of 270M and 1B. Five layers see a window for each one that sees everything,
// each kind with its own RoPE base; Q and K are normalised per head; outputs are normalised before
// they are added; embeddings are tied and scaled.
#include <cmath>

#include "model/model_spec.h"

namespace tierkv {

Result<ModelSpec> read_gemma3_spec(const GgufFile& file) {
  TIERKV_ASSIGN_OR_RETURN(ModelSpec spec, read_common_spec(file));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd));
  spec.rope_pairing = RopePairing::kHalves;
  spec.activation = Activation::kGelu;
  spec.qk_norm = spec.post_norms = true;
  TIERKV_ASSIGN_OR_RETURN(const double softcap,
                          file.get_float("gemma3.final_logit_softcapping", 0));
  spec.final_softcap = static_cast<float>(softcap);
  TIERKV_ASSIGN_OR_RETURN(const double scaling, file.get_float("gemma3.rope.scaling.factor", 1));
  TIERKV_ASSIGN_OR_RETURN(const double local_base,
                          file.get_float("gemma3.rope.freq_base_swa", 10000));
  TIERKV_ASSIGN_OR_RETURN(const uint64_t window, file.get_uint("gemma3.attention.sliding_window"));
  TIERKV_ASSIGN_OR_RETURN(const uint64_t period,
                          file.get_uint("gemma3.attention.sliding_window_pattern", 6));
  if (window == 0 || window > 1 << 20 || period == 0 || period > 1024) {
    return corrupt(file.path() + ": the sliding window or its pattern is out of range");
  }
  for (int64_t i = 0; i < spec.n_layers; ++i) {
    LayerSpec& layer = spec.layers[i];
    if (static_cast<uint64_t>(i) % period < period - 1) {
      layer.attention.window = static_cast<int64_t>(window);
      layer.rope_base = static_cast<float>(local_base);
    } else {
      layer.rope_scale = static_cast<float>(1 / scaling);
    }
  }
  return spec;
}

}  // namespace tierkv
