#include "cli/options.h"

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <random>

#include "base/size.h"
#include "cli/terminal.h"
#include "runtime/profile.h"

namespace tierkv::cli {

void ModelFlags::add_to(CLI::App& app) {
  app.add_option("-m,--model", model, "GGUF file")->required();
  app.add_option("--ram", ram,
                 "RAM ceiling of the process: 300M, 1.5G, 2GiB (default: no ceiling)");
  app.add_option("-t,--threads", threads, "threads (default: one per CPU)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", json, "print one JSON object instead of text");
}

Result<std::unique_ptr<Engine>> ModelFlags::open() const {
  EngineOptions options;
  options.model_path = model;
  options.n_threads = threads;
  if (const char* isa = std::getenv("TIERKV_ISA")) options.isa = isa;
  if (!ram.empty()) {
    TIERKV_ASSIGN_OR_RETURN(options.ram_bytes, parse_size(ram));
  }
  return Engine::open(options);
}

void KvFlags::add_to(CLI::App& app) {
  app.add_option(
      "--kv", kv,
      "force a KV layout: exact, flash, a codec such as k5v4, or bits an element such as 4.25");
  app.add_option("--quality", quality,
                 "most accuracy that compression may cost: exact, high, balanced, compact, or a KL "
                 "divergence in nats a token")
      ->capture_default_str();
  app.add_option(
      "--flash", flash,
      "directory for KV that RAM does not hold (default: " + default_flash_directory() + ")");
  app.add_flag("--no-flash", no_flash, "never write KV to flash");
  app.add_option("--flash-io", flash_io, "how flash is read and written: auto, uring, pool")
      ->check(CLI::IsMember({"auto", "uring", "pool"}))
      ->capture_default_str();
  app.add_option("--flash-overlap", flash_overlap,
                 "read ahead and write behind (on), or only when asked (off: for comparison)")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option(
         "--plan-by", plan_rule,
         "with how much freedom the planner plans (for comparison): joint, refined, uniform "
         "or fixed, as in tierkv plan --ablation")
      ->capture_default_str();
  app.add_option("--costs", costs,
                 "what decoding costs on this device, for the planner: auto (measured once, then "
                 "kept), measure (anew), default (fixed figures)")
      ->check(CLI::IsMember({"auto", "measure", "default"}))
      ->capture_default_str();
}

void KvFlags::add_flash_read_to(CLI::App& app) {
  app.add_option("--flash-read", flash_read,
                 "what an answer reads of the KV on flash: exact (all of it), or auto (of what has "
                 "a compressed copy in RAM only what matters at the asked --quality)")
      ->check(CLI::IsMember({"exact", "auto"}))
      ->capture_default_str();
  app.add_option("--flash-copy", flash_copy,
                 "codec of these copies, such as k4v3 (default: the best for the RAM left)")
      ->capture_default_str();
}

void KvFlags::set_costs(Engine& engine, KvRequest& request) const {
  if (costs == "default" || request.kv.forced) return;
  const bool flash_may_be_used = engine.budget().limit() != MemoryBudget::kUnlimited;
  const std::string& directory = flash_may_be_used ? request.flash_directory : std::string();
  request.costs = device_costs(engine, directory, costs == "measure");
}

void add_profile_flag(CLI::App& app, std::string& profile) {
  app.add_option("--profile", profile,
                 "accuracy profile to plan with, or none (default: what tierkv calibrate wrote for "
                 "the model)");
}

Result<AccuracyChoice> read_accuracy(const Engine& engine, const std::string& profile) {
  Result<AccuracyChoice> accuracy =
      choose_accuracy(real_file_system(), engine.file().path(), model_hash(engine.file()),
                      engine.kv_layout(), profile);
  if (accuracy.ok() && !accuracy->note.empty()) std::cerr << "note: " << accuracy->note << "\n";
  return accuracy;
}

Result<KvRequest> KvFlags::request(const Engine& engine) const {
  TIERKV_ASSIGN_OR_RETURN(KvRequest request, this->request());
  TIERKV_ASSIGN_OR_RETURN(request.accuracy, read_accuracy(engine, profile));
  return request;
}

Result<KvRequest> KvFlags::request() const {
  KvRequest request;
  TIERKV_ASSIGN_OR_RETURN(request.kv, parse_kv_spec(kv));
  TIERKV_ASSIGN_OR_RETURN(request.kld_budget, parse_quality(quality));
  TIERKV_ASSIGN_OR_RETURN(request.plan_rule, parse_plan_rule(plan_rule));
  if (no_flash && (!flash.empty() || request.kv.forced == ForcedLayout::kAllFlash)) {
    return invalid_argument("--no-flash contradicts --flash and --kv flash; leave one out");
  }
  TIERKV_ASSIGN_OR_RETURN(request.flash_io, parse_flash_io(flash_io));
  request.flash_overlap = flash_overlap == "off" ? FlashOverlap::kOff : FlashOverlap::kOn;
  if (flash_read == "auto") request.flash_read = FlashRead::kAuto;
  TIERKV_ASSIGN_OR_RETURN(request.flash_copy, parse_flash_copy(flash_copy));
  if (!request.flash_copy.empty() && flash_read != "auto") {
    return invalid_argument("--flash-copy is of --flash-read auto; give that, or leave it out");
  }
  if (!no_flash) request.flash_directory = flash.empty() ? default_flash_directory() : flash;
  return request;
}

Status KvFlags::check(bool with_session) const {
  if (!with_session || (!no_flash && flash.empty())) return {};
  return invalid_argument(no_flash
                              ? "--session writes the KV cache to a file; leave out --no-flash"
                              : "--session keeps the KV cache in its own file; leave out --flash");
}

void GenerationFlags::add_to(CLI::App& app) {
  app.add_option("-n,--n-predict", n_predict, "most tokens to generate (-1: until the model stops)")
      ->capture_default_str();
  app.add_option("--stop", stop,
                 "text that ends the answer, and is not shown; may be given again for more "
                 "(a line's end in bash: --stop $'\\n')")
      ->allow_extra_args(false);
  app.add_option(
         "--expect", expect,
         "tokens of answer to plan for (default: what the history predicts; without one -n, "
         "else 256)")
      ->check(CLI::NonNegativeNumber);
  CLI::Option* file = app.add_option(
      "--history", history,
      "file of earlier requests, from which answers' lengths are predicted (default: " +
          History::default_path() + ")");
  app.add_flag("--no-history", no_history, "predict nothing, and don't remember this request")
      ->excludes(file);
  app.add_option("--fingerprint", fingerprint,
                 "what the history remembers of a prompt: tail, the hidden states at its end, or "
                 "entropy, those all over it weighted by entropy")
      ->check(CLI::IsMember({"tail", "entropy"}))
      ->capture_default_str();
  app.add_option("-c,--ctx-size", n_context, "most tokens of context (default: the model's own)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-s,--seed", seed, "seed of sampling (-1: random)")->capture_default_str();
  app.add_option("--temp", sampling.temperature, "temperature (0: greedy)")->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "sample among the k best (0: all)")
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "sample among the best of total probability p (1: all)")
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p, "least probability relative to the best (0: off)")
      ->capture_default_str();
  app.add_option("--repeat-penalty", sampling.repeat_penalty, "penalty of repeated tokens (1: off)")
      ->capture_default_str();
  app.add_option("--repeat-last-n", sampling.repeat_last_n, "tokens the penalty looks back on")
      ->capture_default_str();
  app.add_flag("--ignore-eos", ignore_eos, "go on after the model would stop");
}

