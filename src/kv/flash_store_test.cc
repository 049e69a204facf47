#include "kv/flash_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/memory_budget.h"
#include "base/memory_file.h"
#include "kv/flash_test_util.h"

namespace tierkv {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kModel = 0x1122334455667788;

FlashLayout small_layout() { return {kModel, {20000, 0, 8192, 300}, 40}; }

std::unique_ptr<FlashStore> must_create(const std::string& directory, const FlashLayout& layout,
                                        FlashBackend backend, int depth = 2,
                                        FileSystem& files = real_file_system()) {
  auto store =
      FlashStore::create(files, directory, layout, {.backend = backend, .queue_depth = depth});
  EXPECT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->backend(), backend);
  return store.ok() ? std::move(*store) : nullptr;
}

struct Place {
  int layer;
  int64_t extent;
};

std::vector<Place> all_places(const FlashLayout& layout) {
  std::vector<Place> places;
  for (int layer = 0; layer < static_cast<int>(layout.payload_bytes.size()); ++layer) {
    if (layout.payload_bytes[layer] == 0) continue;
    for (int64_t e = 0; e < layout.max_extents; ++e) places.push_back({layer, e});
  }
  return places;
}

class FlashStoreDepths : public ::testing::TestWithParam<std::tuple<FlashBackend, int>> {};
class FlashStoreTest : public ::testing::TestWithParam<FlashBackend> {};

// Several open at once, in random order, from several layers: what comes back is what went in.
TEST_P(FlashStoreDepths, RoundTripsInRandomOrder) {
  const TempDirectory directory;
  const FlashLayout layout = small_layout();
  const auto store =
      must_create(directory.path(), layout, std::get<0>(GetParam()), std::get<1>(GetParam()));
  std::mt19937 random(7);
  std::vector<Place> places = all_places(layout);
  constexpr size_t kOpen = 6;
  std::vector<AlignedBuffer> buffers;
  for (size_t i = 0; i < kOpen; ++i) buffers.emplace_back(extent_buffer_bytes(20000));
  for (const bool writing : {true, false}) {
    std::shuffle(places.begin(), places.end(), random);
    for (size_t first = 0; first < places.size(); first += kOpen) {
      const size_t n = std::min(kOpen, places.size() - first);
      std::vector<FlashStore::Ticket> tickets;
      for (size_t i = 0; i < n; ++i) {
        const auto [layer, extent] = places[first + i];
        const auto buffer = buffers[i].first(extent_buffer_bytes(layout.payload_bytes[layer]));
        if (writing) fill_payload(buffer, layout.payload_bytes[layer], layer, extent);
        tickets.push_back(writing ? store->start_write(layer, extent, buffer)
                                  : store->start_read(layer, extent, buffer));
      }
      for (size_t i = 0; i < n; ++i) {
        const auto [layer, extent] = places[first + i];
        const Status status = store->wait(tickets[i]);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(payload_matches(buffers[i].all(), layout.payload_bytes[layer], layer, extent));
      }
    }
  }
  const FlashStats stats = store->stats();
  EXPECT_EQ(stats.writes, static_cast<int64_t>(places.size()));
  EXPECT_EQ(stats.reads, static_cast<int64_t>(places.size()));
  const uint64_t bytes =
      40 * (extent_buffer_bytes(20000) + extent_buffer_bytes(8192) + extent_buffer_bytes(300));
  EXPECT_EQ(stats.bytes_written, bytes);
  EXPECT_EQ(stats.bytes_read, bytes);
  EXPECT_LE(stats.hits, stats.reads);
}

INSTANTIATE_TEST_SUITE_P(Backends, FlashStoreDepths,
                         ::testing::Combine(::testing::ValuesIn(available_backends()),
                                            ::testing::Values(1, 2, 5)));
INSTANTIATE_TEST_SUITE_P(Backends, FlashStoreTest, ::testing::ValuesIn(available_backends()),
                         BackendName());

TEST_P(FlashStoreTest, RewritingReplacesAnExtent) {
  const TempDirectory directory;
  const auto store = must_create(directory.path(), small_layout(), GetParam());
  AlignedBuffer buffer(extent_buffer_bytes(8192));
  for (const int generation : {1, 2, 3}) {
    fill_payload(buffer.all(), 8192, generation, 0);
    ASSERT_TRUE(store->wait(store->start_write(2, 5, buffer.all())).ok());
  }
  ASSERT_TRUE(store->wait(store->start_read(2, 5, buffer.all())).ok());
  EXPECT_TRUE(payload_matches(buffer.all(), 8192, 3, 0));
}

