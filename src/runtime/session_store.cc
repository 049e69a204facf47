#include "runtime/session_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "base/size.h"
#include "model/model_spec.h"

namespace tierkv {
namespace {

namespace fs = std::filesystem;

constexpr int kAreas = 2, kAreasWithWindows = 4;
constexpr int64_t kLargestChunk = 512;  // of Session
constexpr uint64_t kSampleBytes = 4096;

std::string home_folder(const char* variable, const char* below_home) {
  if (const char* base = std::getenv(variable); base != nullptr && *base != 0) return base;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == 0) return "/var/tmp";
  return (fs::path(home) / below_home).string();
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

Status make_private_directories(const std::string& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return {};
  fs::create_directories(directory, error);
  if (error) return os_error("creating the session directory " + directory, error.value());
  fs::permissions(directory, fs::perms::owner_all, error);
  return {};
}

SessionShape shape_for(const Engine& engine, uint64_t hash, int64_t n_context) {
  const KvLayout& layout = engine.kv_layout();
  SessionShape shape;
  shape.flash.model_hash = hash;
  shape.flash.payload_bytes = flash_payload_bytes(layout);
  shape.model = file_name(engine.file().path()).substr(0, kMaxModelName);
  shape.n_vocab = engine.spec().n_vocab;
  shape.max_tokens =
      std::clamp(std::max(engine.spec().n_context, n_context), int64_t{1}, kMaxSessionTokens);
  shape.extent_pages = layout.extent_pages;
  shape.window_page_bytes = layout.window_page_bytes;
  shape.max_window_pages = layout.window_pages(kLargestChunk);
  shape.n_areas = layout.window_page_bytes == 0 ? kAreas : kAreasWithWindows;
  shape.flash.max_extents = shape.slots_needed();
  return shape;
}

Status check_shape(const SessionFile& session, const SessionShape& wanted) {
  const SessionShape& found = session.shape();
  if (found.flash.model_hash != wanted.flash.model_hash) {
    return invalid_argument(
        format("%s was made with another model (%s); give that one, or another --session",
               session.path().c_str(), found.model.c_str()));
  }
  if (found.flash.payload_bytes == wanted.flash.payload_bytes &&
      found.extent_pages == wanted.extent_pages && found.n_vocab == wanted.n_vocab &&
      found.window_page_bytes == wanted.window_page_bytes &&
      found.max_window_pages == wanted.max_window_pages) {
    return {};
  }
  return invalid_argument(session.path() +
                          " was made by a build that lays the KV cache out otherwise; remove it");
}

}  // namespace

std::string default_session_directory() {
  return home_folder("XDG_DATA_HOME", ".local/share") + "/tierkv/sessions";
}

Result<SessionPlace> locate_session(const std::string& name, const std::string& directory) {
  if (name.empty() || name == "." || name == "..") {
    return invalid_argument("--session \"" + name + "\" is no name for a session");
  }
  if (name.find('/') != std::string::npos || name.ends_with(kSessionSuffix)) {
    return SessionPlace{name, false};
  }
  if (name[0] == '.') return invalid_argument("a session's name can't begin with a dot");
  const std::string folder = directory.empty() ? default_session_directory() : directory;
  return SessionPlace{folder + "/" + name + kSessionSuffix, true};
}

Result<uint64_t> weights_hash(const GgufFile& file) {
  uint64_t hash = model_hash(file);
  std::array<std::byte, kSampleBytes> sample;
  for (const GgufTensor& tensor : file.tensors()) {
    const uint64_t bytes = std::min(kSampleBytes, tensor.bytes);
    const uint64_t middle = tensor.offset + (tensor.bytes - bytes) / 2;
    const std::span<std::byte> part(sample.data(), bytes);
    TIERKV_RETURN_IF_ERROR(file.file().read_at(middle, part));
    hash = (hash ^ crc32c(part)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

Result<std::unique_ptr<SessionFile>> open_saved_session(Engine& engine, const SessionPlace& place,
                                                        int64_t n_context) {
  TIERKV_ASSIGN_OR_RETURN(const uint64_t hash, weights_hash(engine.file()));
  const SessionShape wanted = shape_for(engine, hash, n_context);
  Result<std::unique_ptr<SessionFile>> session =
      SessionFile::open(engine.file_system(), place.path);
  if (session.status().code() == StatusCode::kNotFound) {
    if (place.in_directory) {
      TIERKV_RETURN_IF_ERROR(make_private_directories(fs::path(place.path).parent_path()));
    }
    return SessionFile::create(engine.file_system(), place.path, wanted);
  }
  if (!session.ok()) return session;
  TIERKV_RETURN_IF_ERROR(check_shape(**session, wanted));
  return session;
}

Status check_model(const SessionFile& session, const Engine& engine) {
  TIERKV_ASSIGN_OR_RETURN(const uint64_t hash, weights_hash(engine.file()));
  return check_shape(session, shape_for(engine, hash, 0));
}

uint64_t session_bytes(const Engine& engine, int64_t n_tokens) {
  const KvLayout& layout = engine.kv_layout();
  const SessionShape shape = shape_for(engine, 0, n_tokens);
  const int64_t n_pages = n_tokens / kPageTokens + 1;
  const uint64_t area =
      static_cast<uint64_t>(std::min(n_pages, layout.extent_pages)) * layout.full_page_bytes +
      static_cast<uint64_t>(std::min(n_pages, shape.max_window_pages)) * layout.window_page_bytes;
  return static_cast<uint64_t>(n_pages) * layout.full_page_bytes +
         static_cast<uint64_t>(shape.n_areas) * area;
}

SessionInfo inspect_session(FileSystem& file_system, const std::string& path) {
  SessionInfo info;
  info.path = path;
  info.name = file_name(path);
  if (info.name.ends_with(kSessionSuffix)) {
    info.name.resize(info.name.size() - (sizeof kSessionSuffix - 1));
  }
  struct stat attributes;
  if (stat(path.c_str(), &attributes) == 0) {
    info.disk_bytes = static_cast<uint64_t>(attributes.st_blocks) * 512;
    info.last_used_ns =
        attributes.st_mtim.tv_sec * int64_t{1000000000} + attributes.st_mtim.tv_nsec;
  }
  Result<std::unique_ptr<SessionFile>> session = SessionFile::open(file_system, path);
  if (session.status().code() == StatusCode::kResourceExhausted) {
    info.in_use = true;
    return info;
  }
  if (!session.ok()) {
    info.problem = session.status().message();
    return info;
  }
  const auto points = (*session)->points();
  info.model = (*session)->shape().model;
  info.max_tokens = (*session)->shape().max_tokens;
  info.n_points = static_cast<int64_t>(points.size());
  info.n_unreadable = (*session)->n_unreadable();
  if (!points.empty()) {
    info.n_tokens = static_cast<int64_t>(points[0]->tokens.size());
    info.n_answered = points[0]->n_answered;
  }
  return info;
}

Result<std::vector<SessionInfo>> list_sessions(FileSystem& file_system,
                                               const std::string& directory) {
  std::vector<SessionInfo> sessions;
  std::error_code error;
  if (!fs::exists(directory, error)) return sessions;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (path.ends_with(kSessionSuffix)) sessions.push_back(inspect_session(file_system, path));
  }
  if (error) return os_error("reading the session directory " + directory, error.value());
  std::sort(sessions.begin(), sessions.end(), [](const SessionInfo& a, const SessionInfo& b) {
    return std::tie(b.last_used_ns, a.name) < std::tie(a.last_used_ns, b.name);
  });
  return sessions;
}

// The lock is held while the name goes, so nobody is writing to what is removed.
Status remove_session(FileSystem& file_system, const std::string& path) {
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, file_system.open_exclusive(path));
  std::error_code error;
  if (fs::remove(path, error)) return {};
  return os_error("removing " + path, error.value());
}

Result<std::vector<std::string>> make_room(FileSystem& file_system, const std::string& directory,
                                           const std::string& keep, uint64_t needed,
                                           uint64_t quota) {
  struct Entry {
    std::string path;
    fs::file_time_type used;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  uint64_t kept = needed, others = 0;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat attributes;
    const std::string path = entry->path().string();
    if (!path.ends_with(kSessionSuffix) || stat(path.c_str(), &attributes) != 0) continue;
    const uint64_t bytes = static_cast<uint64_t>(attributes.st_blocks) * 512;
    if (path == keep) {
      kept = std::max(kept, bytes);
    } else {
      entries.push_back({path, entry->last_write_time(error), bytes});
      others += bytes;
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  std::vector<std::string> removed;
  for (const Entry& entry : entries) {
    if (kept + others <= quota || kept > quota) break;  // enough, or not to be had in this way
    if (!remove_session(file_system, entry.path).ok()) continue;  // in use
    others -= entry.bytes;
    removed.push_back(file_name(entry.path));
  }
  if (kept + others <= quota) return removed;
  return resource_exhausted(format(
      "the saved sessions in %s need %s, and may take %s: give a larger --session-quota, or remove "
      "some (tierkv session rm)",
      directory.c_str(), format_size(kept + others).c_str(), format_size(quota).c_str()));
}

}  // namespace tierkv
