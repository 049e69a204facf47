// llama: Llama 2 and 3, TinyLlama, SmolLM2 and kin. Llama 3's RoPE scaling is in rope_freqs.weight.
#include "model/model_spec.h"

namespace tierkv {

Result<ModelSpec> read_llama_spec(const GgufFile& file) {
  TIERKV_ASSIGN_OR_RETURN(ModelSpec spec, read_common_spec(file));
  TIERKV_ASSIGN_OR_RETURN(const std::string scaling,
                          file.get_string("llama.rope.scaling.type", "none"));
  if (scaling != "none" && scaling != "linear") {
    return unsupported(file.path() + ": RoPE scaling \"" + scaling + "\" is not supported");
  }
  TIERKV_ASSIGN_OR_RETURN(const double factor, file.get_float("llama.rope.scaling.factor", 1));
  TIERKV_ASSIGN_OR_RETURN(const double legacy, file.get_float("llama.rope.scale_linear", factor));
  TIERKV_ASSIGN_OR_RETURN(const uint64_t n_experts, file.get_uint("llama.expert_count", 0));
  if (n_experts > 0) return unsupported(file.path() + ": mixtures of experts are not supported");
  for (LayerSpec& layer : spec.layers) layer.rope_scale = static_cast<float>(1 / legacy);
  return spec;
}

}  // namespace tierkv