TEST_P(FlashStoreTest, TheFileIsSparseAndNameless) {
  const TempDirectory directory;
  const auto store =
      must_create(directory.path(), {kModel, {1 << 20, 1 << 20}, 1 << 14}, GetParam());
  EXPECT_TRUE(directory.entries().empty());
  AlignedBuffer buffer(extent_buffer_bytes(1 << 20));
  fill_payload(buffer.all(), 1 << 20, 1, 16383);
  ASSERT_TRUE(store->wait(store->start_write(1, 16383, buffer.all())).ok());  // at 34 GB
  ASSERT_TRUE(store->wait(store->start_read(1, 16383, buffer.all())).ok());
  EXPECT_TRUE(payload_matches(buffer.all(), 1 << 20, 1, 16383));
}

TEST_P(FlashStoreTest, HitsAreReadsThatWereThereAndStallsAreNot) {
  const TempDirectory directory;
  SlowFileSystem slow;
  const auto made = must_create(directory.path(), small_layout(), GetParam(), 1, slow);
  FlashStore& store = *made;
  AlignedBuffer buffer(extent_buffer_bytes(8192));
  fill_payload(buffer.all(), 8192, 2, 0);
  ASSERT_TRUE(store.wait(store.start_write(2, 0, buffer.all())).ok());
  EXPECT_EQ(store.stats().stall_seconds, 0) << "writes are not stalls";

  auto ticket = store.start_read(2, 0, buffer.all());
  while (!store.done(ticket)) std::this_thread::yield();
  ASSERT_TRUE(store.wait(ticket).ok());
  EXPECT_EQ(store.stats().hits, 1);
  EXPECT_EQ(store.stats().stall_seconds, 0);

  ticket = store.start_read(2, 0, buffer.all(), ReadNeed::kNow);
  while (!store.done(ticket)) std::this_thread::yield();
  ASSERT_TRUE(store.wait(ticket).ok());
  EXPECT_EQ(store.stats().hits, 1) << "not asked for ahead";

  slow.close_gate();
  ticket = store.start_read(2, 0, buffer.all());
  EXPECT_FALSE(store.done(ticket));
  std::thread opener([&slow] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    slow.open_gate();
  });
  ASSERT_TRUE(store.wait(ticket).ok());
  opener.join();
  EXPECT_EQ(store.stats().hits, 1);
  EXPECT_EQ(store.stats().asked, 3);
  EXPECT_EQ(store.stats().hit_rate(), 1.0 / 3);
  EXPECT_EQ(store.stats().reads, 3);
  EXPECT_GT(store.stats().stall_seconds, 0.005);
}

TEST_P(FlashStoreTest, ReadsOvertakeQueuedWrites) {
  const TempDirectory directory;
  SlowFileSystem slow;
  const auto made = must_create(directory.path(), small_layout(), GetParam(), 1, slow);
  FlashStore& store = *made;
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 4; ++i) buffers.emplace_back(extent_buffer_bytes(8192));
  ASSERT_TRUE(store.wait(store.start_write(2, 9, buffers[3].all())).ok());
  slow.clear_log();
  slow.close_gate();
  const auto w0 = store.start_write(2, 0, buffers[0].all());
  while (slow.waiting() == 0) std::this_thread::yield();  // w0 is at the disk, w1 is queued
  const auto w1 = store.start_write(2, 1, buffers[1].all());
  const auto r = store.start_read(2, 9, buffers[3].all());
  slow.open_gate();
  EXPECT_TRUE(store.wait(w1).ok());
  EXPECT_TRUE(store.wait(r).ok());
  EXPECT_TRUE(store.wait(w0).ok());
  EXPECT_EQ(slow.log(), "WRW");
}

TEST_P(FlashStoreTest, UnknownTicketsAreOurMistake) {
  const TempDirectory directory;
  const auto store = must_create(directory.path(), small_layout(), GetParam());
  EXPECT_EQ(store->wait(0).code(), StatusCode::kInternal);
  EXPECT_EQ(store->wait(12345).code(), StatusCode::kInternal);
  EXPECT_FALSE(store->done(12345));
  AlignedBuffer buffer(extent_buffer_bytes(8192));
  const auto ticket = store->start_write(2, 0, buffer.all());
  EXPECT_TRUE(store->wait(ticket).ok());
  EXPECT_EQ(store->wait(ticket).code(), StatusCode::kInternal) << "waited for twice";
}

