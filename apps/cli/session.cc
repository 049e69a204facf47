// tierkv session: the saved sessions, looked at from outside.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "runtime/session_store.h"
#include "runtime/session_verify.h"

namespace tierkv::cli {
namespace {

struct Flags {
  std::string session, directory, model;
  bool json = false;

  Result<std::string> path() const {
    TIERKV_ASSIGN_OR_RETURN(const SessionPlace place, locate_session(session, directory));
    return place.path;
  }
  std::string folder() const { return directory.empty() ? default_session_directory() : directory; }
};

std::string time_text(int64_t ns) {
  const std::time_t time = ns / 1000000000;
  std::tm parts;
  char text[32];
  if (localtime_r(&time, &parts) == nullptr) return "?";
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts) > 0 ? text : "?";
}

nlohmann::json to_json(const SessionInfo& info) {
  return {{"name", info.name},
          {"path", info.path},
          {"model", info.model},
          {"disk_bytes", info.disk_bytes},
          {"last_used", static_cast<double>(info.last_used_ns) / 1e9},
          {"in_use", info.in_use},
          {"problem", info.problem},
          {"n_tokens", info.n_tokens},
          {"n_answered", info.n_answered},
          {"max_tokens", info.max_tokens},
          {"n_points", info.n_points},
          {"n_unreadable", info.n_unreadable}};
}

void print(const nlohmann::json& json) {
  std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

std::string state_text(const SessionInfo& info) {
  if (info.in_use) return "in use";
  return info.problem.empty() ? info.model : "damaged: " + info.problem;
}

Status list(const Flags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const std::vector<SessionInfo> sessions,
                          list_sessions(real_file_system(), flags.folder()));
  if (flags.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const SessionInfo& info : sessions) all.push_back(to_json(info));
    print(all);
    return {};
  }
  if (sessions.empty()) std::cout << "no sessions in " << flags.folder() << std::endl;
  for (const SessionInfo& info : sessions) {
    std::cout << format("%-24s %8lld tokens  %10s  %s  %s\n", info.name.c_str(),
                        static_cast<long long>(info.n_tokens), format_size(info.disk_bytes).c_str(),
                        time_text(info.last_used_ns).c_str(), state_text(info).c_str());
  }
  return {};
}

Status show(const Flags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const std::string path, flags.path());
  TIERKV_RETURN_IF_ERROR(real_file_system().open_read(path).status());
  const SessionInfo info = inspect_session(real_file_system(), path);
  if (flags.json) {
    print(to_json(info));
    return {};
  }
  std::cout << info.path << "\n  " << state_text(info) << "\n";
  std::cout << format("  %lld tokens of at most %lld, %lld up to the latest answer\n",
                      static_cast<long long>(info.n_tokens),
                      static_cast<long long>(info.max_tokens),
                      static_cast<long long>(info.n_answered));
  std::cout << format("  %lld complete points, %lld areas that can't be read\n",
                      static_cast<long long>(info.n_points),
                      static_cast<long long>(info.n_unreadable));
  std::cout << "  " << format_size(info.disk_bytes) << " on disk, last used "
            << time_text(info.last_used_ns) << std::endl;
  return {};
}

Status remove(const Flags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const std::string path, flags.path());
  return remove_session(real_file_system(), path);
}

Status verify(const Flags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const std::string path, flags.path());
  std::unique_ptr<Engine> engine;
  if (!flags.model.empty()) {
    EngineOptions options;
    options.model_path = flags.model;
    TIERKV_ASSIGN_OR_RETURN(engine, Engine::open(options));
  }
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<SessionFile> session,
                          SessionFile::open(real_file_system(), path));
  TIERKV_ASSIGN_OR_RETURN(const SessionCheck check, verify_session(*session, engine.get()));
  if (flags.json) {
    print({{"ok", true},
           {"n_tokens", check.n_tokens},
           {"n_extents", check.n_extents},
           {"bytes", check.bytes},
           {"n_unreadable", session->n_unreadable()}});
    return {};
  }
  std::cout << path << ": " << check.n_tokens << " tokens, " << format_size(check.bytes)
            << " read, all of it sound" << std::endl;
  if (session->n_unreadable() > 0) {
    std::cout << "  " << session->n_unreadable()
              << " older or interrupted save(s) in it can't be read" << std::endl;
  }
  return {};
}

void add(CLI::App& parent, const std::shared_ptr<Flags>& flags, int& exit_code, const char* name,
         const char* about, bool takes_session, Status (*run)(const Flags&)) {
  CLI::App* command = parent.add_subcommand(name, about);
  if (takes_session) {
    command->add_option("session", flags->session, "a name, or a file")->required();
  }
  command->add_option("--session-dir", flags->directory,
                      "where named sessions are (default: " + default_session_directory() + ")");
  command->add_flag("--json", flags->json, "print JSON instead of text");
  if (run == verify) {
    command->add_option("-m,--model", flags->model, "GGUF file that the session must belong to");
  }
  command->callback([flags, run, &exit_code] {
    const Status status = run(*flags);
    if (!status.ok()) exit_code = report_error(status, flags->json);
  });
}

}  // namespace

void add_session(CLI::App& app, int& exit_code) {
  CLI::App* session = app.add_subcommand("session", "the saved sessions");
  session->require_subcommand(1);
  auto flags = std::make_shared<Flags>();
  add(*session, flags, exit_code, "list", "what is saved, the most recently used first", false,
      list);
  add(*session, flags, exit_code, "show", "what is in a session", true, show);
  add(*session, flags, exit_code, "rm", "remove a session", true, remove);
  add(*session, flags, exit_code, "verify", "read and check all of a session", true, verify);
}

}  // namespace tierkv::cli
