#include "runtime/history.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

namespace tierkv {
namespace {

namespace fs = std::filesystem;

HistoryEntry entry(uint64_t model, int32_t output, const std::string& stop = "stop") {
  HistoryEntry e;
  e.model = model;
  e.model_name = "model " + std::to_string(model);
  for (int i = 0; i < kFingerprintDims; ++i) {
    e.seen.fingerprint[i] = static_cast<uint16_t>(output * 131 + i);
  }
  e.seen.prompt_tokens = output + 7;
  e.seen.output_tokens = output;
  e.stop = stop;
  return e;
}

class HistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tierkv-history-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "state" / "tierkv" / "history.db";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<History> open(int64_t most = History::kMostRows) const {
    return History::open(path_, most);
  }
  std::vector<HistoryEntry> entries() const {
    auto all = open()->entries();
    EXPECT_TRUE(all.ok()) << all.status().message();
    return all.ok() ? *all : std::vector<HistoryEntry>();
  }
  void write(const std::string& bytes) const {
    fs::create_directories(path_.parent_path());
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  int files_set_aside() const {
    int n = 0;
    for (const auto& file : fs::directory_iterator(path_.parent_path())) {
      n += file.path().filename().string().find(".corrupt-") != std::string::npos;
    }
    return n;
  }
  // Runs fn(i) in n processes at once; all must leave with 0.
  template <typename Fn>
  void in_processes(int n, Fn fn) const {
    std::vector<pid_t> children;
    for (int i = 0; i < n; ++i) {
      const pid_t pid = fork();
      if (pid == 0) _exit(fn(i) ? 0 : 1);
      children.push_back(pid);
    }
    for (const pid_t pid : children) {
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
  }

  fs::path folder_, path_;
};

TEST_F(HistoryTest, GivesBackWhatItWasGiven) {
  const uint64_t large = 0xfedcba9876543210;
  open()->add(entry(large, 12));
  open()->add(entry(large, 300, "length"));
  const auto all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].model, large);
  EXPECT_EQ(all[0].model_name, entry(large, 12).model_name);
  EXPECT_EQ(all[0].seen.fingerprint, entry(large, 12).seen.fingerprint);
  EXPECT_EQ(all[0].seen.prompt_tokens, 19);
  EXPECT_EQ(all[0].seen.output_tokens, 12);
  EXPECT_EQ(all[0].stop, "stop");
  EXPECT_FALSE(all[0].seen.censored);
  EXPECT_TRUE(all[1].seen.censored);
  EXPECT_NEAR(static_cast<double>(all[0].time), static_cast<double>(time(nullptr)), 60);
}

TEST_F(HistoryTest, IsPrivate) {
  umask(022);
  open()->add(entry(1, 5));
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  for (fs::path at = path_.parent_path(); at != folder_; at = at.parent_path()) {
    ASSERT_EQ(stat(at.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << at;
  }
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  open();
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(HistoryTest, PredictsFromItsOwnModelOnly) {
  auto history = open();
  for (int i = 0; i < 12; ++i) history->add(entry(1, 40));
  const Fingerprint any = entry(1, 40).seen.fingerprint;
  EXPECT_EQ(history->predict(2, any, 256).tokens, 256);
  EXPECT_EQ(history->predict(1, any, 256).tokens, 40);
  EXPECT_EQ(history->predict(1, any, 256).source, PredictionSource::kHistory);
  history->add(entry(1, 90));  // known at once
  history->add(entry(1, 90));
  history->add(entry(1, 90));
  EXPECT_EQ(history->predict(1, entry(1, 90).seen.fingerprint, 256).tokens, 90);
  EXPECT_EQ(open()->predict(1, entry(1, 90).seen.fingerprint, 256).tokens, 90);
}

TEST_F(HistoryTest, TheOldestOfAModelGo) {
  for (int i = 1; i <= 9; ++i) {
    open(5)->add(entry(1, i));
    if (i <= 4) open(5)->add(entry(2, i));
  }
  std::vector<int> first, second;
  for (const auto& e : entries()) (e.model == 1 ? first : second).push_back(e.seen.output_tokens);
  EXPECT_EQ(first, (std::vector<int>{5, 6, 7, 8, 9}));
  EXPECT_EQ(second, (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(HistoryTest, ForgetsOneModelOrAll) {
  auto history = open();
  for (int i = 0; i < 3; ++i) history->add(entry(0xabc, i));
  history->add(entry(0xffffffff00000001, 4));
  EXPECT_EQ(*history->clear("nobody"), 0);
  EXPECT_EQ(*history->clear(entry(0xabc, 0).model_name), 3);
  EXPECT_EQ(*history->clear("ffffffff00000001"), 1);
  history->add(entry(1, 1));
  EXPECT_EQ(*history->clear(""), 1);
  EXPECT_EQ(history->predict(1, {}, 256).source, PredictionSource::kDefault);
  EXPECT_TRUE(entries().empty());
}

TEST_F(HistoryTest, CorruptFilesAreSetAside) {
  for (int i = 0; i < 40; ++i) open()->add(entry(1, i));
  const std::string good = bytes();
  std::string flipped = good, header = good;
  std::fill(flipped.begin() + 4096, flipped.end(), '\x5a');
  header[3] ^= 1;
  int n = 0;
  for (const std::string& bad : {std::string("not a database, but a letter to my aunt"), flipped,
                                 header, good.substr(0, 6000), std::string(3000, '\0')}) {
    write(bad);
    auto history = open();
    history->add(entry(1, 7));
    const std::string note = history->take_note();
    EXPECT_NE(note.find("corrupt"), std::string::npos) << n;
    EXPECT_EQ(history->take_note(), "");
    EXPECT_EQ(files_set_aside(), ++n);
    const auto left = entries();
    ASSERT_EQ(left.size(), 1u) << n;
    EXPECT_EQ(left[0].seen.output_tokens, 7);
  }
  write("");  // an empty file is a new one
  EXPECT_EQ(open()->take_note(), "");
  EXPECT_EQ(files_set_aside(), n);
}

TEST_F(HistoryTest, RowsThatNobodyWroteAreLeftOut) {
  open()->add(entry(1, 7));
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  for (const char* row : {"x'00'", "NULL", "zeroblob(256), 1, -5, 'stop', 0) --",
                          "zeroblob(256), 1, 1 << 40, 'stop', 0) --"}) {
    const std::string sql = std::string("INSERT INTO request (model, model_name, fingerprint, ") +
                            "prompt_tokens, output_tokens, stop, time) VALUES (1, 'm', " + row +
                            ", 1, 1, 'stop', 0)";
    sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  }
  EXPECT_EQ(sqlite3_total_changes(db), 3);  // NULL is refused by the schema
  sqlite3_close(db);
  EXPECT_EQ(entries().size(), 1u);
  EXPECT_EQ(open()->predict(1, {}, 256).tokens, 7);
}

TEST_F(HistoryTest, OtherProgramsFilesAndOtherVersionsAreNotTouched) {
  fs::create_directories(path_.parent_path());
  for (const char* sql : {"CREATE TABLE letters (text)",
                          "PRAGMA application_id = 1416193394; PRAGMA user_version = 2"}) {
    fs::remove(path_);
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
    const std::string before = bytes();
    auto history = open();
    history->add(entry(1, 7));
    EXPECT_NE(history->take_note().find("--history FILE"), std::string::npos);
    EXPECT_EQ(history->entries().status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(bytes(), before);
    EXPECT_EQ(files_set_aside(), 0);
  }
}

TEST_F(HistoryTest, PlacesThatCannotBeWrittenOnlyCostTheHistory) {
  std::ofstream(folder_ / "file") << "in the way";
  for (const fs::path& place :
       {folder_ / "file" / "history.db", folder_, fs::path("/proc/no/such/history.db")}) {
    auto history = History::open(place);
    const std::string note = history->take_note();
    EXPECT_NE(note.find("no history is kept"), std::string::npos) << place;
    history->add(entry(1, 7));  // still known to this process
    history->add(entry(2, 9));
    EXPECT_EQ(history->take_note(), "") << place;  // said once
    EXPECT_EQ(history->predict(1, {}, 256).source, PredictionSource::kDefault);
    EXPECT_FALSE(history->entries().ok());
  }
}

TEST_F(HistoryTest, ManyProcessesWriteAtOnce) {
  in_processes(4, [&](int process) {
    for (int i = 0; i < 10; ++i) {
      auto history = open();
      history->add(entry(1, process * 10 + i));
      if (!history->take_note().empty()) return false;
    }
    return true;
  });
  std::set<int> seen;
  for (const auto& e : entries()) seen.insert(e.seen.output_tokens);
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_EQ(entries().size(), 40u);
}

TEST_F(HistoryTest, ManyProcessesFindACorruptFileAtOnce) {
  for (int round = 0; round < 5; ++round) {
    fs::remove_all(path_.parent_path());
    write(std::string(20000, 'x'));
    in_processes(4, [&](int process) {
      auto history = open();
      for (int i = 0; i < 5; ++i) history->add(entry(1, process * 5 + i));
      return true;
    });
    EXPECT_EQ(files_set_aside(), 1);
    EXPECT_EQ(entries().size(), 20u);
  }
}

TEST(HistoryPath, FollowsTheEnvironment) {
  setenv("XDG_STATE_HOME", "/somewhere", 1);
  EXPECT_EQ(History::default_path(), "/somewhere/tierkv/history.db");
  unsetenv("XDG_STATE_HOME");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(History::default_path(), "/home/me/.local/state/tierkv/history.db");
}

}  // namespace
}  // namespace tierkv
