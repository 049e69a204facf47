// What each freedom of the planner is worth: the plans of plan/ablation.h for one request under a
// grid of budgets.
#pragma once

#include <optional>
#include <vector>

#include "plan/ablation.h"
#include "runtime/forecast.h"
#include "runtime/session.h"

namespace tierkv {

struct AblationRow {
  double kld_budget = 0;
  Forecast forecast;                       // the joint plan's
  std::vector<std::optional<Plan>> plans;  // one per kPlanRules; none: nothing fits
};

// KLD budgets of the named qualities that allow any, each from the least RAM for it to all exact.
std::vector<AblationRow> ablate(Engine& engine, const SessionOptions& options);

}  // namespace tierkv
