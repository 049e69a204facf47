// The staging ring and the writer: order, what is read ahead, what is kept, faults.
#include "kv/extent_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/fault_file.h"
#include "kv/extent_writer.h"
#include "kv/flash_test_util.h"

namespace tierkv {
namespace {

KvLayout test_layout() {
  KvLayerShape shape;
  shape.n_heads = shape.n_kv_heads = 2;
  shape.head_dim = 64;
  KvLayerShape window = shape;
  window.window = 100;
  return make_kv_layout({shape, window, shape, shape});  // the full layers are 0, 2 and 3
}

class ExtentStreamTest : public ::testing::TestWithParam<FlashBackend> {
 protected:
  // A stream over `files`.
  void open(FileSystem& files, FlashOverlap overlap = FlashOverlap::kOn) {
    FlashLayout flash = {1, {}, 64};
    for (int layer = 0; layer < 4; ++layer) {
      flash.payload_bytes.push_back(layout_.is_full(layer) ? layout_.extent_payload_bytes(layer)
                                                           : 0);
    }
    auto store = FlashStore::create(files, directory_.path(), flash,
                                    {GetParam(), ExtentStream::n_buffers(layout_)});
    ASSERT_TRUE(store.ok()) << store.status().message();
    auto stream = ExtentStream::create(layout_, budget_, std::move(*store), overlap);
    ASSERT_TRUE(stream.ok());
    stream_ = std::move(*stream);
    writer_ = std::make_unique<ExtentWriter>(
        layout_, *stream_,
        [this](int64_t extent, int layer, std::byte* payload) {
          for (uint64_t i = 0; i < layout_.extent_payload_bytes(layer); ++i) {
            payload[i] = payload_byte(i, layer, extent);
          }
        },
        [this](int64_t extent) { written_.push_back(extent); });
  }
  void open_with(int64_t n_extents, FileSystem& files = real_file_system(),
                 FlashOverlap overlap = FlashOverlap::kOn) {
    open(files, overlap);
    for (int64_t e = 0; e < n_extents; ++e) writer_->add(e);
    ASSERT_TRUE(writer_->wait_for_all().ok());
  }
  void read(int layer, size_t index, const std::vector<int64_t>& extents) {
    const auto payload = stream_->next(layer, index);
    ASSERT_TRUE(payload.ok()) << payload.status().message();
    const uint64_t bytes = layout_.extent_payload_bytes(layer);
    for (uint64_t i = 0; i < bytes; i += 97) {
      ASSERT_EQ((*payload)[i], payload_byte(i, layer, extents[index]))
          << "layer " << layer << " extent " << extents[index];
    }
  }
  void read_all(const std::vector<int64_t>& extents) {
    for (const int layer : layout_.full_layers) {
      for (size_t i = 0; i < extents.size(); ++i) read(layer, i, extents);
    }
  }
  // Before the file system goes that a test has made.
  void close() {
    writer_.reset();
    stream_.reset();
  }
  int64_t n_buffers() const { return ExtentStream::n_buffers(layout_); }

