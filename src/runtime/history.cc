#include "runtime/history.h"

#include <sqlite3.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "runtime/history_file.h"

namespace tierkv {
namespace {

static_assert(std::endian::native == std::endian::little, "fingerprints are stored as they lie");

constexpr int kVersion = 1;
constexpr int kApplicationId = 0x54696572;  // "Tier"
constexpr int kBusyMilliseconds = 5000;
constexpr int kMostAttempts = 4;

constexpr char kSchema[] =
    "CREATE TABLE request (id INTEGER PRIMARY KEY, model INTEGER NOT NULL, model_name TEXT NOT "
    "NULL, fingerprint BLOB NOT NULL, prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT "
    "NULL, stop TEXT NOT NULL, time INTEGER NOT NULL);"
    "CREATE INDEX request_by_model ON request (model, id);";
constexpr char kInsert[] =
    "INSERT INTO request (model, model_name, fingerprint, prompt_tokens, output_tokens, stop, time)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)";
constexpr char kTrim[] =
    "DELETE FROM request WHERE model = ?1 AND id <= (SELECT id FROM request WHERE model = ?1 ORDER "
    "BY id DESC LIMIT 1 OFFSET ?2)";
constexpr char kNewest[] =  // of a model, oldest first
    "WHERE id IN (SELECT id FROM request WHERE model = ?1 ORDER BY id DESC LIMIT ?2) ORDER BY id";
constexpr char kSelect[] =
    "SELECT model, model_name, fingerprint, prompt_tokens, output_tokens, stop, time FROM request ";

// A prepared statement; column and parameter numbers as SQLite has them: from 0 and from 1.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) {
    code_ = sqlite3_prepare_v2(db, sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int at, int64_t value) {
    return check(code_ == SQLITE_OK ? sqlite3_bind_int64(statement_, at, value) : code_);
  }
  Statement& bind(int at, const std::string& text) {
    return check(code_ == SQLITE_OK
                     ? sqlite3_bind_text(statement_, at, text.data(), static_cast<int>(text.size()),
                                         SQLITE_TRANSIENT)
                     : code_);
  }
  Statement& bind(int at, const Fingerprint& value) {
    return check(code_ == SQLITE_OK ? sqlite3_bind_blob(statement_, at, value.data(), sizeof(value),
                                                        SQLITE_TRANSIENT)
                                    : code_);
  }
  // True when there is a row; code() tells a fault from the end.
  bool step() {
    if (code_ == SQLITE_OK || code_ == SQLITE_ROW) code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  // Runs to the end: SQLITE_DONE, or what went wrong.
  int finish() {
    while (step()) {
    }
    return code_;
  }
  int code() const { return code_; }

  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const {
    const unsigned char* text = sqlite3_column_text(statement_, column);
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }
  bool get(int column, Fingerprint& out) const {
    const void* data = sqlite3_column_blob(statement_, column);
    if (data == nullptr || sqlite3_column_bytes(statement_, column) != sizeof(out)) return false;
    std::memcpy(out.data(), data, sizeof(out));
    return true;
  }

 private:
  Statement& check(int code) {
    code_ = code;
    return *this;
  }

  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

// The row at hand; false when it is not one that we wrote.
bool get_entry(const Statement& row, HistoryEntry& entry) {
  const int64_t prompt = row.integer(3), output = row.integer(4);
  if (!row.get(2, entry.seen.fingerprint)) return false;
  if (prompt < 0 || prompt > INT32_MAX || output < 0 || output > INT32_MAX) return false;
  entry.model = static_cast<uint64_t>(row.integer(0));
  entry.model_name = row.text(1);
  entry.seen.prompt_tokens = static_cast<int32_t>(prompt);
  entry.seen.output_tokens = static_cast<int32_t>(output);
  entry.stop = row.text(5);
  entry.seen.censored = is_censored(entry.stop);
  entry.time = row.integer(6);
  return true;
}

}  // namespace

bool is_censored(const std::string& stop) { return stop != "stop" && stop != "stop_string"; }

std::string History::default_path() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != 0) {
    return std::string(state) + "/tierkv/history.db";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0) {
    return std::string(home) + "/.local/state/tierkv/history.db";
  }
  return "/var/tmp/tierkv/history.db";
}

