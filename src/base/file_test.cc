#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <vector>

namespace tierkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tierkv-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string make_file(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  std::unique_ptr<File> must_create() const {
    auto file = real_file_system().create_scratch(directory_);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() ? std::move(*file) : nullptr;
  }

  std::string directory_;
};

std::vector<std::byte> bytes(size_t n) { return std::vector<std::byte>(n); }

TEST_F(FileTest, ReadsWhatIsThere) {
  auto file = real_file_system().open_read(make_file("a", "hello world"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*(*file)->size(), 11u);
  EXPECT_EQ((*file)->name(), path("a"));
  auto out = bytes(5);
  ASSERT_TRUE((*file)->read_at(6, out).ok());
  EXPECT_EQ(std::memcmp(out.data(), "world", 5), 0);
  EXPECT_TRUE((*file)->read_at(3, {}).ok());
  (*file)->drop_cache(0, 11);
}

TEST_F(FileTest, ReadingPastTheEndIsTruncated) {
  auto file = real_file_system().open_read(make_file("a", "hello"));
  ASSERT_TRUE(file.ok());
  auto out = bytes(10);
  const Status status = (*file)->read_at(2, out);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(path("a")), HasSubstr("truncated"), HasSubstr("7 bytes missing")));
  EXPECT_EQ((*file)->read_at(100, out).code(), StatusCode::kCorrupt);
}

TEST_F(FileTest, AbsurdOffsetsAreErrors) {
  auto file = real_file_system().open_read(make_file("a", "hello"));
  ASSERT_TRUE(file.ok());
  auto out = bytes(1);
  EXPECT_FALSE((*file)->read_at(UINT64_MAX, out).ok());
  EXPECT_FALSE((*file)->read_at(uint64_t{1} << 63, out).ok());
}

TEST_F(FileTest, MissingFileIsNotFound) {
  const auto file = real_file_system().open_read(path("missing"));
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(file.status().message(), HasSubstr(path("missing")));
}

TEST_F(FileTest, WhatIsNotARegularFileIsRefused) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  for (const std::string& bad : {directory_, std::string("/dev/null"), path("fifo")}) {
    const auto file = real_file_system().open_read(bad);
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(file.status().message(), HasSubstr(bad));
  }
}

TEST_F(FileTest, APathBelowAFileIsAnError) {
  const std::string below = make_file("a", "x") + "/b";
  EXPECT_FALSE(real_file_system().open_read(below).ok());
  EXPECT_FALSE(real_file_system().create_scratch(below).ok());
  EXPECT_FALSE(real_file_system().create_scratch(path("a")).ok());
}

// Root may read everything, so when the tests run as root this one steps down for a moment.
class AsNobody {
 public:
  AsNobody() : stepped_down_(geteuid() == 0 && seteuid(65534) == 0) {}
  ~AsNobody() {
    if (stepped_down_ && seteuid(0) != 0) std::abort();
  }

 private:
  const bool stepped_down_;
};

TEST_F(FileTest, WhatMayNotBeUsedIsAnErrorThatSaysSo) {
  const std::string name = make_file("secret", "x");
  fs::permissions(name, fs::perms::none);
  fs::permissions(directory_, fs::perms(0555));
  {
    const AsNobody nobody;
    if (geteuid() == 0) GTEST_SKIP() << "cannot step down from root";
    const auto file = real_file_system().open_read(name);
    EXPECT_EQ(file.status().code(), StatusCode::kIoError);
    EXPECT_THAT(file.status().message(), HasSubstr("you may use"));
    const auto scratch = real_file_system().create_scratch(directory_);
    EXPECT_EQ(scratch.status().code(), StatusCode::kIoError);
    EXPECT_THAT(scratch.status().message(), AllOf(HasSubstr(directory_), HasSubstr("you may use")));
  }
  fs::permissions(directory_, fs::perms(0700));
}

struct Block {
  alignas(4096) std::byte data[4096];
};

TEST_F(FileTest, ScratchHoldsWhatIsWritten) {
  const auto file = must_create();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(*file->size(), 0u);
  EXPECT_THAT(file->name(), HasSubstr(directory_));
  const auto block = std::make_unique<Block>(), out = std::make_unique<Block>();
  for (const int at : {9, 0, 4}) {
    std::fill(std::begin(block->data), std::end(block->data), static_cast<std::byte>(at + 1));
    ASSERT_TRUE(file->write_at(at * 4096u, block->data).ok());
  }
  EXPECT_EQ(*file->size(), 10 * 4096u);
  for (const int at : {0, 4, 9, 5}) {
    ASSERT_TRUE(file->read_at(at * 4096u, out->data).ok());
    const auto expected = at == 5 ? std::byte{0} : static_cast<std::byte>(at + 1);  // 5: a hole
    EXPECT_EQ(std::count(std::begin(out->data), std::end(out->data), expected), 4096) << at;
  }
  EXPECT_EQ(file->read_at(10 * 4096, out->data).code(), StatusCode::kCorrupt);
}

TEST_F(FileTest, ScratchLeavesNothingBehind) {
  auto file = must_create();
  EXPECT_TRUE(fs::is_empty(directory_)) << "while it is open";
  file.reset();
  EXPECT_TRUE(fs::is_empty(directory_));
}

