// tierkv bench: how fast models read and generate, with llama-bench's flags and test names, and
// what share that is of what the machine can do.
#include <charconv>
#include <map>

#include "base/thread_pool.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace tierkv::cli {
namespace {

// As given: several of a flag add up, each may be a list with commas.
struct BenchFlags {
  std::vector<std::string> models, prompts = {"512"}, generated = {"128"}, depths = {"0"}, threads;
  std::string ram, output = "md";
  KvFlags kv;
  TraceFlag trace;
  int repetitions = 5;
  int64_t max_chunk = 0;
  bool no_roofs = false, no_warmup = false;

  bool prints_json() const { return output == "json" || output == "jsonl"; }
};

// The flags understood.
struct BenchPlan {
  std::vector<std::string> models;
  std::vector<int> threads;
  std::vector<BenchTest> tests;
  std::string ram, kv;
  TraceFlag trace;
  BenchOptions options;

  Result<std::unique_ptr<Engine>> open(const std::string& model, int n_threads) const {
    ModelFlags flags;
    flags.model = model;
    flags.ram = ram;
    flags.threads = n_threads;
    return flags.open();
  }
};

// A flag's lists of whole numbers, one after the other.
Result<std::vector<int64_t>> parse_counts(const char* flag, const std::vector<std::string>& lists,
                                          int64_t least, int64_t most) {
  std::vector<int64_t> counts;
  for (const std::string& list : lists) {
    const char* at = list.data();
    const char* const end = at + list.size();
    for (bool more = true; more; ++at) {
      int64_t count = 0;
      const auto [parsed, error] = std::from_chars(at, end, count);
      more = parsed != end && *parsed == ',';
      if (error != std::errc() || (parsed != end && !more) || count < least || count > most) {
        return invalid_argument(format(
            "\"%s\" is no value for %s; give whole numbers from %lld to %lld, separated by commas",
            list.c_str(), flag, static_cast<long long>(least), static_cast<long long>(most)));
      }
      counts.push_back(count);
      at = parsed;
    }
  }
  return counts;
}

// llama-bench's order: at each depth prompts, then generation. 0 leaves a test out.
Result<std::vector<BenchTest>> parse_tests(const BenchFlags& flags) {
  constexpr int64_t kMost = int64_t{1} << 30;
  TIERKV_ASSIGN_OR_RETURN(const auto prompts, parse_counts("-p", flags.prompts, 0, kMost));
  TIERKV_ASSIGN_OR_RETURN(const auto generated, parse_counts("-n", flags.generated, 0, kMost));
  TIERKV_ASSIGN_OR_RETURN(const auto depths, parse_counts("-d", flags.depths, 0, kMost));
  std::vector<BenchTest> tests;
  for (const int64_t depth : depths) {
    for (const int64_t n : prompts) {
      if (n > 0) tests.push_back({n, 0, depth});
    }
    for (const int64_t n : generated) {
      if (n > 0) tests.push_back({0, n, depth});
    }
  }
  if (tests.empty()) return invalid_argument("nothing to measure: give -p or -n above 0");
  return tests;
}

Result<BenchPlan> make_plan(const BenchFlags& flags) {
  BenchPlan plan;
  plan.models = flags.models;
  plan.ram = flags.ram;
  plan.kv = flags.kv.kv.empty() ? "auto" : flags.kv.kv;
  TIERKV_ASSIGN_OR_RETURN(plan.tests, parse_tests(flags));
  TIERKV_ASSIGN_OR_RETURN(const auto threads, parse_counts("-t", flags.threads, 1, 1024));
  plan.threads.assign(threads.begin(), threads.end());
  if (plan.threads.empty()) plan.threads = {ThreadPool::available_cpus()};
  TIERKV_ASSIGN_OR_RETURN(plan.options.request, flags.kv.request());
  plan.options.repetitions = flags.repetitions;
  plan.options.max_chunk = flags.max_chunk;
  plan.options.warmup = !flags.no_warmup;
  plan.options.disk_roof = !flags.no_roofs;
  plan.trace = flags.trace;
  plan.options.cancel = &interrupted();
  return plan;
}

// Before anything takes time: every model opens, and every test fits in its context and the RAM.
Status check_all(const BenchPlan& plan) {
  for (const std::string& model : plan.models) {
    TIERKV_ASSIGN_OR_RETURN(const auto engine, plan.open(model, plan.threads.front()));
    for (const BenchTest& test : plan.tests) {
      TIERKV_RETURN_IF_ERROR(check_bench(*engine, test, plan.options).with_context(model));
    }
  }
  return {};
}

// By number of threads. An engine without weights gives the instruction set and the budget.
Result<std::map<int, Roofs>> measure_all_roofs(const BenchPlan& plan, BenchPrinter& printer) {
  std::map<int, Roofs> roofs;
  for (const int n_threads : plan.threads) {
    if (roofs.count(n_threads) != 0) continue;
    TIERKV_ASSIGN_OR_RETURN(const auto engine, plan.open(plan.models.front(), n_threads));
    roofs[n_threads] = measure_roofs(engine->kernels(), engine->pool(), engine->budget());
    if (interrupted()) return cancelled("stopped at the caller's request");
    printer.roofs(isa_name(engine->kernels().isa), n_threads, roofs[n_threads]);
  }
  return roofs;
}

BenchRow make_row(Engine& engine, const BenchPlan& plan, const BenchTest& test) {
  BenchRow row;
  row.model = engine.file().path();
  for (const GgufTensor& tensor : engine.file().tensors()) {
    row.model_bytes += tensor.bytes;
    row.model_params += tensor.n_rows() * tensor.n_cols();
  }
  row.weights_bytes = engine.weight_bytes();
  row.threads = engine.pool().size();
  row.isa = isa_name(engine.kernels().isa);
  row.kv = plan.kv;
  row.test = test;
  return row;
}

Status run_tests(const BenchPlan& plan, const std::string& model, int n_threads,
                 const std::map<int, Roofs>& roofs, BenchPrinter& printer) {
  TIERKV_ASSIGN_OR_RETURN(const auto engine, plan.open(model, n_threads));
  TIERKV_ASSIGN_OR_RETURN(const auto trace, plan.trace.create(engine->budget()));
  TIERKV_RETURN_IF_ERROR(load_with_progress(*engine, &interrupted()));
  for (const BenchTest& test : plan.tests) {
    BenchRow row = make_row(*engine, plan, test);
    if (const auto found = roofs.find(n_threads); found != roofs.end()) row.roofs = found->second;
    {
      Progress progress(test.name(), "repetitions");
      BenchOptions options = plan.options;
      options.trace = trace.get();
      options.progress = [&](int done) { progress.update(done, options.repetitions); };
      TIERKV_ASSIGN_OR_RETURN(row.result, run_bench(*engine, test, options));
    }
    printer.row(row);
  }
  return plan.trace.write(trace.get());
}

Status execute(const BenchFlags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const BenchPlan plan, make_plan(flags));
  TIERKV_RETURN_IF_ERROR(check_all(plan));
  const std::unique_ptr<BenchPrinter> printer = make_bench_printer(flags.output);
  std::map<int, Roofs> roofs;
  if (!flags.no_roofs) {
    TIERKV_ASSIGN_OR_RETURN(roofs, measure_all_roofs(plan, *printer));
  }
  for (const std::string& model : plan.models) {
    for (const int n_threads : plan.threads) {
      TIERKV_RETURN_IF_ERROR(run_tests(plan, model, n_threads, roofs, *printer));
    }
  }
  printer->end();
  return {};
}

CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& list,
                      const std::string& description) {
  return app.add_option(name, list, description)->allow_extra_args(false)->capture_default_str();
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  flags->kv.kv = "exact";
  CLI::App* bench = app.add_subcommand(
      "bench", "measure speed as llama-bench does, and what share of the machine's best it is");
  add_list(*bench, "-m,--model", flags->models, "GGUF files, separated by commas")
      ->delimiter(',')
      ->required();
  add_list(*bench, "-p,--n-prompt", flags->prompts, "tokens of prompts to read (0: none)");
  add_list(*bench, "-n,--n-gen", flags->generated, "tokens to generate (0: none)");
  add_list(*bench, "-d,--n-depth", flags->depths, "tokens in the cache before");
  add_list(*bench, "-t,--threads", flags->threads, "threads (default: one per CPU)");
  bench->add_option("-r,--repetitions", flags->repetitions, "repetitions of each test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  bench
      ->add_option(
          "-u,--ubatch-size", flags->max_chunk,
          "most tokens of a prompt to read at once (default: what the RAM allows, up to 512)")
      ->check(CLI::Range(1, 512));
  bench->add_option("-o,--output", flags->output, "output format")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  bench->add_option("--ram", flags->ram,
                    "RAM ceiling of the process: 300M, 1.5G, 2GiB (default: no ceiling)");
  flags->kv.add_to(*bench);
  flags->trace.add_to(*bench);
  bench->get_option("--kv")->capture_default_str();
  bench->add_flag("--no-roofs", flags->no_roofs, "do not measure what the machine can do");
  bench->add_flag("--no-warmup", flags->no_warmup, "do not run each test once before");
  bench->callback([flags, &exit_code] {
    const Status status = execute(*flags);
    if (!status.ok()) exit_code = report_error(status, flags->prints_json());
  });
}

}  // namespace tierkv::cli