std::unique_ptr<History> History::open(const std::string& path, int64_t most_rows) {
  std::unique_ptr<History> history(new History(path, most_rows));
  history->tell(history->attempt([] { return Status(); }), "no history is kept");
  return history;
}

History::~History() { disconnect(); }

void History::disconnect() {
  sqlite3_close(db_);
  db_ = nullptr;
}

Status History::error(int code) const {
  const std::string message =
      path_ + ": " + (db_ != nullptr ? sqlite3_errmsg(db_) : sqlite3_errstr(code));
  const int primary = code & 0xff;
  const bool moved = code == SQLITE_READONLY_DBMOVED;  // set aside by another process meanwhile
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || moved) return corrupt(message);
  return primary == SQLITE_FULL ? resource_exhausted(message) : io_error(message);
}

Status History::execute(const std::string& sql) {
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : error(code);
}

// Little memory: a run may have little. A power failure may cost the history, not the run.
Status History::connect() {
  if (db_ != nullptr) return {};
  TIERKV_RETURN_IF_ERROR(prepare_private_file(path_));
  inode_ = file_identity(path_);
  const int code = sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr);
  Status status = code == SQLITE_OK ? Status() : error(code);
  if (status.ok()) {
    sqlite3_busy_timeout(db_, kBusyMilliseconds);
    status = execute(
        "PRAGMA cache_size = -256; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF");
  }
  if (status.ok()) status = check_schema();
  if (!status.ok()) disconnect();
  return status;
}

// Makes the table in a new file. Only one process does: the others wait, then see it.
Status History::check_schema() {
  const auto pragma = [&](const char* name, int64_t& value) {
    Statement statement(db_, std::string("PRAGMA ") + name);
    if (statement.step()) value = statement.integer(0);
    return statement.code() == SQLITE_ROW ? Status() : error(statement.code());
  };
  int64_t version = 0, application = 0, tables = 0;
  TIERKV_RETURN_IF_ERROR(pragma("user_version", version));
  TIERKV_RETURN_IF_ERROR(pragma("application_id", application));
  if (version == kVersion && application == kApplicationId) return {};
  TIERKV_RETURN_IF_ERROR(execute("BEGIN IMMEDIATE"));
  TIERKV_RETURN_IF_ERROR(pragma("user_version", version));
  TIERKV_RETURN_IF_ERROR(pragma("application_id", application));
  TIERKV_RETURN_IF_ERROR(pragma("schema_version", tables));
  if (version == kVersion && application == kApplicationId) return execute("COMMIT");
  if (application == kApplicationId) {
    return unsupported(path_ + " was written by another version of tierkv; give --history FILE");
  }
  if (tables != 0) {
    return unsupported(path_ + " is not a history but another program's; give --history FILE");
  }
  return execute(format("%s PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", kSchema,
                        kApplicationId, kVersion));
}

// A corrupt file makes place for a new one.
Status History::set_aside() {
  disconnect();
  TIERKV_ASSIGN_OR_RETURN(const std::string name, set_file_aside(path_, inode_));
  if (!name.empty()) {
    note_ += "the history was corrupt; it has been renamed to " + name + ", and a new one begins. ";
  }
  return {};
}

// Runs an operation on the open file; a corrupt one is set aside, and the operation runs again.
// More than once, since other processes may be setting aside and beginning files at the same time.
template <typename Operation>
Status History::attempt(Operation&& operation) {
  const auto once = [&] {
    const KeepInPlace here(path_);
    if (db_ != nullptr && file_identity(path_) != inode_) disconnect();  // it was set aside
    const Status status = connect();
    return status.ok() ? operation() : status;
  };
  Status status = once();
  for (int i = 0; i < kMostAttempts && status.code() == StatusCode::kCorrupt; ++i) {
    TIERKV_RETURN_IF_ERROR(set_aside());
    status = once();
  }
  return status;
}