TEST_P(FlashStoreTest, RequestsThatMakeNoSenseAreRefusedWithoutIo) {
  const TempDirectory directory;
  const auto store = must_create(directory.path(), small_layout(), GetParam());
  AlignedBuffer buffer(extent_buffer_bytes(20000));
  struct Case {
    const char* name;
    int layer;
    int64_t extent;
    size_t offset, bytes;
  };
  const size_t right = extent_buffer_bytes(8192);
  for (const Case& c :
       {Case{"layer -1", -1, 0, 0, right}, Case{"layer 4", 4, 0, 0, right},
        Case{"layer without flash", 1, 0, 0, kFlashBlock}, Case{"extent -1", 2, -1, 0, right},
        Case{"extent 40", 2, 40, 0, right}, Case{"short buffer", 2, 0, 0, right - 1},
        Case{"long buffer", 2, 0, 0, right + 4096}, Case{"misaligned", 2, 0, 512, right}}) {
    const auto span = buffer.all().subspan(c.offset, c.bytes);
    EXPECT_EQ(store->wait(store->start_write(c.layer, c.extent, span)).code(),
              StatusCode::kInternal)
        << c.name;
    const auto read = store->start_read(c.layer, c.extent, span);
    EXPECT_TRUE(store->done(read)) << c.name;
    EXPECT_EQ(store->wait(read).code(), StatusCode::kInternal) << c.name;
  }
  EXPECT_EQ(store->stats().reads + store->stats().writes, 0);
}

TEST_P(FlashStoreTest, AnExtentHasOneWriterAndIsNotReadBeforeTheWriteWasWaitedFor) {
  const TempDirectory directory;
  const auto store = must_create(directory.path(), small_layout(), GetParam());
  AlignedBuffer a(extent_buffer_bytes(8192)), b(extent_buffer_bytes(8192));
  const auto write = store->start_write(2, 0, a.all());
  while (!store->done(write)) std::this_thread::yield();  // done, but nobody has asked
  const Status early = store->wait(store->start_read(2, 0, b.all()));
  EXPECT_EQ(early.code(), StatusCode::kInternal);
  EXPECT_THAT(early.message(), HasSubstr("layer 2, extent 0"));
  EXPECT_EQ(store->wait(store->start_write(2, 0, b.all())).code(), StatusCode::kInternal);
  const auto elsewhere = store->start_write(2, 1, b.all());
  EXPECT_TRUE(store->wait(elsewhere).ok());
  EXPECT_TRUE(store->wait(write).ok());

  const auto read = store->start_read(2, 0, a.all());
  const auto same = store->start_read(2, 0, b.all());
  AlignedBuffer c(extent_buffer_bytes(8192));
  EXPECT_EQ(store->wait(store->start_write(2, 0, c.all())).code(), StatusCode::kInternal);
  EXPECT_TRUE(store->wait(read).ok());
  EXPECT_TRUE(store->wait(same).ok());
}

