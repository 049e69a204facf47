// tierkv plan: what a request would come to, and why, before anything is loaded.
#include <fstream>
#include <iostream>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/plan_report.h"
#include "cli/terminal.h"

namespace tierkv::cli {
namespace {

struct PlanFlags {
  ModelFlags model;
  KvFlags kv;
  int64_t prompt_tokens = 0, expect = kDefaultExpectedOutput, n_context = 0;
  std::string svg;
  bool ablation = false;
};

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  if (out) out << text << std::flush;
  return out ? Status() : io_error("cannot write " + path);
}

void print_json(const nlohmann::json& json) {
  std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

void print_ablation(Engine& engine, const SessionOptions& options, bool json) {
  const std::vector<AblationRow> rows = ablate(engine, options);
  if (json) {
    print_json(ablation_json(rows));
  } else {
    std::cout << ablation_text(rows);
  }
}

Status execute(const PlanFlags& flags) {
  if (flags.kv.costs == "measure") {
    return invalid_argument(
        "plan reads no weights, so it can't measure; run and bench do (--costs measure), and plan "
        "takes what they kept");
  }
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.model.open());
  SessionOptions options;
  TIERKV_ASSIGN_OR_RETURN(options.request, flags.kv.request(*engine));
  if (flags.kv.costs == "auto") options.request.costs = cached_device_costs(*engine);
  options.request.n_prompt = flags.prompt_tokens;
  options.request.n_expected = flags.expect;
  options.n_context = flags.n_context;
  if (flags.ablation) {
    print_ablation(*engine, options, flags.model.json);
    return {};
  }
  TIERKV_ASSIGN_OR_RETURN(const PlanStudy study, study_plan(*engine, options));
  const PlanView view{*engine, options, study};
  if (!flags.svg.empty()) TIERKV_RETURN_IF_ERROR(write_file(flags.svg, plan_svg(view)));
  if (flags.model.json) {
    print_json(plan_json(view));
  } else {
    std::cout << plan_text(view);
  }
  return {};
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* plan = app.add_subcommand(
      "plan", "where a prompt's KV would go, what that costs, and which constraint binds");
  flags->model.add_to(*plan);
  plan->add_option("--prompt-tokens", flags->prompt_tokens, "tokens of prompt")
      ->required()
      ->check(CLI::PositiveNumber);
  plan->add_option("--expect", flags->expect, "tokens of answer to plan for")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  plan->add_option("-c,--ctx-size", flags->n_context,
                   "most tokens of context (default: the model's own)")
      ->check(CLI::NonNegativeNumber);
  flags->kv.add_to(*plan);
  add_profile_flag(*plan, flags->kv.profile);
  CLI::Option* svg = plan->add_option("--svg", flags->svg, "also draw the plan into this file");
  plan->add_flag("--ablation", flags->ablation,
                 "instead: compare plans made with less freedom, over a grid of budgets")
      ->excludes(svg);
  plan->callback([flags, &exit_code] {
    const Status status = execute(*flags);
    if (!status.ok()) exit_code = report_error(status, flags->model.json);
  });
}

}  // namespace tierkv::cli
