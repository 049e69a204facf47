#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace tierkv {
namespace {

namespace fs = std::filesystem;

class AtomicFile : public testing::Test {
 protected:
  AtomicFile()
      : folder_(fs::temp_directory_path() / ("tierkv-atomic-" + std::to_string(getpid()))) {
    fs::create_directory(folder_);
  }
  ~AtomicFile() override { fs::remove_all(folder_); }

  size_t n_files() const {
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) n += entry.is_regular_file();
    return n;
  }
  fs::path folder_;
};

TEST_F(AtomicFile, ReplacesAndLeavesNothingElse) {
  const std::string path = folder_ / "a.json";
  for (const std::string& text : {std::string("first"), std::string(100000, 'x'), std::string()}) {
    ASSERT_TRUE(write_file_atomically(path, text).ok());
    EXPECT_EQ(*read_small_file(real_file_system(), path, 1 << 20), text);
    EXPECT_EQ(n_files(), 1u);
  }
}

TEST_F(AtomicFile, MakesTheLastDirectoryOnly) {
  EXPECT_TRUE(write_file_atomically(folder_ / "new" / "a", "x").ok());
  const Status status = write_file_atomically(folder_ / "no" / "such" / "a", "x");
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_NE(status.message().find("no/such"), std::string::npos);
}

TEST_F(AtomicFile, AFailureKeepsTheOldContents) {
  const std::string path = folder_ / "a";
  fs::create_directory(path);  // a rename can't replace it
  std::ofstream(fs::path(path) / "inside") << "kept";
  EXPECT_FALSE(write_file_atomically(path, "x").ok());
  EXPECT_TRUE(fs::exists(fs::path(path) / "inside"));
  EXPECT_EQ(n_files(), 0u);  // the temporary one is gone
}

TEST_F(AtomicFile, LargeFilesAreRefused) {
  const std::string path = folder_ / "a";
  ASSERT_TRUE(write_file_atomically(path, "12345").ok());
  EXPECT_TRUE(read_small_file(real_file_system(), path, 5).ok());
  EXPECT_EQ(read_small_file(real_file_system(), path, 4).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(read_small_file(real_file_system(), folder_ / "none", 4).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace tierkv
