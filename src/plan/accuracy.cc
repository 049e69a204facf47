#include "plan/accuracy.h"

namespace tierkv {

// Sums over all heads, the larger of SmolLM2's and Gemma 3 270M's at each width, rounded up.
AccuracyModel default_accuracy() {
  AccuracyModel model;
  model.every_model = {0.013, 0.0014};
  for (const auto& [bits, kld] :
       {std::pair{8, 3e-5}, {6, 4e-4}, {5, 2.1e-3}, {4, 0.013}, {3, 0.05}}) {
    model.k_factor[static_cast<size_t>(bits)] = kld / model.every_model.k;
  }
  for (const auto& [bits, kld] :
       {std::pair{8, 5e-6}, {6, 2e-5}, {5, 1e-4}, {4, 4e-4}, {3, 1.4e-3}, {2, 0.013}}) {
    model.v_factor[static_cast<size_t>(bits)] = kld / model.every_model.v;
  }
  model.floor = kScoringFloor;
  model.reach.exponent = 1.2;
  return model;
}

namespace {

// All heads at so much of K and V's rank: the larger of the same two models', rounded up.
double low_rank_kld(int permille) {
  if (permille >= 750) return 5e-4;
  if (permille >= 500) return 4e-3;
  return permille >= 375 ? 0.02 : 0.1;
}

}  // namespace

double head_kld(const AccuracyModel& model, size_t head, size_t n_heads, CodecId codec) {
  if (codec == CodecId{}) return 0;
  const double share = 1 / static_cast<double>(n_heads);
  if (codec.is_low_rank()) return low_rank_kld(codec.rank_permille) * share;
  const HeadSensitivity sensitivity =
      model.heads.empty()
          ? HeadSensitivity{model.every_model.k * share, model.every_model.v * share}
          : model.heads[head];
  return sensitivity.k * model.k_factor[codec.k_bits] +
         sensitivity.v * model.v_factor[codec.v_bits] + model.floor * share;
}

double predicted_kld(const AccuracyModel& model, const std::vector<CodecId>& codecs,
                     int64_t page_tokens, PageRange pages, TokenRange queries) {
  double sum = 0;
  for (size_t head = 0; head < codecs.size(); ++head) {
    sum += head_kld(model, head, codecs.size(), codecs[head]);
  }
  return sum * reach_share(model.reach, page_tokens, pages, queries);
}

}  // namespace tierkv