  const KvLayout layout_ = test_layout();
  const TempDirectory directory_;
  MemoryBudget budget_;
  std::unique_ptr<ExtentStream> stream_;
  std::unique_ptr<ExtentWriter> writer_;
  std::vector<int64_t> written_;
};

INSTANTIATE_TEST_SUITE_P(Backends, ExtentStreamTest, ::testing::ValuesIn(available_backends()),
                         BackendName());

TEST_P(ExtentStreamTest, StagingIsWhatThePlannerCounts) {
  open(real_file_system());
  EXPECT_EQ(budget_.used(MemoryKind::kStaging), ExtentStream::staging_bytes(layout_));
}

// Reading ahead has filled the ring with what will be asked for soon; a write that somebody waits
// for must still find a buffer.
TEST_P(ExtentStreamTest, WritesThatAreWaitedForGoBeforeReadingAhead) {
  open_with(10);
  const std::vector<int64_t> extents = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  stream_->set_extents(extents);
  ASSERT_NO_FATAL_FAILURE(read(0, 0, extents));
  writer_->add(20);
  const Status written = writer_->wait_for(20);
  EXPECT_TRUE(written.ok()) << written.message();
  EXPECT_EQ(written_.back(), 20);
  ASSERT_NO_FATAL_FAILURE(read_all(extents));
}

TEST_P(ExtentStreamTest, ReadsAcrossLayersAndStepsWhateverTheOverlap) {
  for (const FlashOverlap overlap : {FlashOverlap::kOn, FlashOverlap::kOff}) {
    for (const std::vector<int64_t>& extents :
         {std::vector<int64_t>{5}, {1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
      close();
      open_with(10, real_file_system(), overlap);
      stream_->set_extents(extents);
      for (int step = 0; step < 3; ++step) ASSERT_NO_FATAL_FAILURE(read_all(extents));
      const FlashStats stats = stream_->stats();
      const auto asked = static_cast<int64_t>(3 * 3 * extents.size());
      EXPECT_EQ(stats.asked, asked);
      if (overlap == FlashOverlap::kOff) {
        EXPECT_EQ(stats.reads, asked);
        EXPECT_EQ(stats.hits, 0);
      } else {
        EXPECT_LE(stats.reads, asked + n_buffers()) << "nothing is read twice";
      }
    }
  }
}

TEST_P(ExtentStreamTest, TheWholeRingIsAskedForAhead) {
  SlowFileSystem slow;
  open_with(20, slow);
  std::vector<int64_t> extents;
  for (int64_t e = 0; e < 20; ++e) extents.push_back(e);
  slow.clear_log();
  slow.close_gate();
  stream_->set_extents(extents);
  while (static_cast<int64_t>(slow.log().size()) < n_buffers()) std::this_thread::yield();
  slow.open_gate();
  read(0, 0, extents);
  while (stream_->stats().reads < n_buffers()) std::this_thread::yield();
  for (size_t i = 1; i < static_cast<size_t>(n_buffers()); ++i) read(0, i, extents);
  EXPECT_GE(stream_->stats().hits, n_buffers() - 2) << "they were there";
  close();
}

TEST_P(ExtentStreamTest, WhatWasReadAheadStaysWhenTheListGrows) {
  open_with(8);
  std::vector<int64_t> extents;
  for (int64_t e = 0; e < 8; ++e) {
    extents.push_back(e);
    stream_->set_extents(extents);
    read_all(extents);
  }
  const FlashStats stats = stream_->stats();
  EXPECT_EQ(stats.asked, 3 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
  // More than was asked for: what was read ahead for the last step, and what the new extent pushes
  // out of a full ring, one of each layer.
  EXPECT_LE(stats.reads, stats.asked + n_buffers() + 3 * 8);
}

TEST_P(ExtentStreamTest, AnyOrderIsServed) {
  open_with(10);
  std::mt19937 random(3);
  std::vector<int64_t> extents = {0, 2, 3, 4, 7, 9};
  stream_->set_extents(extents);
  for (int i = 0; i < 200; ++i) {
    if (i % 50 == 49) {
      extents = {1, 4, 5 + i / 50};
      stream_->set_extents(extents);
    }
    read(layout_.full_layers[random() % 3], random() % extents.size(), extents);
  }
  EXPECT_EQ(stream_->next(1, 0).status().code(), StatusCode::kInternal) << "a window layer";
  EXPECT_EQ(stream_->next(0, extents.size()).status().code(), StatusCode::kInternal);
}

TEST_P(ExtentStreamTest, AfterAFailedReadEverythingIsReadAnew) {
  FaultPlan plan;
  const auto files = make_fault_file_system(real_file_system(), plan);
  open_with(6, *files);
  const std::vector<int64_t> extents = {0, 1, 2, 3, 4, 5};
  stream_->set_extents(extents);
  read(0, 0, extents);
  plan.fail_read_at = plan.reads.load();
  Status status;
  for (size_t i = 1; i < 40 && status.ok(); ++i) {  // the first were there before the fault
    status = stream_->next(layout_.full_layers[i / 6 % 3], i % 6).status();
  }
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  plan.fail_read_at = FaultPlan::kNever;
  read_all(extents);
  close();
}

TEST_P(ExtentStreamTest, ExtentsAreWrittenInOrderAndToldOfOnce) {
  open(real_file_system());
  for (const int64_t e : {3, 4, 6}) writer_->add(e);
  EXPECT_TRUE(writer_->is_pending(3));
  EXPECT_FALSE(writer_->is_pending(5));
  ASSERT_TRUE(writer_->wait_for(3).ok());
  EXPECT_EQ(written_.front(), 3);
  while (!writer_->idle()) {
    writer_->pump();
    std::this_thread::yield();
  }
  EXPECT_EQ(written_, (std::vector<int64_t>{3, 4, 6}));
  const std::vector<int64_t> extents = {3, 4, 6};
  stream_->set_extents(extents);
  read_all(extents);
}

TEST_P(ExtentStreamTest, PumpingDoesNotWaitAndReadsGoOn) {
  SlowFileSystem slow;
  open_with(4, slow);
  const std::vector<int64_t> extents = {0, 1, 2, 3};
  stream_->set_extents(extents);
  read(0, 0, extents);
  slow.close_gate();
  for (int64_t e = 4; e < 12; ++e) writer_->add(e);
  for (int i = 0; i < 10; ++i) writer_->pump();  // would hang if it waited
  EXPECT_EQ(written_.size(), 4u);
  slow.open_gate();
  for (int step = 0; step < 4; ++step) {
    read_all(extents);
    writer_->pump();
  }
  ASSERT_TRUE(writer_->wait_for_all().ok());
  EXPECT_EQ(written_.size(), 12u);
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  stream_->set_extents(all);
  read_all(all);
  close();
}

// What each layer reads is known only when it is asked for, and guessed to be as in the pass
// before.
TEST_P(ExtentStreamTest, EachLayerItsOwnExtents) {
  open_with(10);
  const std::vector<std::vector<int64_t>> choices = {{}, {3}, {0, 4, 9}, {0, 1, 2, 3, 4, 5, 6}};
  for (size_t step = 0; step < 12; ++step) {
    for (size_t i = 0; i < layout_.full_layers.size(); ++i) {
      const std::vector<int64_t>& chosen = choices[(step / 3 + i) % choices.size()];
      stream_->set_layer_extents(layout_.full_layers[i], chosen);
      for (size_t at = 0; at < chosen.size(); ++at) {
        ASSERT_NO_FATAL_FAILURE(read(layout_.full_layers[i], at, chosen));
      }
      EXPECT_FALSE(stream_->next(layout_.full_layers[i], chosen.size()).ok());
    }
    writer_->pump();
  }
  const FlashStats before = stream_->stats();
  const int layer = layout_.full_layers[0];
  stream_->set_extents(std::vector<std::vector<int64_t>>(layout_.full_layers.size()));
  stream_->set_layer_extents(layer, {5});
  for (int step = 0; step < 20; ++step) {
    stream_->set_layer_extents(layer, {5});
    ASSERT_NO_FATAL_FAILURE(read(layer, 0, {5}));
  }
  const FlashStats after = stream_->stats() - before;
  EXPECT_LE(after.reads, 20 + n_buffers() + 1) << "a guess that is right is read once";
}

TEST_P(ExtentStreamTest, WithoutOverlapAWriteIsWaitedFor) {
  open(real_file_system(), FlashOverlap::kOff);
  writer_->add(0);
  writer_->pump();
  EXPECT_EQ(written_, std::vector<int64_t>{0});
}

// A full disk and a bad one: the extent stays pending, and goes once there is room.
TEST_P(ExtentStreamTest, WhatCannotBeWrittenStaysPending) {
  for (const bool full : {true, false}) {
    written_.clear();
    FaultPlan plan;
    const auto files = make_fault_file_system(real_file_system(), plan);
    open_with(2, *files);
    if (full) plan.disk_full_at = plan.bytes_written.load() + (1 << 20);
    if (!full) plan.fail_write_at = plan.writes.load() + 1;
    for (int64_t e = 2; e < 5; ++e) writer_->add(e);
    for (int i = 0; i < 20; ++i) {
      writer_->pump();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const Status status = writer_->wait_for(4);
    EXPECT_EQ(status.code(), full ? StatusCode::kResourceExhausted : StatusCode::kIoError);
    EXPECT_TRUE(writer_->is_pending(4));
    const std::vector<int64_t> before = {0, 1};
    stream_->set_extents(before);
    read_all(before);
    plan.disk_full_at = plan.fail_write_at = FaultPlan::kNever;
    const Status later = writer_->wait_for(4);
    ASSERT_TRUE(later.ok()) << later.message();
    std::sort(written_.begin(), written_.end());
    EXPECT_EQ(written_, (std::vector<int64_t>{0, 1, 2, 3, 4}));
    const std::vector<int64_t> all = {0, 1, 2, 3, 4};
    stream_->set_extents(all);
    read_all(all);
    close();
  }
}

TEST_P(ExtentStreamTest, GoesAwayWithEverythingOpen) {
  for (int round = 0; round < 5; ++round) {
    open_with(6);
    stream_->set_extents({0, 1, 2, 3, 4, 5});
    for (int64_t e = 6; e < 9; ++e) writer_->add(e);
    writer_->pump();
    close();
    EXPECT_EQ(budget_.used(), 0u);
  }
}

}  // namespace
}  // namespace tierkv
