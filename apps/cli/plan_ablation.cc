// What each freedom of the planner is worth, as a table.
#include "base/size.h"
#include "cli/plan_report.h"

namespace tierkv::cli {
namespace {

std::string cell(const AblationRow& row, const std::optional<Plan>& plan) {
  if (!plan) return format("%19s", "does not fit");
  const double joint = row.forecast.plan.seconds_per_token;
  return format("%10s %7.2fx", time_text(plan->seconds_per_token).c_str(),
                joint > 0 ? plan->seconds_per_token / joint : 1.0);
}

nlohmann::json plan_of_rule(PlanRule rule, const Forecast& forecast, const Plan& plan) {
  Forecast other = forecast;
  other.plan = plan;
  nlohmann::json json = brief_json(other);
  json["rule"] = plan_rule_name(rule);
  json["codecs"] = nlohmann::json::array();
  for (const CodecId codec : plan.codecs) json["codecs"].push_back(codec_name(codec));
  return json;
}

}  // namespace

std::string ablation_text(const std::vector<AblationRow>& rows) {
  std::string text =
      "time a token of the best plan by each rule, and as a multiple of the joint one's\n"
      "      KLD         RAM";
  for (const PlanRule rule : kPlanRules) text += format("  %19s", plan_rule_name(rule));
  std::string before;
  for (const AblationRow& row : rows) {
    std::string cells;
    for (const auto& plan : row.plans) cells += "  " + cell(row, plan);
    if (cells == before) continue;  // more RAM changes nothing
    text += format("\n  %7s  %10s", kld_text(row.kld_budget).c_str(),
                   format_size_argument(row.forecast.ram_limit).c_str());
    text += before = cells;
  }
  return text + "\n";
}

nlohmann::json ablation_json(const std::vector<AblationRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const AblationRow& row : rows) {
    nlohmann::json plans = nlohmann::json::array();
    for (size_t i = 0; i < row.plans.size(); ++i) {
      if (row.plans[i]) plans.push_back(plan_of_rule(kPlanRules[i], row.forecast, *row.plans[i]));
    }
    list.push_back({{"kld_budget", row.kld_budget},
                    {"ram_budget_bytes", row.forecast.ram_limit},
                    {"plans", plans}});
  }
  return {{"ablation", list}};
}

}  // namespace tierkv::cli
