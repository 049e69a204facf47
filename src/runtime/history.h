// The history of requests: what prompts looked like (fingerprints, no text) and how long their
// answers became. An SQLite file, docs/formats.md; several processes may use it at once. A history
// is a help, never a condition: whatever goes wrong with the file, requests go on without it, and
// take_note() says so.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/predictor.h"

struct sqlite3;

namespace tierkv {

// A request and its answer. `stop` is a stop_reason_name(); all but "stop" and
// "stop_string" were cut off.
struct HistoryEntry {
  uint64_t model = 0;      // History::key()
  std::string model_name;  // for people
  Observation seen;
  std::string stop;
  int64_t time = 0;  // seconds since 1970; add() sets it
};

class History {
 public:
  static constexpr int64_t kMostRows = 4096;  // of each model; the oldest go
  // What tells models apart, and fingerprints of another rule, which don't compare.
  static uint64_t key(uint64_t model_hash, FingerprintRule rule) {
    return rule == FingerprintRule::kTail ? model_hash : ~model_hash;
  }
  static std::string default_path();  // $XDG_STATE_HOME/tierkv/history.db, ~/.local/state/...

  // Opens the file, or makes it (0600, missing directories 0700). A corrupt one is renamed.
  static std::unique_ptr<History> open(const std::string& path, int64_t most_rows = kMostRows);
  ~History();

  // Reads a model's requests into memory: predict() knows these, and what add() brings.
  void load(uint64_t model);
  Prediction predict(uint64_t model, const Fingerprint& fingerprint, int64_t fallback);
  void add(HistoryEntry entry);

  // All requests of all models, oldest first.
  Result<std::vector<HistoryEntry>> entries();
  // Forgets those of a model, named by model_name or by its hash in hexadecimal; "": all. Gives
  // their number.
  Result<int64_t> clear(const std::string& model);

  const std::string& path() const { return path_; }
  // What went wrong since the last call, in sentences for the user; empty when nothing did.
  std::string take_note();

 private:
  History(const std::string& path, int64_t most_rows) : path_(path), most_rows_(most_rows) {}

  Status connect();
  Status check_schema();
  Status set_aside();
  void disconnect();
  template <typename Operation>
  Status attempt(Operation&& operation);
  Status read(std::vector<HistoryEntry>& out);
  Status write(const HistoryEntry& entry);
  Status execute(const std::string& sql);
  Status error(int code) const;
  void tell(const Status& status, const char* consequence);

  const std::string path_;
  const int64_t most_rows_;
  std::mutex mutex_;
  sqlite3* db_ = nullptr;
  uint64_t inode_ = 0;  // of the file that db_ is
  std::string note_;
  uint64_t loaded_ = 0;  // the model of seen_
  std::vector<Observation> seen_;
};

// Whether an answer that stopped so was cut off.
bool is_censored(const std::string& stop);

}  // namespace tierkv