TEST_P(FlashStoreTest, CallersOnSeveralThreads) {
  const TempDirectory directory;
  const auto store = must_create(directory.path(), small_layout(), GetParam(), 3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&store, caller] {
      AlignedBuffer buffer(extent_buffer_bytes(20000));
      for (int64_t e = caller; e < 40; e += 4) {
        fill_payload(buffer.all(), 20000, 0, e);
        EXPECT_TRUE(store->wait(store->start_write(0, e, buffer.all())).ok());
        EXPECT_TRUE(store->wait(store->start_read(0, e, buffer.all())).ok());
        EXPECT_TRUE(payload_matches(buffer.all(), 20000, 0, e));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_P(FlashStoreTest, GoesAwayCleanlyWithRequestsOpen) {
  const TempDirectory directory;
  for (int round = 0; round < 20; ++round) {
    std::vector<AlignedBuffer> buffers;
    for (int i = 0; i < 12; ++i) buffers.emplace_back(extent_buffer_bytes(20000));
    const auto store = must_create(directory.path(), small_layout(), GetParam(), 1 + round % 3);
    ASSERT_TRUE(store->wait(store->start_write(0, 0, buffers[0].all())).ok());
    for (int i = 1; i < 8; ++i) (void)store->start_write(0, i, buffers[i].all());
    for (int i = 8; i < 12; ++i) (void)store->start_read(0, 0, buffers[i].all());
  }  // the store goes first: from then on nobody touches the buffers
  EXPECT_TRUE(directory.entries().empty());
}

// Writes have a share of the queue, however many there are: the disk has room for reads.
TEST_P(FlashStoreTest, WritesLeaveRoomForReads) {
  const TempDirectory directory;
  SlowFileSystem slow;
  const auto store = must_create(directory.path(), small_layout(), GetParam(), 4, slow);
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.emplace_back(extent_buffer_bytes(8192));
  ASSERT_TRUE(store->wait(store->start_write(2, 9, buffers[7].all())).ok());
  slow.clear_log();
  slow.close_gate();
  std::vector<FlashStore::Ticket> tickets;
  for (int i = 0; i < 6; ++i) {
    tickets.push_back(store->start_write(2, i, buffers[i].all()));
    while (slow.log().empty()) std::this_thread::yield();
  }
  tickets.push_back(store->start_read(2, 9, buffers[7].all()));
  while (slow.log().size() < 2) std::this_thread::yield();
  EXPECT_EQ(slow.log(), "WR");
  slow.open_gate();
  for (const auto ticket : tickets) EXPECT_TRUE(store->wait(ticket).ok());
  EXPECT_EQ(slow.log(), "WRWWWWW");
}

TEST_P(FlashStoreTest, RegisteredAndOtherMemoryServeAlike) {
  const TempDirectory directory;
  const auto store = must_create(directory.path(), small_layout(), GetParam());
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 3; ++i) buffers.emplace_back(extent_buffer_bytes(20000));
  const std::span<std::byte> registered[] = {buffers[0].all(), buffers[1].all()};
  store->register_buffers(registered);
  for (int i = 0; i < 3; ++i) {
    fill_payload(buffers[i].all(), 20000, 0, i);
    ASSERT_TRUE(store->wait(store->start_write(0, i, buffers[i].all())).ok()) << i;
  }
  for (int i = 0; i < 3; ++i) {
    const auto part = buffers[2 - i].all();
    ASSERT_TRUE(store->wait(store->start_read(0, i, part)).ok()) << i;
    EXPECT_TRUE(payload_matches(part, 20000, 0, i));
  }
}

TEST_P(FlashStoreTest, WhatIsDiscardedIsNeitherCheckedNorAskedFor) {
  const TempDirectory directory;
  const auto store = must_create(directory.path(), small_layout(), GetParam());
  AlignedBuffer buffer(extent_buffer_bytes(8192));
  ASSERT_TRUE(store->wait(store->start_write(2, 3, buffer.all())).ok());
  store->discard(store->start_read(2, 1, buffer.all()));  // never written
  store->discard(store->start_read(2, 3, buffer.all()));
  store->discard(12345);
  EXPECT_EQ(store->stats().reads, 2);
  EXPECT_EQ(store->stats().asked, 0);
  EXPECT_TRUE(store->wait(store->start_write(2, 3, buffer.all())).ok()) << "no longer open";
}

TEST_P(FlashStoreTest, TheTraceHasEachReadAndWrite) {
  const TempDirectory directory;
  MemoryBudget budget;
  const auto trace = Trace::create(budget, 100);
  {
    auto store =
        FlashStore::create(real_file_system(), directory.path(), small_layout(),
                           {.backend = GetParam(), .queue_depth = 2, .trace = trace->get()});
    AlignedBuffer buffer(extent_buffer_bytes(8192));
    ASSERT_TRUE((*store)->wait((*store)->start_write(2, 3, buffer.all())).ok());
    ASSERT_TRUE((*store)->wait((*store)->start_read(2, 3, buffer.all())).ok());
  }
  MemoryFile file;
  ASSERT_TRUE((*trace)->write(file).ok());
  std::string text(*file.size(), 0);
  ASSERT_TRUE(file.read_at(0, std::as_writable_bytes(std::span(text))).ok());
  for (const char* name : {"\"seal\"", "\"write\"", "\"read\"", "\"check\""}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST(FlashBackends, AutoIsIoUringWhereThatIsAllowed) {
  const TempDirectory directory;
  auto store = FlashStore::create(real_file_system(), directory.path(), small_layout());
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->backend(), available_backends().back());
  // Memory has no descriptor, so only the pool serves.
  store = FlashStore::create(std::make_unique<MemoryFile>(), small_layout());
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->backend(), FlashBackend::kPool);
  const Status refused = FlashStore::create(std::make_unique<MemoryFile>(), small_layout(),
                                            {.backend = FlashBackend::kUring})
                             .status();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
}

// Where it could be had and is not, the tests above have left half of their work undone.
TEST(FlashBackends, IoUringIsTestedWhereItCouldBe) {
  if (available_backends().size() == 2) return;
  const TempDirectory directory;
  const Status refused = FlashStore::create(real_file_system(), directory.path(), small_layout(),
                                            {.backend = FlashBackend::kUring})
                             .status();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported) << refused.message();
  GTEST_SKIP() << refused.message();
}

}  // namespace
}  // namespace tierkv
