// What the flash store says when the disk lies, fills up or goes away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/fault_file.h"
#include "base/file.h"
#include "kv/flash_store.h"
#include "kv/flash_test_util.h"

namespace tierkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPayload = 40000;
const uint64_t kBuffer = extent_buffer_bytes(kPayload);

// The real file system, and the descriptor of the file made last.
class Spy : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    return real_file_system().open_read(path);
  }
  Result<std::unique_ptr<File>> create_scratch(const std::string& directory) override {
    Result<std::unique_ptr<File>> file = real_file_system().create_scratch(directory);
    if (file.ok()) last_descriptor = (*file)->descriptor();
    return file;
  }
  int last_descriptor = -1;
};

class FlashFault : public ::testing::TestWithParam<FlashBackend> {
 protected:
  FlashFault() : file_system_(make_fault_file_system(file_system_spy_, plan_)) {}

  Result<std::unique_ptr<FlashStore>> create() {
    return FlashStore::create(*file_system_, directory_.path(), {42, {kPayload, kPayload}, 16},
                              {.backend = GetParam(), .queue_depth = 2});
  }
  // Creates the store; the file header has been write number 0.
  void open() {
    auto store = create();
    ASSERT_TRUE(store.ok()) << store.status().message();
    store_ = std::move(*store);
  }
  Status write(int layer, int64_t extent) {
    fill_payload(buffer_.all(), kPayload, layer, extent);
    return store_->wait(store_->start_write(layer, extent, buffer_.all()));
  }
  Status read(int layer, int64_t extent) {
    std::memset(buffer_.all().data(), 0xee, kBuffer);
    return store_->wait(store_->start_read(layer, extent, buffer_.all(), ReadNeed::kNow));
  }
  bool holds(int layer, int64_t extent) {
    return payload_matches(buffer_.all(), kPayload, layer, extent);
  }

  const TempDirectory directory_;
  FaultPlan plan_;
  Spy file_system_spy_;
  std::unique_ptr<FileSystem> file_system_;
  AlignedBuffer buffer_{kBuffer};
  std::unique_ptr<FlashStore> store_;
};

TEST_P(FlashFault, ReadThatFailsNamesThePlaceAndLaterReadsWork) {
  open();
  ASSERT_TRUE(write(1, 3).ok());
  plan_.fail_read_at = 0;
  const Status status = read(1, 3);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("layer 1, extent 3"), HasSubstr("Input/output error")));
  EXPECT_EQ(store_->stats().bytes_read, 0u);
  plan_.fail_read_at = FaultPlan::kNever;
  ASSERT_TRUE(read(1, 3).ok());
  EXPECT_TRUE(holds(1, 3));
}

TEST_P(FlashFault, WriteThatFailsLeavesTheOthersAlone) {
  open();
  ASSERT_TRUE(write(0, 0).ok());
  plan_.fail_write_at = 2;
  const Status status = write(0, 1);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("layer 0, extent 1"), HasSubstr("writing")));
  EXPECT_EQ(store_->stats().bytes_written, kBuffer);
  ASSERT_TRUE(read(0, 0).ok());
  EXPECT_TRUE(holds(0, 0));
}

TEST_P(FlashFault, FullDiskIsResourceExhaustedAndReadsStillWork) {
  open();
  plan_.disk_full_at = static_cast<int64_t>(kFlashBlock + 2 * kBuffer);
  EXPECT_TRUE(write(0, 0).ok());
  EXPECT_TRUE(write(0, 1).ok());
  const Status status = write(0, 2);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("layer 0, extent 2"), HasSubstr("No space left on device")));
  ASSERT_TRUE(read(0, 1).ok());
  EXPECT_TRUE(holds(0, 1));
}

void expect_damaged(const Status& status, const std::string& place) {
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(place), HasSubstr("the flash copy is damaged")));
}

TEST_P(FlashFault, FlippedBitIsCorruptAndTheNextReadIsGood) {
  open();
  ASSERT_TRUE(write(1, 15).ok());
  plan_.flip_bit_in_read = 0;
  expect_damaged(read(1, 15), "layer 1, extent 15");
  ASSERT_TRUE(read(1, 15).ok());
  EXPECT_TRUE(holds(1, 15));
}