void History::tell(const Status& status, const char* consequence) {
  if (!status.ok()) note_ += std::string(consequence) + ": " + status.message() + ". ";
}

std::string History::take_note() {
  const std::lock_guard lock(mutex_);
  std::string note = std::exchange(note_, {});
  while (!note.empty() && note.back() == ' ') note.pop_back();
  return note;
}

Status History::read(std::vector<HistoryEntry>& out) {
  out.clear();
  Statement rows(db_, std::string(kSelect) + "ORDER BY id");
  while (rows.step()) {
    HistoryEntry entry;
    if (get_entry(rows, entry)) out.push_back(std::move(entry));
  }
  return rows.code() == SQLITE_DONE ? Status() : error(rows.code());
}

void History::load(uint64_t model) {
  const std::lock_guard lock(mutex_);
  if (loaded_ == model && !seen_.empty()) return;
  loaded_ = model;
  seen_.clear();
  if (db_ == nullptr) return;
  const Status status = attempt([&] {
    seen_.clear();
    Statement rows(db_, std::string(kSelect) + kNewest);
    rows.bind(1, static_cast<int64_t>(model)).bind(2, most_rows_);
    while (rows.step()) {
      HistoryEntry entry;
      if (get_entry(rows, entry)) seen_.push_back(entry.seen);
    }
    return rows.code() == SQLITE_DONE ? Status() : error(rows.code());
  });
  tell(status, "the history can't be read");
}

Prediction History::predict(uint64_t model, const Fingerprint& fingerprint, int64_t fallback) {
  load(model);
  const std::lock_guard lock(mutex_);
  return predict_output(seen_, fingerprint, fallback);
}

Status History::write(const HistoryEntry& entry) {
  TIERKV_RETURN_IF_ERROR(execute("BEGIN IMMEDIATE"));
  const int64_t model = static_cast<int64_t>(entry.model);
  int code = Statement(db_, kInsert)
                 .bind(1, model)
                 .bind(2, entry.model_name)
                 .bind(3, entry.seen.fingerprint)
                 .bind(4, int64_t{entry.seen.prompt_tokens})
                 .bind(5, int64_t{entry.seen.output_tokens})
                 .bind(6, entry.stop)
                 .bind(7, entry.time)
                 .finish();
  if (code == SQLITE_DONE) code = Statement(db_, kTrim).bind(1, model).bind(2, most_rows_).finish();
  const Status status = code == SQLITE_DONE ? execute("COMMIT") : error(code);
  if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

void History::add(HistoryEntry entry) {
  const std::lock_guard lock(mutex_);
  entry.seen.censored = is_censored(entry.stop);
  entry.time = static_cast<int64_t>(std::time(nullptr));
  if (entry.model == loaded_) seen_.push_back(entry.seen);
  if (db_ == nullptr) return;
  tell(attempt([&] { return write(entry); }), "this request is not in the history");
}

Result<std::vector<HistoryEntry>> History::entries() {
  const std::lock_guard lock(mutex_);
  std::vector<HistoryEntry> out;
  TIERKV_RETURN_IF_ERROR(attempt([&] { return read(out); }));
  return out;
}

Result<int64_t> History::clear(const std::string& model) {
  const std::lock_guard lock(mutex_);
  int64_t n = 0;
  TIERKV_RETURN_IF_ERROR(attempt([&] {
    Statement rows(db_, model.empty() ? "DELETE FROM request"
                                      : "DELETE FROM request WHERE model_name = ?1 OR "
                                        "printf('%016x', model) = ?1");
    if (!model.empty()) rows.bind(1, model);
    if (rows.finish() != SQLITE_DONE) return error(rows.code());
    n = sqlite3_changes(db_);
    return Status();
  }));
  seen_.clear();
  loaded_ = 0;
  return n;
}

}  // namespace tierkv
