// tierkv history: what is remembered of earlier requests; it can be looked at, taken out,
// forgotten.
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace tierkv::cli {
namespace {

struct HistoryFlags {
  std::string file, model;
  int64_t most = 20;
  bool yes = false, fingerprints = false;

  std::string path() const { return file.empty() ? History::default_path() : file; }
};

std::string model_id(const HistoryEntry& entry) {
  return format("%016llx", static_cast<unsigned long long>(entry.model));
}

std::string time_text(int64_t seconds, const char* form) {
  const time_t when = seconds;
  struct tm utc;
  char text[32];
  strftime(text, sizeof(text), form, gmtime_r(&when, &utc));
  return text;
}

// Calls fn(history) and prints what went wrong with the file; a file that isn't there has nothing.
template <typename Fn>
Status with_history(const HistoryFlags& flags, Fn fn) {
  std::error_code error;
  if (!std::filesystem::exists(flags.path(), error)) {
    std::cerr << "no requests yet: there is no " << flags.path() << std::endl;
    return {};
  }
  const std::unique_ptr<History> history = History::open(flags.path());
  const Status status = fn(*history);
  if (status.ok()) print_note(history.get());
  return status;
}

// The requests of --model, or all.
Result<std::vector<HistoryEntry>> entries(const HistoryFlags& flags, History& history) {
  TIERKV_ASSIGN_OR_RETURN(std::vector<HistoryEntry> all, history.entries());
  if (flags.model.empty()) return all;
  std::erase_if(all, [&](const HistoryEntry& entry) {
    return entry.model_name != flags.model && model_id(entry) != flags.model;
  });
  return all;
}

struct Total {
  std::string name;
  int64_t requests = 0, cut_off = 0, prompt = 0, answer = 0;
};

void print_totals(const std::vector<HistoryEntry>& all) {
  std::map<uint64_t, Total> totals;
  for (const HistoryEntry& entry : all) {
    Total& total = totals[entry.model];
    total.name = entry.model_name;
    ++total.requests;
    total.cut_off += entry.seen.censored;
    total.prompt += entry.seen.prompt_tokens;
    total.answer += entry.seen.output_tokens;
  }
  for (const auto& [model, t] : totals) {
    std::cout << format(
        "%s (%016llx): %lld requests, %lld cut off; prompts of %lld tokens in the "
        "mean, answers of %lld\n",
        t.name.c_str(), static_cast<unsigned long long>(model), static_cast<long long>(t.requests),
        static_cast<long long>(t.cut_off), static_cast<long long>(t.prompt / t.requests),
        static_cast<long long>(t.answer / t.requests));
  }
  std::cout << all.size() << " requests" << std::endl;
}

Status show(const HistoryFlags& flags, History& history) {
  TIERKV_ASSIGN_OR_RETURN(const std::vector<HistoryEntry> all, entries(flags, history));
  const size_t most = static_cast<size_t>(flags.most);
  const size_t first = all.size() > most ? all.size() - most : 0;
  std::cout << format("%-17s %8s %8s  %-9s %s\n", "time (UTC)", "prompt", "answer", "stop",
                      "model");
  for (size_t i = first; i < all.size(); ++i) {
    const HistoryEntry& e = all[i];
    std::cout << format("%-17s %8d %8d  %-9s %s\n", time_text(e.time, "%Y-%m-%d %H:%M").c_str(),
                        e.seen.prompt_tokens, e.seen.output_tokens, e.stop.c_str(),
                        e.model_name.c_str());
  }
  if (first > 0) std::cout << "and " << first << " earlier ones (-n shows more)\n";
  std::cout << "\n";
  print_totals(all);
  return {};
}

Status clear(const HistoryFlags& flags, History& history) {
  if (!flags.yes) {
    if (isatty(STDIN_FILENO) == 0) {
      return invalid_argument("nothing was forgotten: give --yes to say that you mean it");
    }
    std::cerr << "Forget " << (flags.model.empty() ? "all requests" : flags.model) << "? [y/N] ";
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != "y" && answer != "Y" && answer != "yes") return {};
  }
  TIERKV_ASSIGN_OR_RETURN(const int64_t n, history.clear(flags.model));
  std::cout << n << " requests forgotten" << std::endl;
  return {};
}

nlohmann::json entry_json(const HistoryEntry& entry, bool fingerprint) {
  nlohmann::json out = {{"time", time_text(entry.time, "%Y-%m-%dT%H:%M:%SZ")},
                        {"model", model_id(entry)},
                        {"model_name", entry.model_name},
                        {"prompt_n", entry.seen.prompt_tokens},
                        {"output_n", entry.seen.output_tokens},
                        {"stop", entry.stop},
                        {"cut_off", entry.seen.censored}};
  if (fingerprint) {
    for (const uint16_t x : entry.seen.fingerprint) out["fingerprint"].push_back(f16_to_f32(x));
  }
  return out;
}

Status export_lines(const HistoryFlags& flags, History& history) {
  TIERKV_ASSIGN_OR_RETURN(const std::vector<HistoryEntry> all, entries(flags, history));
  for (const HistoryEntry& entry : all) {
    std::cout << entry_json(entry, flags.fingerprints)
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  }
  std::cout << std::flush;
  return {};
}

using Action = Status (*)(const HistoryFlags&, History&);

CLI::App* add_action(CLI::App& app, const char* name, const char* what, Action action,
                     const std::shared_ptr<HistoryFlags>& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("--history", flags->file,
                      "the history's file (default: " + History::default_path() + ")");
  command->add_option("--model", flags->model, "only this model's: its name or its number");
  command->callback([flags, action, &exit_code] {
    const Status status =
        with_history(*flags, [&](History& history) { return action(*flags, history); });
    if (!status.ok()) exit_code = report_error(status, false);
  });
  return command;
}

}  // namespace

void add_history(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<HistoryFlags>();
  CLI::App* history = app.add_subcommand(
      "history", "earlier requests, from which the length of answers is predicted");
  history->require_subcommand(1);
  add_action(*history, "show", "a table of the newest requests, and totals", show, flags, exit_code)
      ->add_option("-n", flags->most, "rows")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_action(*history, "clear", "forget them", clear, flags, exit_code)
      ->add_flag("--yes", flags->yes, "don't ask");
  add_action(*history, "export", "print them as JSON, one a line", export_lines, flags, exit_code)
      ->add_flag("--fingerprints", flags->fingerprints, "with the fingerprints, 128 numbers each");
}

}  // namespace tierkv::cli
