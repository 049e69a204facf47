// A request as it would come out, before its prompt is read and without weights: what `tierkv plan`
// shows, with what the request would be under other constraints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "plan/explain.h"
#include "plan/plan.h"

namespace tierkv {

class Engine;
struct SessionOptions;

struct Forecast {
  uint64_t ram_limit = MemoryBudget::kUnlimited;
  int64_t chunk = 0;  // tokens that prefill reads at once: the more RAM, the more, and more scratch
  uint64_t weight_bytes = 0, overhead_bytes = 0;
  uint64_t scratch_bytes = 0;          // while the answer is generated
  uint64_t prefill_scratch_bytes = 0;  // while the prompt is read, before its tokens are settled
  PlanInput input;
  Plan plan;

  // Of the whole process.
  uint64_t ram_bytes() const {
    return weight_bytes + scratch_bytes + overhead_bytes + plan.ram_bytes;
  }
};

// The request with something changed.
enum class Change : uint8_t {
  kNone,
  kNoRamLimit,
  kTwiceTheRam,
  kNoKldBudget,
  kNoFlash,
  kFlash,
  kStricter,  // the next stricter quality
  kLooser,    // the next looser one
  kAuto,      // the planner's choice, where the request forces a layout
  kRam,       // a step of the ladder of RAM
  kQuality    // a step of the ladder of KLD budgets
};
const char* change_name(Change change);

struct Variant {
  Change change = Change::kNone;
  std::string name;  // for people: "no RAM ceiling", "quality high", "160M"
  double kld_budget = 0;
  uint64_t ram_limit = MemoryBudget::kUnlimited;
  std::optional<Forecast> forecast;  // none: it does not fit
  uint64_t least_ram = 0;            // then: the least that would do, of the whole process
  bool pareto = false;               // in a ladder: none of both ladders and the plan beats it
};

struct PlanStudy {
  Forecast plan;
  std::vector<Variant> changes;
  std::vector<Change> binding;  // of `changes`: those that lift a constraint and improve the plan
  std::vector<Variant> by_ram;  // from the least to all exact, the request else as it is
  std::vector<Variant> by_quality;
  bool pareto = false;  // the plan itself: as Variant::pareto
};

// An error when the request does not fit: says what would do.
Result<PlanStudy> study_plan(Engine& engine, const SessionOptions& options);

// The request under each ceiling of a ladder from the least to all exact, whatever the engine's.
std::vector<Variant> forecast_by_ram(Engine& engine, const SessionOptions& options);

}  // namespace tierkv
