#include "cli/session_flags.h"

#include <filesystem>
#include <iostream>

#include "base/size.h"

namespace tierkv::cli {

void SessionFlags::add_to(CLI::App& app) {
  app.add_option("--session", session,
                 "save the conversation, and go on from what was saved: a name, or a file (with a "
                 "slash, or ending in .tkv)");
  app.add_option("--session-dir", directory,
                 "where named sessions are (default: " + default_session_directory() + ")");
  app.add_option("--session-quota", quota,
                 "most disk space of the named sessions; the least recently used ones go")
      ->capture_default_str();
  app.add_option("--session-every", save_every, "tokens between two complete points")
      ->check(CLI::PositiveNumber)
      ->group("");  // for tests
}

Result<std::unique_ptr<SessionFile>> SessionFlags::open(Engine& engine, int64_t n_context) const {
  TIERKV_RETURN_IF_ERROR(parse_size(quota).status());
  TIERKV_ASSIGN_OR_RETURN(const SessionPlace place, locate_session(session, directory));
  return open_saved_session(engine, place, n_context);
}

Status SessionFlags::prepare(Engine& engine, const SessionFile& saved,
                             SessionOptions& options) const {
  const std::filesystem::path path(saved.path());
  options.request.saved = true;
  options.request.flash_directory = path.has_parent_path() ? path.parent_path().string() : ".";
  options.save_every = save_every;
  TIERKV_ASSIGN_OR_RETURN(const SessionPlace place, locate_session(session, directory));
  if (!place.in_directory) return {};
  TIERKV_ASSIGN_OR_RETURN(const uint64_t most, parse_size(quota));
  const Result<std::vector<std::string>> removed =
      make_room(engine.file_system(), options.request.flash_directory, saved.path(),
                session_bytes(engine, options.request.n_prompt + options.request.n_expected), most);
  if (!removed.ok()) {
    std::error_code ignored;
    if (saved.points().empty()) std::filesystem::remove(path, ignored);  // just made
    return removed.status();
  }
  for (const std::string& name : *removed) {
    std::cerr << "removed the saved session " << name
              << ": the least recently used, over the quota of " << format_size(most) << std::endl;
  }
  return {};
}

std::span<const int32_t> answered_tokens(const SessionFile& saved) {
  const auto points = saved.points();
  if (points.empty()) return {};
  return std::span(points[0]->tokens).first(static_cast<size_t>(points[0]->n_answered));
}

}  // namespace tierkv::cli
