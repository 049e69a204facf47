// Saved sessions as files: which file a name means, whether it fits the model, how much room all of
// them may take.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kv/session_file.h"
#include "runtime/engine.h"

namespace tierkv {

inline constexpr char kSessionSuffix[] = ".tkv";
inline constexpr uint64_t kDefaultSessionQuota = uint64_t{10} << 30;

// ~/.local/share/tierkv/sessions or $XDG_DATA_HOME/tierkv/sessions.
std::string default_session_directory();

// --session: with a slash, or ending in .tkv, a file; else a name in `directory`.
struct SessionPlace {
  std::string path;
  bool in_directory = false;
};
Result<SessionPlace> locate_session(const std::string& name, const std::string& directory);

// Opens or makes the session at `place`, and the directory of a named one. Refused, with the
// reason, when it was made with another model. `n_context`: most tokens that a new one is to hold;
// 0: the model's own.
Result<std::unique_ptr<SessionFile>> open_saved_session(Engine& engine, const SessionPlace& place,
                                                        int64_t n_context);
// OK when the session was made with the engine's model.
Status check_model(const SessionFile& session, const Engine& engine);
// What a session of so many tokens takes on the disk at most.
uint64_t session_bytes(const Engine& engine, int64_t n_tokens);
// Of a file's tensors: names, shapes and a part of each one's data. Models that were trained
// further from one another differ.
Result<uint64_t> weights_hash(const GgufFile& file);

// What is known of a session without its model. `problem` is empty unless it can't be read.
struct SessionInfo {
  std::string name, path, model, problem;
  uint64_t disk_bytes = 0;
  int64_t last_used_ns = 0;  // since 1970
  bool in_use = false;
  int64_t n_tokens = 0, n_answered = 0, max_tokens = 0, n_points = 0, n_unreadable = 0;
};
SessionInfo inspect_session(FileSystem& file_system, const std::string& path);
// All in a directory, the most recently used first. A directory that is not there has none.
Result<std::vector<SessionInfo>> list_sessions(FileSystem& file_system,
                                               const std::string& directory);
Status remove_session(FileSystem& file_system, const std::string& path);

// Removes the least recently used sessions in the directory, but not `keep` nor those in use, until
// they fit in `quota` together with `keep`, which is to have `needed` bytes. The names of those
// removed; kResourceExhausted when that is not enough.
Result<std::vector<std::string>> make_room(FileSystem& file_system, const std::string& directory,
                                           const std::string& keep, uint64_t needed,
                                           uint64_t quota);

}  // namespace tierkv
