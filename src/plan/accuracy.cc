#include "plan/accuracy.h"

namespace tierkv {

// Sums over all heads: the most that any of three texts costs SmolLM2 or Gemma 3 270M at each
// width, rounded up.
AccuracyModel default_accuracy() {
  AccuracyModel model;
  model.every_model = {1.4e-3, 1.2e-3};
  for (const auto& [bits, kld] :
       {std::pair{8, 2e-5}, {6, 1.2e-4}, {5, 4e-4}, {4, 1.4e-3}, {3, 9e-3}}) {
    model.k_factor[static_cast<size_t>(bits)] = kld / model.every_model.k;
  }
  for (const auto& [bits, kld] :
       {std::pair{8, 5e-6}, {6, 2e-5}, {5, 8e-5}, {4, 3.5e-4}, {3, 1.2e-3}, {2, 0.013}}) {
    model.v_factor[static_cast<size_t>(bits)] = kld / model.every_model.v;
  }
  model.floor = kScoringFloor;
  model.reach.exponent = 1.2;
  return model;
}

namespace {

// All heads at so much of K and V's rank: the most that a text costs SmolLM2 or Gemma 3 270M, and
// what rounding latents to int8 adds (docs/decisions.md, "Low-rank codec"); a guess below 25 %.
double low_rank_kld(CodecId codec) {
  const double rounding = codec.latent_bits == 8 ? 1.2e-3 : 0;
  if (codec.rank_permille >= 750) return 2e-4 + rounding;
  if (codec.rank_permille >= 500) return 4e-3 + rounding;
  if (codec.rank_permille >= 375) return 0.0125 + rounding;
  return (codec.rank_permille >= 250 ? 0.04 : 0.2) + rounding;
}

}  // namespace

double head_kld(const AccuracyModel& model, size_t head, size_t n_heads, CodecId codec) {
  if (codec == CodecId{}) return 0;
  const double share = 1 / static_cast<double>(n_heads);
  if (codec.is_low_rank()) return low_rank_kld(codec) * share;
  const HeadSensitivity sensitivity =
      model.heads.empty()
          ? HeadSensitivity{model.every_model.k * share, model.every_model.v * share}
          : model.heads[head];
  return sensitivity.k * model.k_factor[codec.k_bits] +
         sensitivity.v * model.v_factor[codec.v_bits] + model.floor * share;
}

double codecs_kld(const AccuracyModel& model, const std::vector<CodecId>& codecs) {
  double sum = 0;
  for (size_t head = 0; head < codecs.size(); ++head) {
    sum += head_kld(model, head, codecs.size(), codecs[head]);
  }
  return sum;
}

double predicted_kld(const AccuracyModel& model, const std::vector<CodecId>& codecs,
                     int64_t page_tokens, PageRange pages, int64_t answer_begin) {
  return codecs_kld(model, codecs) * reach_share(model.reach, page_tokens, pages, answer_begin);
}

}  // namespace tierkv
