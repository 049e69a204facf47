// A forecast and what its constraints cost, for programs.
#include <cmath>

#include "cli/plan_report.h"

namespace tierkv::cli {
namespace {

// JSON has no infinity.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json variant_json(const Variant& variant) {
  nlohmann::json json = {{"change", change_name(variant.change)},
                         {"name", variant.name},
                         {"kld_budget", number(variant.kld_budget)},
                         {"ram_budget_bytes", limit_json(variant.ram_limit)},
                         {"fits", variant.forecast.has_value()}};
  if (!variant.forecast) {
    json["least_ram_bytes"] = variant.least_ram;
    return json;
  }
  json["pareto"] = variant.pareto;
  json["plan"] = brief_json(*variant.forecast);
  return json;
}

nlohmann::json variants_json(const std::vector<Variant>& variants) {
  nlohmann::json list = nlohmann::json::array();
  for (const Variant& variant : variants) list.push_back(variant_json(variant));
  return list;
}

const char* part_key(PartKind kind) {
  switch (kind) {
    case PartKind::kSinks:
      return "sinks";
    case PartKind::kCompressed:
      return "tier1";
    case PartKind::kOffloaded:
      return "tier2";
    case PartKind::kWindow:
      return "window";
  }
  return "";
}

nlohmann::json parts_json(const Forecast& f) {
  nlohmann::json list = nlohmann::json::array();
  for (const ContextPart& part : context_parts(f.input, f.plan)) {
    list.push_back({{"part", part_key(part.kind)},
                    {"first_token", part.first_token},
                    {"n_tokens", part.n_tokens},
                    {"bytes", part.bytes},
                    {"in_ram", part.kind != PartKind::kOffloaded}});
  }
  return list;
}

nlohmann::json layout_json(const PlanView& view) {
  const KvLayout& layout = view.engine.kv_layout();
  return {{"layers", layout.full_layers},
          {"codecs", layer_codec_names(layout, view.study.plan.plan)}};
}

}  // namespace

nlohmann::json limit_json(uint64_t bytes) {
  return bytes == MemoryBudget::kUnlimited ? nlohmann::json() : nlohmann::json(bytes);
}

nlohmann::json brief_json(const Forecast& f) {
  nlohmann::json codecs = nlohmann::json::object();
  for (const CodecCount& count : codec_counts(f.plan))
    codecs[codec_name(count.codec)] = count.n_heads;
  return {{"n_exact", f.plan.n_exact},
          {"n_compressed", f.plan.n_compressed},
          {"n_offloaded", f.plan.n_offloaded},
          {"flash", f.plan.flash},
          {"codec_counts", codecs},
          {"bits_per_element", tier1_bits_per_element(f.input, f.plan)},
          {"kld", f.plan.kld},
          {"codec_kld", codec_kld(f.input, f.plan)},
          {"seconds_per_token", f.plan.seconds_per_token},
          {"kv_ram_bytes", f.plan.ram_bytes},
          {"ram_bytes", f.ram_bytes()}};
}

nlohmann::json plan_json(const PlanView& view) {
  const PlanStudy& study = view.study;
  const Forecast& f = study.plan;
  nlohmann::json binding = nlohmann::json::array();
  for (const Change change : study.binding) binding.push_back(change_name(change));
  nlohmann::json plan = brief_json(f);
  plan["parts"] = parts_json(f);
  plan["layout"] = layout_json(view);
  plan["pareto"] = study.pareto;
  return {{"model", view.engine.file().path()},
          {"prompt_tokens", view.options.request.n_prompt},
          {"expected_tokens", f.input.total_tokens - view.options.request.n_prompt},
          {"ram_budget_bytes", limit_json(f.ram_limit)},
          {"kld_budget", number(f.input.kld_budget)},
          {"codec_kld_budget", number(codec_kld_budget(f.input))},
          {"prefill_chunk", f.chunk},
          {"prefill_scratch_bytes", f.prefill_scratch_bytes},
          {"costs_measured", view.options.request.costs.measured},
          {"accuracy", view.options.request.accuracy.source},
          {"profile", view.options.request.accuracy.file},
          {"bytes",
           {{"weights", f.weight_bytes},
            {"scratch", f.scratch_bytes},
            {"overhead", f.overhead_bytes},
            {"kv", f.plan.ram_bytes}}},
          {"plan", plan},
          {"changes", variants_json(study.changes)},
          {"binding", binding},
          {"by_ram", variants_json(study.by_ram)},
          {"by_quality", variants_json(study.by_quality)}};
}

}  // namespace tierkv::cli
