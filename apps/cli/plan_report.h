// A forecast and what its constraints cost, for people, for programs and as a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/engine.h"
#include "runtime/forecast.h"
#include "runtime/plan_ablation.h"
#include "runtime/session.h"

namespace tierkv::cli {

struct PlanView {
  const Engine& engine;
  const SessionOptions& options;
  const PlanStudy& study;
};

std::string plan_text(const PlanView& view);
nlohmann::json plan_json(const PlanView& view);  // plan_json.cc
// plan_svg.cc: 960 wide, in middle tones, for light and dark pages.
std::string plan_svg(const PlanView& view);

// plan_ablation.cc
std::string ablation_text(const std::vector<AblationRow>& rows);
nlohmann::json ablation_json(const std::vector<AblationRow>& rows);

// What all of these say in the same words.
std::string request_title(const PlanView& view);      // model, tokens, RAM, quality
std::string grouped(int64_t n);                       // 12,345
std::string time_text(double seconds);                // "2.31 ms"
std::string kld_text(double nats);                    // "0.0020"
std::string codec_counts_text(const Plan& plan);      // "k5v4 x 20, k4v3 x 10"
std::string part_name(PartKind kind);                 // "Tier-1, compressed"
nlohmann::json brief_json(const Forecast& forecast);  // the plan's numbers, without its layout
// Plan::codecs by full-attention layer and KV head.
std::vector<std::vector<CodecId>> codecs_by_layer(const KvLayout& layout, const Plan& plan);
// For programs: per full-attention layer "k5v4", or "k5v4,k4v3,.." where its KV heads differ.
std::vector<std::string> layer_codec_names(const KvLayout& layout, const Plan& plan);

// A number of bytes; null where there is no limit.
nlohmann::json limit_json(uint64_t bytes);

}  // namespace tierkv::cli
