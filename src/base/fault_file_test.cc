#include "base/fault_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <vector>

namespace tierkv {
namespace {

using ::testing::HasSubstr;

struct Blocks {
  alignas(4096) std::byte data[4 * 4096];
};

class FaultFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tierkv-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    file_system_ = make_fault_file_system(real_file_system(), plan_);
    auto file = file_system_->create_scratch(directory_);
    ASSERT_TRUE(file.ok());
    file_ = std::move(*file);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Status write(uint64_t offset, int value, size_t n = 4 * 4096) {
    std::fill(std::begin(blocks_->data), std::end(blocks_->data), static_cast<std::byte>(value));
    return file_->write_at(offset, std::span(blocks_->data).first(n));
  }
  Status read(uint64_t offset) { return file_->read_at(offset, blocks_->data); }
  int64_t count(int value) const {
    return std::count(std::begin(blocks_->data), std::end(blocks_->data),
                      static_cast<std::byte>(value));
  }

  std::string directory_;
  FaultPlan plan_;
  std::unique_ptr<FileSystem> file_system_;
  std::unique_ptr<File> file_;
  std::unique_ptr<Blocks> blocks_ = std::make_unique<Blocks>();
};

TEST_F(FaultFileTest, WithoutFaultsItIsTheFileAndCounts) {
  ASSERT_TRUE(write(0, 1).ok());
  ASSERT_TRUE(write(16384, 2).ok());
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(1), 16384);
  EXPECT_EQ(*file_->size(), 32768u);
  EXPECT_EQ(plan_.writes, 2);
  EXPECT_EQ(plan_.reads, 1);
  EXPECT_EQ(plan_.bytes_written, 32768);
}

TEST_F(FaultFileTest, ReadsFailFromTheGivenOneOn) {
  ASSERT_TRUE(write(0, 1).ok());
  plan_.fail_read_at = 1;
  EXPECT_TRUE(read(0).ok());
  EXPECT_EQ(read(0).code(), StatusCode::kIoError);
  EXPECT_EQ(read(0).code(), StatusCode::kIoError);
  plan_.fail_read_at = FaultPlan::kNever;
  EXPECT_TRUE(read(0).ok());
}

TEST_F(FaultFileTest, WritesFailFromTheGivenOneOnAndStoreNothing) {
  ASSERT_TRUE(write(0, 1).ok());
  plan_.fail_write_at = 1;
  EXPECT_EQ(write(0, 2).code(), StatusCode::kIoError);
  EXPECT_EQ(write(16384, 2).code(), StatusCode::kIoError);
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(1), 16384);
  EXPECT_EQ(*file_->size(), 16384u);
}

TEST_F(FaultFileTest, DiskIsFullAfterSoManyBytes) {
  plan_.disk_full_at = 16384 + 4096;
  EXPECT_TRUE(write(0, 1).ok());
  EXPECT_TRUE(write(16384, 1, 4096).ok());
  const Status status = write(20480, 1, 4096);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("No space left"));
  EXPECT_TRUE(read(0).ok());
}

TEST_F(FaultFileTest, OneReadHasOneBitFlipped) {
  ASSERT_TRUE(write(0, 1).ok());
  plan_.flip_bit_in_read = 1;
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(1), 16384);
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(1), 16383);
  EXPECT_EQ(count(5), 1);  // 1 ^ 4
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(1), 16384);
}

TEST_F(FaultFileTest, TornWriteStoresItsFirstHalfAndSaysNothing) {
  ASSERT_TRUE(write(0, 1).ok());
  plan_.tear_write_at = 1;
  ASSERT_TRUE(write(0, 2).ok());
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(2), 8192);
  EXPECT_EQ(count(1), 8192);
  ASSERT_TRUE(write(0, 3).ok());
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(3), 16384);
}

TEST_F(FaultFileTest, ShortAndInterruptedCallsAreFinished) {
  plan_.short_every = 2;
  plan_.fail_write_at = 1;
  plan_.write_error = EINTR;
  ASSERT_TRUE(write(0, 7).ok());
  EXPECT_EQ(plan_.writes, 4);  // a block, interrupted, a block, the rest
  plan_.fail_read_at = 1;
  plan_.read_error = EAGAIN;
  ASSERT_TRUE(read(0).ok());
  EXPECT_EQ(count(7), 16384);
}

TEST_F(FaultFileTest, ItsDescriptorComesWithTheHook) {
  EXPECT_GE(file_->descriptor(), 0);
  ASSERT_NE(file_->hook(), nullptr);
  plan_.fail_read_at = 0;
  EXPECT_EQ(file_->hook()->before(IoKind::kRead, 4096).error, EIO);
  EXPECT_EQ(file_->hook()->before(IoKind::kWrite, 4096).error, 0);
}

TEST_F(FaultFileTest, CreateFails) {
  plan_.fail_create = true;
  const auto file = file_system_->create_scratch(directory_);
  EXPECT_EQ(file.status().code(), StatusCode::kIoError);
  EXPECT_THAT(file.status().message(), HasSubstr(directory_));
}

TEST_F(FaultFileTest, OpenedFilesHaveTheFaultsToo) {
  EXPECT_EQ(file_system_->open_read(directory_ + "/none").status().code(), StatusCode::kNotFound);
  std::filesystem::resize_file(
      [&] {
        const std::string path = directory_ + "/a";
        std::FILE* created = std::fopen(path.c_str(), "w");
        if (created != nullptr) std::fclose(created);
        return path;
      }(),
      16384);
  plan_.fail_read_at = 0;
  auto file = file_system_->open_read(directory_ + "/a");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->read_at(0, blocks_->data).code(), StatusCode::kIoError);
}

TEST_F(FaultFileTest, SyncFails) {
  plan_.fail_sync_at = 1;
  EXPECT_TRUE(file_->sync().ok());
  EXPECT_EQ(file_->sync().code(), StatusCode::kIoError);
  EXPECT_EQ(plan_.syncs, 2);
}

TEST_F(FaultFileTest, ExclusiveFilesHaveTheFaultsToo) {
  const std::string path = directory_ + "/session";
  auto file = file_system_->create_exclusive(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE((*file)->publish().ok());
  EXPECT_TRUE((*file)->still_named());
  plan_.fail_write_at = 0;
  EXPECT_EQ((*file)->write_at(0, blocks_->data).code(), StatusCode::kIoError);
  file->reset();
  plan_.fail_create = true;
  EXPECT_EQ(file_system_->create_exclusive(path).status().code(), StatusCode::kIoError);
  auto opened = file_system_->open_exclusive(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ((*opened)->write_at(0, blocks_->data).code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace tierkv
