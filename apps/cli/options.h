// Flags that several subcommands share, spelled as llama.cpp spells them where it has them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/engine.h"
#include "runtime/history.h"
#include "runtime/kv_request.h"
#include "runtime/sampler.h"
#include "runtime/session.h"

namespace tierkv::cli {

struct ModelFlags {
  std::string model, ram;
  int threads = 0;
  bool json = false;

  void add_to(CLI::App& app);
  // Opens the engine: header and tokenizer, weights not yet.
  Result<std::unique_ptr<Engine>> open() const;
};

struct KvFlags {
  std::string kv, quality = "balanced", flash, flash_io = "auto", flash_overlap = "on";
  std::string flash_read = "exact", flash_copy = "auto", plan_rule = "joint";
  std::string costs = "auto", profile;
  bool no_flash = false;

  void add_to(CLI::App& app);  // all but the profile (add_profile_flag) and the next
  // --flash-read and --flash-copy: of the subcommands that decode.
  void add_flash_read_to(CLI::App& app);
  Result<KvRequest> request() const;
  // The same with the model's profile, if there is one.
  Result<KvRequest> request(const Engine& engine) const;
  // What decoding costs here, for `request`, as --costs says; the engine is loaded.
  void set_costs(Engine& engine, KvRequest& request) const;
  // Whether the flags go with --session, if that was given: it is a way of using flash.
  Status check(bool with_session) const;
};

void add_profile_flag(CLI::App& app, std::string& profile);
// Says on stderr when a profile was found that does not serve.
Result<AccuracyChoice> read_accuracy(const Engine& engine, const std::string& profile);

struct GenerationFlags {
  SamplingOptions sampling;
  int64_t n_predict = -1, expect = 0, n_context = 0;
  int64_t seed = -1;
  bool ignore_eos = false, no_history = false;
  std::vector<std::string> stop;
  std::string history, fingerprint = "tail";

  void add_to(CLI::App& app);
  // What --expect says, else -n, else the default.
  int64_t expected_output() const;
  // The history, this model's requests loaded; null with --no-history.
  std::unique_ptr<History> open_history(Engine& engine) const;
  FingerprintRule fingerprint_rule() const;
  // Lets the session predict with the history, which may be null, and learn.
  void use_history(History* history, SessionOptions& options) const;
  GenerateOptions generate_options() const;
};

// Prints what went wrong with the history, if anything did.
void print_note(History* history);

// --trace: null when no file was named.
struct TraceFlag {
  std::string path;

  void add_to(CLI::App& app);
  Result<std::unique_ptr<Trace>> create(MemoryBudget& budget) const;
  // Writes what was traced, if anything was.
  Status write(const Trace* trace) const;
};

// Reads a whole file, or standard input for "-". Fails when it is not valid UTF-8: says where.
Result<std::string> read_text(const std::string& path);

// Loads the weights with progress on a terminal.
Status load_with_progress(Engine& engine, const std::atomic<bool>* cancel);

}  // namespace tierkv::cli