int64_t GenerationFlags::expected_output() const {
  if (expect > 0) return expect;
  return n_predict > 0 ? n_predict : kDefaultExpectedOutput;
}

std::unique_ptr<History> GenerationFlags::open_history(Engine& engine) const {
  if (no_history) return nullptr;
  auto opened = History::open(history.empty() ? History::default_path() : history);
  opened->load(History::key(model_hash(engine.file()), fingerprint_rule()));
  print_note(opened.get());
  engine.measure_overhead();
  return opened;
}

FingerprintRule GenerationFlags::fingerprint_rule() const {
  return fingerprint == "entropy" ? FingerprintRule::kEntropy : FingerprintRule::kTail;
}

void GenerationFlags::use_history(History* history, SessionOptions& options) const {
  options.history = history;
  options.fingerprint = fingerprint_rule();
  options.expected_given = expect > 0;
  if (n_predict > 0) options.most_predicted = n_predict;
}

void print_note(History* history) {
  const std::string note = history != nullptr ? history->take_note() : "";
  if (!note.empty()) std::cerr << "note: " << note << std::endl;
}

GenerateOptions GenerationFlags::generate_options() const {
  GenerateOptions options;
  options.max_tokens = n_predict;
  options.sampling = sampling;
  options.sampling.seed = seed >= 0 ? static_cast<uint64_t>(seed) : std::random_device()();
  options.stop = stop;
  options.ignore_eos = ignore_eos;
  return options;
}

void TraceFlag::add_to(CLI::App& app) {
  app.add_option("--trace", path,
                 "file for a trace of compute and flash I/O, for chrome://tracing or Perfetto");
}

Result<std::unique_ptr<Trace>> TraceFlag::create(MemoryBudget& budget) const {
  if (path.empty()) return std::unique_ptr<Trace>();
  TIERKV_RETURN_IF_ERROR(real_file_system().create(path).status());  // before the work, not after
  return Trace::create(budget);
}

Status TraceFlag::write(const Trace* trace) const {
  if (trace == nullptr) return {};
  TIERKV_ASSIGN_OR_RETURN(const auto file, real_file_system().create(path));
  return trace->write(*file);
}

Result<std::string> read_text(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    TIERKV_ASSIGN_OR_RETURN(const auto file, real_file_system().open_read(path));
    TIERKV_ASSIGN_OR_RETURN(const uint64_t bytes, file->size());
    text.resize(bytes);
    TIERKV_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  }
  if (text.empty()) return invalid_argument((path == "-" ? "standard input" : path) + " is empty");
  return text;
}

Status load_with_progress(Engine& engine, const std::atomic<bool>* cancel) {
  Progress progress("loading", "MiB");
  return engine.load([&](uint64_t done, uint64_t total) {
    progress.update(static_cast<int64_t>(done >> 20), static_cast<int64_t>(total >> 20));
    return cancel == nullptr || !cancel->load();
  });
}

}  // namespace tierkv::cli