TEST_P(FlashFault, TornWriteOverAnOlderExtentIsCorrupt) {
  open();
  ASSERT_TRUE(write(0, 4).ok());
  ASSERT_TRUE(write(0, 5).ok());  // so that the file does not end in the torn one
  plan_.tear_write_at = 3;
  fill_payload(buffer_.all(), kPayload, 9, 9);
  ASSERT_TRUE(store_->wait(store_->start_write(0, 4, buffer_.all())).ok()) << "it is torn silently";
  expect_damaged(read(0, 4), "layer 0, extent 4");
  ASSERT_TRUE(read(0, 5).ok());
}

TEST_P(FlashFault, TornLastWriteIsAShortFile) {
  open();
  plan_.tear_write_at = 1;
  ASSERT_TRUE(write(0, 0).ok());
  const Status status = read(0, 0);
  expect_damaged(status, "layer 0, extent 0");
  EXPECT_THAT(status.message(), HasSubstr("truncated"));
}

TEST_P(FlashFault, ExtentNeverWrittenIsCorrupt) {
  open();
  ASSERT_TRUE(write(0, 3).ok());
  expect_damaged(read(0, 2), "layer 0, extent 2");  // a hole
  expect_damaged(read(1, 2), "layer 1, extent 2");  // past the end
}

TEST_P(FlashFault, CreateReportsAFileThatCannotBeMade) {
  plan_.fail_create = true;
  const Status status = create().status();
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_THAT(status.message(), HasSubstr(directory_.path()));
}

