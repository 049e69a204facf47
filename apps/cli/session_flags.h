// --session and what belongs to it, for the subcommands that save and resume.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "runtime/session.h"
#include "runtime/session_store.h"

namespace tierkv::cli {

struct SessionFlags {
  std::string session, directory, quota = "10G";
  int64_t save_every = SessionOptions{}.save_every;

  void add_to(CLI::App& app);
  bool given() const { return !session.empty(); }
  // Opens or makes the session, locked.
  Result<std::unique_ptr<SessionFile>> open(Engine& engine, int64_t n_context) const;
  // What the session's options must say; makes room for so many tokens, and says what went for it.
  Status prepare(Engine& engine, const SessionFile& saved, SessionOptions& options) const;
};

// Tokens of the conversation that a session can go on from: up to its latest answer.
std::span<const int32_t> answered_tokens(const SessionFile& saved);

}  // namespace tierkv::cli
