#include "runtime/forecast.h"

#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "plan/explain.h"
#include "runtime/session.h"

namespace tierkv {
namespace {

constexpr int kRamSteps = 9;
// Names' budgets, and some between them.
constexpr double kKldSteps[] = {0, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2};
constexpr uint64_t kMiB = 1 << 20;

// The engine's ceiling changed for a while.
class OtherCeiling {
 public:
  OtherCeiling(MemoryBudget& budget, uint64_t bytes) : budget_(budget), before_(budget.limit()) {
    budget_.set_limit(bytes);
  }
  ~OtherCeiling() { budget_.set_limit(before_); }
  OtherCeiling(const OtherCeiling&) = delete;
  OtherCeiling& operator=(const OtherCeiling&) = delete;

 private:
  MemoryBudget& budget_;
  const uint64_t before_;
};

uint64_t round_up_to_mib(uint64_t bytes) { return (bytes + kMiB - 1) / kMiB * kMiB; }

std::string quality_name(double kld_budget) {
  for (const Quality& quality : kQualities) {
    if (quality.kld == kld_budget) return quality.name;
  }
  return format("%g", kld_budget);
}

class Study {
 public:
  Study(Engine& engine, const SessionOptions& options)
      : engine_(engine), options_(options), limit_(engine.budget().limit()) {}

  Variant vary(Change change, std::string name, const SessionOptions& options,
               uint64_t limit) const {
    const OtherCeiling ceiling(engine_.budget(), limit);
    Variant variant{.change = change,
                    .name = std::move(name),
                    .kld_budget = options.request.kld_budget,
                    .ram_limit = limit};
    const Result<Forecast> forecast = Session::forecast(engine_, options);
    if (forecast.ok()) {
      variant.forecast = *forecast;
    } else {
      variant.least_ram = Session::least_ram(engine_, options);
    }
    return variant;
  }

  std::vector<Variant> changes() const {
    std::vector<Variant> list;
    if (limit_ != MemoryBudget::kUnlimited) {
      list.push_back(
          vary(Change::kNoRamLimit, "no RAM ceiling", options_, MemoryBudget::kUnlimited));
      const uint64_t twice = limit_ > MemoryBudget::kUnlimited / 2 ? limit_ : 2 * limit_;
      list.push_back(vary(Change::kTwiceTheRam, "twice the RAM", options_, twice));
    }
    if (options_.request.kv.forced) {
      SessionOptions free = options_;
      free.request.kv = {};
      list.push_back(vary(Change::kAuto, "the planner's choice", free, limit_));
      return list;
    }
    list.push_back(with_kld(Change::kNoKldBudget, "no KLD budget", INFINITY));
    list.push_back(other_flash());
    const double budget = options_.request.kld_budget;
    if (const Quality* quality = stricter_quality(budget)) {
      list.push_back(
          with_kld(Change::kStricter, std::string("quality ") + quality->name, quality->kld));
    }
    if (const Quality* quality = looser_quality(budget)) {
      list.push_back(
          with_kld(Change::kLooser, std::string("quality ") + quality->name, quality->kld));
    }
    return list;
  }

  std::vector<Variant> by_quality() const {
    std::vector<Variant> list;
    for (const double kld : kKldSteps) {
      list.push_back(with_kld(Change::kQuality, quality_name(kld), kld));
    }
    return list;
  }

  std::vector<Variant> by_ram() const {
    SessionOptions exact = options_;
    exact.request.kv = {.forced = ForcedLayout::kExact, .codecs = {}};
    const uint64_t least = round_up_to_mib(Session::least_ram(engine_, options_));
    const uint64_t most = round_up_to_mib(Session::least_ram(engine_, exact));
    std::vector<Variant> list;
    for (const uint64_t ram : ram_ladder(least / kMiB, most / kMiB, kRamSteps)) {
      const uint64_t bytes = ram * kMiB;
      list.push_back(vary(Change::kRam, format_size_argument(bytes), options_, bytes));
    }
    return list;
  }