TEST_P(FlashFault, CreateReportsAHeaderThatCannotBeWritten) {
  plan_.fail_write_at = 0;
  const Status failed = create().status();
  EXPECT_EQ(failed.code(), StatusCode::kIoError);
  EXPECT_THAT(failed.message(), HasSubstr("preparing the flash store in " + directory_.path()));
  plan_.fail_write_at = FaultPlan::kNever;
  plan_.disk_full_at = 0;
  EXPECT_EQ(create().status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(directory_.entries().empty());
}

TEST_P(FlashFault, GoesAwayCleanlyWhileEverythingFails) {
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.emplace_back(kBuffer);
  open();
  plan_.fail_write_at = 0;
  plan_.fail_read_at = 0;
  for (int i = 0; i < 4; ++i) (void)store_->start_write(0, i, buffers[i].all());
  for (int i = 4; i < 8; ++i) (void)store_->start_read(0, i, buffers[i].all());
  store_.reset();
}

TEST_P(FlashFault, ShortCallsAreFinished) {
  open();
  plan_.short_every = 3;  // one block of eleven
  for (int64_t extent = 0; extent < 4; ++extent) ASSERT_TRUE(write(1, extent).ok());
  EXPECT_GT(plan_.writes, 5) << "the header and four extents";
  for (int64_t extent = 0; extent < 4; ++extent) {
    const Status status = read(1, extent);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(holds(1, extent));
  }
  EXPECT_GT(plan_.reads, 4);
  EXPECT_EQ(store_->stats().reads, 4);
  EXPECT_EQ(store_->stats().bytes_read, 4 * kBuffer);
}

TEST_P(FlashFault, InterruptedCallsAreRepeated) {
  open();
  for (const int error : {EINTR, EAGAIN}) {
    plan_.write_error = plan_.read_error = error;
    plan_.fail_write_at = plan_.writes.load();
    ASSERT_TRUE(write(0, 7).ok());
    plan_.fail_read_at = plan_.reads.load();
    ASSERT_TRUE(read(0, 7).ok());
    EXPECT_TRUE(holds(0, 7));
    EXPECT_EQ(plan_.fail_read_at, FaultPlan::kNever) << "it was interrupted";
  }
}

TEST_P(FlashFault, AnErrorAmidMany) {
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.emplace_back(kBuffer);
  open();
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(write(0, i).ok());
  plan_.read_error = ENOMEM;
  plan_.fail_read_at = 3;
  std::vector<FlashStore::Ticket> tickets;
  for (int i = 0; i < 8; ++i) tickets.push_back(store_->start_read(0, i, buffers[i].all()));
  int failed = 0;
  for (int i = 0; i < 8; ++i) {
    const Status status = store_->wait(tickets[i]);
    if (status.ok()) {
      EXPECT_TRUE(payload_matches(buffers[i].all(), kPayload, 0, i));
    } else {
      ++failed;
      EXPECT_THAT(status.message(), HasSubstr("layer 0, extent " + std::to_string(i)));
    }
  }
  EXPECT_EQ(failed, 1);
}

TEST_P(FlashFault, SlowDiskIsOnlySlow) {
  open();
  ASSERT_TRUE(write(0, 0).ok());
  plan_.delay_us = 100000;
  ASSERT_TRUE(read(0, 0).ok());
  EXPECT_TRUE(holds(0, 0));
  EXPECT_GT(store_->stats().stall_seconds, 0.01);
  EXPECT_EQ(store_->stats().hits, 0);
}

// The file shrinks under us, to a block's end or amid one.
TEST_P(FlashFault, TruncatedFileIsCorrupt) {
  for (const off_t cut : {4096, 100}) {
    open();
    ASSERT_TRUE(write(0, 0).ok());
    ASSERT_TRUE(write(1, 0).ok());
    const uint64_t region_of_layer_1 = kFlashBlock + 16 * kBuffer;
    ASSERT_EQ(ftruncate(file_system_spy_.last_descriptor,
                        static_cast<off_t>(region_of_layer_1) + 8192 + cut),
              0);
    const Status status = read(1, 0);
    expect_damaged(status, "layer 1, extent 0");
    EXPECT_THAT(status.message(), HasSubstr("truncated"));
    ASSERT_TRUE(read(0, 0).ok());
    EXPECT_TRUE(holds(0, 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FlashFault, ::testing::ValuesIn(available_backends()),
                         BackendName());

// A path below a regular file is one that not even root can write to.
TEST(FlashStoreDirectory, OneThatCannotBeMadeIsAnErrorThatNamesIt) {
  const TempDirectory directory;
  const std::string file = directory.path() + "/file";
  std::ofstream(file) << "x";
  for (const std::string& bad : {file, file + "/below", directory.path() + "/no/parent"}) {
    const auto store = FlashStore::create(real_file_system(), bad, {1, {100}, 1});
    ASSERT_FALSE(store.ok());
    EXPECT_THAT(store.status().code(),
                ::testing::AnyOf(StatusCode::kIoError, StatusCode::kNotFound));
    EXPECT_THAT(store.status().message(), HasSubstr(bad));
  }
  EXPECT_EQ(directory.entries(), std::vector<std::string>{"file"});
}

TEST(FlashStoreDirectory, AbsurdLayoutIsRefusedBeforeAFileIsMade) {
  const auto store = FlashStore::create(real_file_system(), "/nonexistent/a/b", {1, {}, 1});
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
}

// A real disk of 1 MiB, where mounting one is permitted.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path) : path_(path) {
    mounted_ = mount("tierkv", path.c_str(), "tmpfs", 0, "size=1m,mode=0700") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_;
};

TEST(FlashStoreDirectory, RealFullDisk) {
  const TempDirectory directory;
  const SmallDisk disk(directory.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  constexpr int64_t kExtents = 64;
  auto store = FlashStore::create(real_file_system(), directory.path(), {1, {kPayload}, kExtents});
  ASSERT_TRUE(store.ok()) << store.status().message();
  AlignedBuffer buffer(kBuffer);
  int64_t written = 0;
  Status status;
  for (; written < kExtents; ++written) {
    fill_payload(buffer.all(), kPayload, 0, written);
    status = (*store)->wait((*store)->start_write(0, written, buffer.all()));
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
  EXPECT_GT(written, 10);
  EXPECT_LE(static_cast<uint64_t>(written) * kBuffer, uint64_t{1} << 20);
  for (int64_t extent = 0; extent < written; ++extent) {
    ASSERT_TRUE((*store)->wait((*store)->start_read(0, extent, buffer.all())).ok());
    EXPECT_TRUE(payload_matches(buffer.all(), kPayload, 0, extent));
  }
}

}  // namespace
}  // namespace tierkv
