// A cache that comes back from a session answers bit by bit as one that never went, whatever the
// tiers; and when saving fails it goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fault_file.h"
#include "kv/flash_test_util.h"
#include "kv/session_test_util.h"

namespace tierkv {
namespace {

using ::testing::HasSubstr;

Plan plan_of(const KvLayout& layout, int64_t window, int64_t tier1, CodecId codec, bool flash) {
  Plan plan;
  plan.sink_pages = 1;
  plan.window_pages = window;
  plan.tier1_pages = tier1;
  plan.flash = flash;
  for (const int layer : layout.full_layers) {
    plan.codecs.insert(plan.codecs.end(), layout.shapes[layer].n_kv_heads, codec);
  }
  return plan;
}

struct Models {
  const char* name;
  int n_full, n_window;
};

class CacheRestore : public ::testing::TestWithParam<Models> {
 protected:
  const KvLayout layout_ = make_kv_layout(session_shapes(GetParam().n_full, GetParam().n_window));
  LoggedDisk disk_;

  std::unique_ptr<SessionFile> create() {
    auto made = SessionFile::create(disk_, "a session", session_shape(layout_));
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }
  std::unique_ptr<SessionFile> reopen() {
    auto opened = SessionFile::open(disk_, "a session");
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(*opened);
  }
  void save_a_conversation(const std::vector<int32_t>& tokens) {
    const auto session = create();
    SessionRig rig(layout_, session.get());
    ASSERT_TRUE(rig.feed(tokens, 0, static_cast<int64_t>(tokens.size()), 200).ok());
    const Status saved = rig.cache->save(point_of(tokens, static_cast<int64_t>(tokens.size())));
    ASSERT_TRUE(saved.ok()) << saved.message();
  }
};

TEST_P(CacheRestore, AnswersAsIfItHadNeverGone) {
  for (const int64_t n : {1, 63, 64, 700, 1024, 1500}) {
    save_a_conversation(counted(n));
    const std::vector<float> want = expected_answer(layout_, counted(n));
    const auto session = reopen();
    ASSERT_EQ(session->points().size(), 1u);
    for (const bool settled : {false, true}) {
      SessionRig rig(layout_, session.get());
      const Status status = rig.cache->restore(*session->points()[0], n);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(rig.cache->length(), n);
      if (settled) {
        ASSERT_TRUE(rig.cache->settle(plan_of(layout_, 99, 0, {}, false)).ok());
        EXPECT_EQ(rig.cache->report().n_offloaded, 0);
      }
      EXPECT_EQ(answer(rig, counted(n)), want) << n << (settled ? " settled" : "");
    }
  }
}

TEST_P(CacheRestore, SavingChangesNoBit) {
  const auto session = create();
  SessionRig saved(layout_, session.get()), unsaved(layout_, nullptr);
  std::vector<float> outputs[2];
  int i = 0;
  for (SessionRig* rig : {&saved, &unsaved}) {
    ASSERT_TRUE(rig->feed(counted(600), 0, 600, 200).ok());
    ASSERT_TRUE(rig->cache->settle(plan_of(layout_, 3, 100, {5, 4}, false)).ok());
    ASSERT_TRUE(rig->feed(counted(1500), 600, 1500, 5, &outputs[i++]).ok());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(saved.cache->report().n_compressed, unsaved.cache->report().n_compressed);
  ASSERT_TRUE(saved.cache->save(point_of(counted(1500), 1500)).ok());
  SessionRig again(layout_, session.get());
  ASSERT_TRUE(again.cache->restore(*session->points()[0], 1500).ok());
  EXPECT_EQ(answer(again, counted(1500)), expected_answer(layout_, counted(1500)));
}

TEST_P(CacheRestore, TierOneIsEncodedFromTheOriginals) {
  const int64_t n = 1500;
  save_a_conversation(counted(n));
  const Plan plan = plan_of(layout_, 3, 100, {5, 4}, false);
  const auto session = reopen();
  SessionRig gone(layout_, session.get());
  ASSERT_TRUE(gone.cache->restore(*session->points()[0], n).ok());
  ASSERT_TRUE(gone.cache->settle(plan).ok());

  LoggedDisk other_disk;
  auto other = SessionFile::create(other_disk, "another", session_shape(layout_));
  SessionRig stayed(layout_, other->get());
  ASSERT_TRUE(stayed.feed(counted(n), 0, n, 200).ok());
  ASSERT_TRUE(stayed.cache->settle(plan).ok());
  EXPECT_EQ(gone.cache->report().n_compressed, stayed.cache->report().n_compressed);
  EXPECT_EQ(gone.cache->report().n_compressed > 0, !layout_.full_layers.empty());
  EXPECT_EQ(answer(gone, counted(n)), answer(stayed, counted(n)));
}

TEST_P(CacheRestore, LoadsTheNewestPagesUpToALimit) {
  if (layout_.full_layers.empty()) GTEST_SKIP() << "nothing can be on flash";
  const int64_t n = 1500;
  save_a_conversation(counted(n));
  const auto session = reopen();
  SessionRig rig(layout_, session.get());
  ASSERT_TRUE(rig.cache->restore(*session->points()[0], n).ok());
  const int64_t exact_before = rig.cache->report().n_exact;
  ASSERT_TRUE(rig.cache->load_newest(14).ok());
  EXPECT_GT(rig.cache->report().n_exact, exact_before);
  EXPECT_EQ(rig.cache->report().n_offloaded, (24 - 14) * kPageTokens);
  EXPECT_EQ(answer(rig, counted(n)), expected_answer(layout_, counted(n)));
}

// Another question about the same document: the tokens from some point on are others.
TEST_P(CacheRestore, ABeginningCanBeKeptAndContinued) {
  const int64_t n = 1500;
  save_a_conversation(counted(n));
  for (const int64_t keep : {1, 64, 700, 1023, 1024, 1300, 1490}) {
    const auto session = reopen();
    const SessionPoint* point = nullptr;
    for (const SessionPoint* p : session->points()) {
      if (p->n_tokens == n && p->tokens == counted(n)) point = p;
    }
    ASSERT_NE(point, nullptr) << keep;
    const bool can = TieredCache::can_restore(layout_, *point, keep);
    EXPECT_EQ(can, layout_.window_page_bytes == 0 || keep == 1490) << keep;
    if (!can) continue;
    std::vector<int32_t> tokens = counted(keep);
    for (int i = 0; i < 1000; ++i) tokens.push_back(500000 + i);
    SessionRig rig(layout_, session.get());
    const Status restored = rig.cache->restore(*point, keep);
    ASSERT_TRUE(restored.ok()) << restored.message();
    ASSERT_TRUE(rig.feed(tokens, keep, keep + 1000, 200).ok());
    const auto want = expected_answer(layout_, tokens);
    EXPECT_EQ(answer(rig, tokens), want) << keep;
  }
}

TEST_P(CacheRestore, ManySavesAndTurnsNeverMixHistories) {
  save_a_conversation(counted(1200));
  std::mt19937 random(3);
  for (int turn = 0; turn < 12; ++turn) {
    const auto session = reopen();
    const auto points = session->points();
    const SessionPoint& point = *points[random() % points.size()];
    if (point.n_tokens > kSessionTokens - 3) continue;
    int64_t keep = point.n_tokens;
    for (int tries = 0; tries < 20; ++tries) {
      const int64_t shorter = 1 + static_cast<int64_t>(random() % point.n_tokens);
      if (TieredCache::can_restore(layout_, point, shorter)) keep = shorter;
    }
    std::vector<int32_t> tokens = first_tokens(point, keep);
    SessionRig rig(layout_, session.get());
    ASSERT_TRUE(rig.cache->restore(point, keep).ok());
    EXPECT_EQ(answer(rig, tokens), expected_answer(layout_, tokens)) << turn;
    // The three tokens of the answer are part of the conversation now.
    for (const int32_t token : {900001, 900002, 900003}) tokens.push_back(token);
    const int64_t room = kSessionTokens - static_cast<int64_t>(tokens.size());
    const int64_t more = std::min<int64_t>(room, static_cast<int64_t>(random() % 900));
    for (int i = 0; i < more; ++i) tokens.push_back(1000 * (turn + 2) + i);
    const int64_t n = static_cast<int64_t>(tokens.size());
    ASSERT_TRUE(rig.feed(tokens, keep + 3, n, 190).ok());
    const Status saved = rig.cache->save(point_of(tokens, n));
    ASSERT_TRUE(saved.ok()) << saved.message();
    EXPECT_EQ(session->points()[0]->tokens, tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CacheRestore,
                         ::testing::Values(Models{"full", 2, 0}, Models{"window", 0, 2},
                                           Models{"both", 1, 2}),
                         [](const auto& info) { return info.param.name; });

// The disk's faults, on a real file.
class CacheSaveFault : public ::testing::Test {
 protected:
  CacheSaveFault() : files_(make_fault_file_system(real_file_system(), plan_)) {
    auto made = SessionFile::create(*files_, path_, session_shape(layout_));
    EXPECT_TRUE(made.ok()) << made.status().message();
    session_ = std::move(*made);
    rig_ = std::make_unique<SessionRig>(layout_, session_.get());
  }
  Status feed(int64_t from, int64_t to) { return rig_->feed(counted(to), from, to, 100); }
  Status save(int64_t n) { return rig_->cache->save(point_of(counted(n), n)); }
  void expect_saved(int64_t n) {
    rig_.reset();
    session_.reset();
    auto opened = SessionFile::open(real_file_system(), path_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    session_ = std::move(*opened);
    ASSERT_FALSE(session_->points().empty());
    EXPECT_EQ(session_->points()[0]->n_tokens, n);
    SessionRig rig(layout_, session_.get());
    ASSERT_TRUE(rig.cache->restore(*session_->points()[0], n).ok());
    EXPECT_EQ(answer(rig, counted(n)), expected_answer(layout_, counted(n)));
  }

  const KvLayout layout_ = make_kv_layout(session_shapes(2, 1));
  const TempDirectory directory_;
  const std::string path_ = directory_.path() + "/s.tkv";
  FaultPlan plan_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<SessionFile> session_;
  std::unique_ptr<SessionRig> rig_;
};

TEST_F(CacheSaveFault, AFullDiskEndsSavingButNotReading) {
  ASSERT_TRUE(feed(0, 1100).ok());
  ASSERT_TRUE(save(1100).ok());
  plan_.disk_full_at = static_cast<int64_t>(plan_.bytes_written);
  ASSERT_TRUE(feed(1100, 2500).ok());
  const Status status = save(2500);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
  EXPECT_EQ(answer(*rig_, counted(2500)), expected_answer(layout_, counted(2500)));
  expect_saved(1100);
}

TEST_F(CacheSaveFault, PagesAreStillCompressedWhenSavingHasFailed) {
  ASSERT_TRUE(feed(0, 600).ok());
  ASSERT_TRUE(rig_->cache->settle(plan_of(layout_, 3, 100, {8, 8}, false)).ok());
  plan_.fail_write_at = static_cast<int64_t>(plan_.writes);
  ASSERT_TRUE(feed(600, 2600).ok());
  EXPECT_LE(rig_->cache->report().n_exact, 5 * kPageTokens);
  EXPECT_EQ(save(2600).code(), StatusCode::kIoError);
}

TEST_F(CacheSaveFault, WhateverWriteFailsTheLastPointStays) {
  ASSERT_TRUE(feed(0, 1100).ok());
  ASSERT_TRUE(save(1100).ok());
  ASSERT_TRUE(feed(1100, 1200).ok());
  const int64_t before = plan_.writes;
  ASSERT_TRUE(save(1200).ok());
  const int64_t n_writes = plan_.writes - before;
  ASSERT_GT(n_writes, 3);
  for (int64_t i = 0; i < n_writes; ++i) {
    plan_.fail_write_at = plan_.writes + i;
    plan_.write_error = i % 2 == 0 ? 0 : ENOSPC;
    EXPECT_FALSE(save(1200).ok()) << i;
    plan_.fail_write_at = FaultPlan::kNever;
  }
  expect_saved(1200);
}

TEST_F(CacheSaveFault, AFailedSyncIsAFailedSave) {
  ASSERT_TRUE(feed(0, 300).ok());
  ASSERT_TRUE(save(300).ok());
  for (const int64_t at : {0, 1}) {
    plan_.fail_sync_at = plan_.syncs + at;
    EXPECT_EQ(save(300).code(), StatusCode::kIoError);
    plan_.fail_sync_at = FaultPlan::kNever;
  }
  expect_saved(300);
}

TEST_F(CacheSaveFault, ReadsThatFailAreErrorsAndLeaveTheCacheEmpty) {
  ASSERT_TRUE(feed(0, 1100).ok());
  ASSERT_TRUE(save(1100).ok());
  rig_ = std::make_unique<SessionRig>(layout_, session_.get());
  const SessionPoint& point = *session_->points()[0];
  plan_.fail_read_at = static_cast<int64_t>(plan_.reads);
  EXPECT_EQ(rig_->cache->restore(point, 1100).code(), StatusCode::kIoError);
  EXPECT_EQ(rig_->cache->length(), 0);
  plan_.fail_read_at = FaultPlan::kNever;
  plan_.flip_bit_in_read = static_cast<int64_t>(plan_.reads);
  EXPECT_EQ(rig_->cache->restore(point, 1100).code(), StatusCode::kCorrupt);
  ASSERT_TRUE(rig_->cache->restore(point, 1100).ok());
  plan_.flip_bit_in_read = plan_.reads + 1;
  EXPECT_EQ(rig_->cache->settle(plan_of(layout_, 99, 0, {}, false)).code(), StatusCode::kCorrupt);
}

TEST_F(CacheSaveFault, ARemovedReplacedOrTruncatedFileIsNoticed) {
  ASSERT_TRUE(feed(0, 300).ok());
  ASSERT_TRUE(save(300).ok());
  std::filesystem::resize_file(path_, 8192);
  EXPECT_THAT(save(300).message(), HasSubstr("truncated while it was in use"));
  std::filesystem::remove(path_);
  EXPECT_THAT(save(300).message(), HasSubstr("removed or replaced"));
}

}  // namespace
}  // namespace tierkv