// Descriptors of this process that are open on files of `directory`.
std::vector<int> open_files_in(const std::string& directory) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (target.starts_with(directory + "/")) found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

TEST_F(FileTest, ScratchIsPrivateNamelessAndClosedOnExec) {
  const mode_t old = umask(0);
  const auto file = must_create();
  umask(old);
  const std::vector<int> open = open_files_in(directory_);
  ASSERT_EQ(open.size(), 1u);
  struct stat info;
  ASSERT_EQ(fstat(open[0], &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(info.st_nlink, 0u);
  EXPECT_NE(fcntl(open[0], F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(FileTest, ScratchDirectoryIsMadeWhenOnlyItsLastPartIsMissing) {
  EXPECT_TRUE(real_file_system().create_scratch(path("new")).ok());
  struct stat info;
  ASSERT_EQ(stat(path("new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto deep = real_file_system().create_scratch(path("no/such"));
  EXPECT_EQ(deep.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(deep.status().message(), HasSubstr(path("no/such")));
  EXPECT_FALSE(real_file_system().create_scratch("").ok());
}

TEST_F(FileTest, SeveralThreadsShareAFile) {
  const auto file = must_create();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&file, t] {
      const auto block = std::make_unique<Block>();
      for (int i = 0; i < 25; ++i) {
        const auto value = static_cast<std::byte>(t * 25 + i);
        std::fill(std::begin(block->data), std::end(block->data), value);
        EXPECT_TRUE(file->write_at((i * 4 + t) * 4096u, block->data).ok());
        EXPECT_TRUE(file->read_at((i * 4 + t) * 4096u, block->data).ok());
        EXPECT_EQ(std::count(std::begin(block->data), std::end(block->data), value), 4096);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(FileTest, CreatedFilesHaveTheirNameAndNothingElse) {
  auto file = real_file_system().create(make_file("a", "what was there before"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(*(*file)->size(), 0u);
  ASSERT_TRUE((*file)->write_at(2, bytes(3)).ok());
  auto out = bytes(5);
  ASSERT_TRUE((*file)->read_at(0, out).ok());
  file->reset();
  EXPECT_EQ(fs::file_size(path("a")), 5u);
  const Status none = real_file_system().create(path("no/such/place")).status();
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("no/such/place"));
}

class ExclusiveFile : public FileTest {
 protected:
  std::unique_ptr<File> must_make(const std::string& name) {
    auto file = real_file_system().create_exclusive(path(name));
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() ? std::move(*file) : nullptr;
  }
  Status open(const std::string& name) {
    return real_file_system().open_exclusive(path(name)).status();
  }
};

TEST_F(ExclusiveFile, HasNoNameUntilItIsPublished) {
  {
    auto dropped = must_make("a");
    ASSERT_NE(dropped, nullptr);
    EXPECT_EQ(open("a").code(), StatusCode::kNotFound);
  }
  EXPECT_TRUE(fs::is_empty(directory_));
  auto file = must_make("a");
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(file->still_named());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(file->publish().ok());
  EXPECT_TRUE(file->still_named());
  struct stat info;
  ASSERT_EQ(stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ExclusiveFile, NeverTakesANameThatIsThere) {
  make_file("a", "precious");
  auto file = must_make("a");
  ASSERT_NE(file, nullptr);
  const Status status = file->publish();
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_THAT(status.message(), HasSubstr("File exists"));
  EXPECT_EQ(fs::file_size(path("a")), 8u);
}

TEST_F(ExclusiveFile, IsLockedForAsLongAsItIsOpen) {
  auto file = must_make("a");
  ASSERT_NE(file, nullptr);
  ASSERT_TRUE(file->publish().ok());
  const Status status = open("a");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("in use by another process"));
  file.reset();
  auto again = real_file_system().open_exclusive(path("a"));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(open("a").code(), StatusCode::kResourceExhausted);
}

TEST_F(ExclusiveFile, KnowsWhenItsNameLeadsElsewhere) {
  auto file = must_make("a");
  ASSERT_NE(file, nullptr);
  ASSERT_TRUE(file->publish().ok());
  fs::remove(path("a"));
  EXPECT_FALSE(file->still_named());
  make_file("a", "another");
  EXPECT_FALSE(file->still_named());
}

TEST_F(ExclusiveFile, OpensOnlyRegularFiles) {
  EXPECT_EQ(open("none").code(), StatusCode::kNotFound);
  EXPECT_NE(real_file_system().open_exclusive(directory_).status().code(), StatusCode::kOk);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(open("pipe").code(), StatusCode::kInvalidArgument);
}

TEST_F(ExclusiveFile, DiscardedRangesReadAsZerosAndTakeNoSpace) {
  auto file = must_make("a");
  ASSERT_NE(file, nullptr);
  alignas(4096) static std::byte block[8192];
  std::memset(block, 7, sizeof block);
  ASSERT_TRUE(file->write_at(0, block).ok());
  ASSERT_TRUE(file->sync().ok());
  file->discard(0, 4096);
  ASSERT_TRUE(file->read_at(0, block).ok());
  if (block[0] == std::byte{7}) GTEST_SKIP() << "this file system can't free parts of files";
  EXPECT_EQ(std::count(block, block + 8192, std::byte{0}), 4096);
  EXPECT_EQ(*file->size(), 8192u);
}

}  // namespace
}  // namespace tierkv
