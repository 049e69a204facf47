#include "runtime/plan_ablation.h"

namespace tierkv {

std::vector<AblationRow> ablate(Engine& engine, const SessionOptions& options) {
  std::vector<AblationRow> rows;
  for (const Quality& quality : kQualities) {
    if (quality.kld == 0) continue;  // nothing is compressed: the rules don't differ
    SessionOptions with_quality = options;
    with_quality.request.kld_budget = quality.kld;
    for (const Variant& variant : forecast_by_ram(engine, with_quality)) {
      if (!variant.forecast) continue;
      AblationRow row{quality.kld, *variant.forecast, {}};
      for (const PlanRule rule : kPlanRules) {
        const Result<Plan> plan = plan_by(rule, row.forecast.input);
        row.plans.push_back(plan.ok() ? std::optional(*plan) : std::nullopt);
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace tierkv