 private:
  Variant with_kld(Change change, std::string name, double kld_budget) const {
    SessionOptions options = options_;
    options.request.kld_budget = kld_budget;
    return vary(change, std::move(name), options, limit_);
  }

  Variant other_flash() const {
    SessionOptions options = options_;
    std::string& directory = options.request.flash_directory;
    const bool has_flash = !directory.empty();
    directory = has_flash ? "" : default_flash_directory();
    return has_flash ? vary(Change::kNoFlash, "without flash", options, limit_)
                     : vary(Change::kFlash, "flash", options, limit_);
  }

  Engine& engine_;
  const SessionOptions& options_;
  const uint64_t limit_;
};

bool lifts(Change change) {
  return change == Change::kNoRamLimit || change == Change::kNoKldBudget ||
         change == Change::kFlash;
}

PlanPoint point_of(const Forecast& forecast) {
  return {forecast.ram_bytes(), forecast.plan.kld, forecast.plan.seconds_per_token};
}

void mark_pareto(PlanStudy& study) {
  std::vector<PlanPoint> points = {point_of(study.plan)};
  std::vector<Variant*> variants;
  for (std::vector<Variant>* ladder : {&study.by_ram, &study.by_quality}) {
    for (Variant& variant : *ladder) {
      if (!variant.forecast) continue;
      points.push_back(point_of(*variant.forecast));
      variants.push_back(&variant);
    }
  }
  const std::vector<bool> front = pareto_front(points);
  study.pareto = front[0];
  for (size_t i = 0; i < variants.size(); ++i) variants[i]->pareto = front[i + 1];
}

// What would fit without more RAM, to follow an error that says how much RAM would do.
std::string advice(const Study& study) {
  std::string text;
  for (const Variant& variant : study.changes()) {
    const bool is_advice = variant.change == Change::kFlash || variant.change == Change::kAuto ||
                           variant.change == Change::kStricter || variant.change == Change::kLooser;
    if (!is_advice || !variant.forecast) continue;
    text += (text.empty() ? "; this much would do with " : " or with ") + variant.name;
  }
  return text;
}

}  // namespace

const char* change_name(Change change) {
  switch (change) {
    case Change::kNone:
      return "none";
    case Change::kNoRamLimit:
      return "no_ram_limit";
    case Change::kTwiceTheRam:
      return "twice_the_ram";
    case Change::kNoKldBudget:
      return "no_kld_budget";
    case Change::kNoFlash:
      return "no_flash";
    case Change::kFlash:
      return "flash";
    case Change::kStricter:
      return "stricter_quality";
    case Change::kLooser:
      return "looser_quality";
    case Change::kAuto:
      return "auto";
    case Change::kRam:
      return "ram";
    case Change::kQuality:
      return "quality";
  }
  return "";
}

Result<PlanStudy> study_plan(Engine& engine, const SessionOptions& options) {
  const Study variants(engine, options);
  Result<Forecast> forecast = Session::forecast(engine, options);
  if (!forecast.ok()) {
    const Status& status = forecast.status();
    if (status.code() != StatusCode::kResourceExhausted) return status;
    return Status(status.code(), status.message() + advice(variants));
  }
  PlanStudy study;
  study.plan = std::move(*forecast);
  study.changes = variants.changes();
  for (const Variant& variant : study.changes) {
    if (lifts(variant.change) && variant.forecast &&
        improves(variant.forecast->plan, study.plan.plan)) {
      study.binding.push_back(variant.change);
    }
  }
  study.by_ram = variants.by_ram();
  if (!options.request.kv.forced) study.by_quality = variants.by_quality();
  mark_pareto(study);
  return study;
}

std::vector<Variant> forecast_by_ram(Engine& engine, const SessionOptions& options) {
  return Study(engine, options).by_ram();
}

}  // namespace tierkv
