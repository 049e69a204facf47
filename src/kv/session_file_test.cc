// A session's file: what is refused, what a flipped bit in each region does, which point makes way.
#include "kv/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/flash_test_util.h"
#include "kv/session_test_util.h"

namespace tierkv {
namespace {

using ::testing::HasSubstr;

class SavedSession : public ::testing::Test {
 protected:
  // Points of 1100, then of 1200 tokens.
  SavedSession() {
    const auto made = SessionFile::create(disk_, "s", session_shape(layout_, 2));
    EXPECT_TRUE(made.ok()) << made.status().message();
    SessionRig rig(layout_, made->get());
    for (const int64_t n : {1100, 1200}) {
      EXPECT_TRUE(rig.feed(counted(n), rig.cache->length(), n, 100).ok());
      EXPECT_TRUE(rig.cache->save(point_of(counted(n), n)).ok());
    }
    geometry_ = *SessionGeometry::create((*made)->shape());
  }

  static Result<std::unique_ptr<SessionFile>> parse(std::vector<std::byte> content) {
    return SessionFile::parse(std::make_unique<MemoryFile>(std::move(content), "the file"));
  }
  std::vector<std::byte> with_flip(uint64_t at) const {
    std::vector<std::byte> content = disk_.content;
    content.at(at) ^= std::byte{16};
    return content;
  }
  // Tokens that can be restored and continued rightly; 0: refused at some step, with a sentence.
  int64_t survives(std::vector<std::byte> content, std::string* said = nullptr) {
    const auto session = parse(std::move(content));
    Status status = session.status();
    if (session.ok() && (*session)->points().empty()) return 0;
    SessionRig rig(layout_, session.ok() ? session->get() : nullptr);
    int64_t n = 0;
    if (session.ok()) {
      n = (*session)->points()[0]->n_tokens;
      status = rig.cache->restore(*(*session)->points()[0], n);
    }
    if (status.ok()) status = rig.cache->settle(everything_exact());
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kCorrupt);
      if (said != nullptr) *said = status.message();
      return 0;
    }
    EXPECT_EQ(answer(rig, counted(n)), expected_answer(layout_, counted(n)));
    return n;
  }
  Plan everything_exact() const {
    Plan plan;
    plan.sink_pages = 1;
    plan.window_pages = 1000;
    plan.codecs.resize(2 * layout_.full_layers.size());
    return plan;
  }

  const KvLayout layout_ = make_kv_layout(session_shapes(2, 1));
  LoggedDisk disk_;
  Result<SessionGeometry> geometry_ = internal_error("not made");
};

TEST_F(SavedSession, ComesBackAsItWas) {
  EXPECT_EQ(survives(disk_.content), 1200);
  const auto session = parse(disk_.content);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->points().size(), 2u);
  EXPECT_EQ((*session)->shape().model, "a model");
  EXPECT_EQ((*session)->n_unreadable(), 0);
}

TEST_F(SavedSession, AFlippedBitInAHeaderIsRefusedByName) {
  for (const uint64_t header : {uint64_t{0}, geometry_->header()}) {
    for (uint64_t at = header; at < header + kFlashBlock; at += 5) {
      const auto session = parse(with_flip(at));
      ASSERT_FALSE(session.ok()) << at;
      EXPECT_THAT(session.status().message(), HasSubstr("the file: "));
    }
  }
}

TEST_F(SavedSession, AFlippedBitInTheNewestRecordOrListLeavesTheOneBefore) {
  for (const uint64_t begin : {geometry_->record(1), geometry_->list(1)}) {
    for (uint64_t at = begin; at < begin + kFlashBlock; at += 61) {
      EXPECT_EQ(survives(with_flip(at)), 1100) << at - begin;
      EXPECT_EQ((*parse(with_flip(at)))->n_unreadable(), 1);
    }
  }
}

TEST_F(SavedSession, AFlippedBitInThePagesOrExtentsIsNeverUsed) {
  std::string said;
  for (int64_t page = 0; page < 3; ++page) {
    EXPECT_EQ(survives(with_flip(geometry_->full_page(1, page) + 777), &said), 0);
    EXPECT_THAT(said, HasSubstr("checksum"));
  }
  const int64_t n_window = (*parse(disk_.content))->points()[0]->window_page_crcs.size();
  EXPECT_EQ(survives(with_flip(geometry_->window_page(1, n_window - 1) + 777), &said), 0);
  for (const int layer : layout_.full_layers) {
    for (const uint64_t at : {uint64_t{0}, uint64_t{20}, uint64_t{5000}}) {
      EXPECT_EQ(survives(with_flip(geometry_->flash().offset(layer, 0) + at), &said), 0) << layer;
      EXPECT_THAT(said, HasSubstr("layer " + std::to_string(layer)));
    }
  }
}

TEST_F(SavedSession, AnExtentOfAnotherStateIsNoticed) {
  // A sound extent, but not the one that the point means: a write that the disk lost.
  std::vector<std::byte> content = disk_.content;
  const int layer = layout_.full_layers[0];
  AlignedBuffer buffer(geometry_->flash().stride(layer));
  fill_payload(buffer.all(), layout_.extent_payload_bytes(layer), layer, 0);
  seal_extent(geometry_->shape().flash, layer, 0, buffer.all());
  std::copy(buffer.all().begin(), buffer.all().end(),
            content.begin() + static_cast<ptrdiff_t>(geometry_->flash().offset(layer, 0)));
  std::string said;
  EXPECT_EQ(survives(std::move(content), &said), 0);
  EXPECT_THAT(said, HasSubstr("an earlier state"));
}

TEST_F(SavedSession, NewerVersionsAreUnsupported) {
  std::vector<std::byte> content = disk_.content;
  content[geometry_->header() + 8] = std::byte{kSessionVersion + 1};
  const auto session = parse(content);
  EXPECT_EQ(session.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(session.status().message(), HasSubstr("version 4, this build reads 3"));
}

TEST_F(SavedSession, TruncatedAnywhereItIsRefusedOrAnEarlierState) {
  for (size_t size = 0; size < disk_.content.size();
       size += size < 3 * kFlashBlock ? 1000 : disk_.content.size() / 97) {
    const int64_t n = survives({disk_.content.begin(), disk_.content.begin() + size});
    EXPECT_TRUE(n == 0 || n == 1100) << size;
  }
}

TEST_F(SavedSession, OtherFilesAreRefused) {
  EXPECT_FALSE(parse({}).ok());
  EXPECT_FALSE(parse(std::vector<std::byte>(100)).ok());
  EXPECT_FALSE(parse(std::vector<std::byte>(100000)).ok());
  EXPECT_FALSE(parse(std::vector<std::byte>(100000, std::byte{255})).ok());
}

TEST_F(SavedSession, PointsThatMakeNoSenseAreNotWritten) {
  const SessionShape& shape = geometry_->shape();
  const auto session = parse(disk_.content);
  const SessionPoint good = *(*session)->points()[0];
  EXPECT_TRUE(check_point(shape, good).ok());
  const auto bad = [&](auto change) {
    SessionPoint point = good;
    change(point);
    return check_point(shape, point).code() == StatusCode::kCorrupt;
  };
  EXPECT_TRUE(bad([](SessionPoint& p) { p.n_tokens = 0; }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.n_tokens += 2; }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.n_tokens -= 2; }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.n_answered = 5000; }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.tokens[3] = -1; }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.tokens[3] = kSessionVocab; }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.slots.push_back(1); }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.slots.clear(); }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.slots[0] = 1u << 30; }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.crcs.pop_back(); }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.full_page_crcs.push_back(0); }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.window_page_crcs.pop_back(); }));
  EXPECT_TRUE(bad([](SessionPoint& p) { p.first_window_page = -1; }));
  const auto n_factors = static_cast<size_t>(shape.n_key_dims());
  EXPECT_FALSE(bad([&](SessionPoint& p) { p.key_balance.assign(n_factors, 1.5f); }));
  EXPECT_TRUE(bad([&](SessionPoint& p) { p.key_balance.assign(n_factors - 1, 1.5f); }));
  EXPECT_TRUE(bad([&](SessionPoint& p) { p.key_balance.assign(n_factors, 0.0f); }));
}

TEST(SessionShape, AbsurdOnesAreRefused) {
  const KvLayout layout = make_kv_layout(session_shapes(2, 1));
  const SessionShape good = session_shape(layout);
  ASSERT_TRUE(SessionGeometry::create(good).ok());
  const auto bad = [&](auto change) {
    SessionShape shape = good;
    change(shape);
    return !SessionGeometry::create(shape).ok();
  };
  EXPECT_TRUE(bad([](SessionShape& s) { s.n_areas = 1; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.n_areas = 1000; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.max_tokens = 0; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.max_tokens = int64_t{1} << 40; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.n_vocab = 0; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.extent_pages = 0; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.window_page_bytes += 1; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.flash.payload_bytes[1] += 1; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.flash.max_extents += 1; }));
  EXPECT_TRUE(bad([](SessionShape& s) { s.model = std::string(300, 'x'); }));
}

// Areas of a conversation of points at these lengths; `left`: of another conversation.
class ChooseArea : public ::testing::Test {
 protected:
  const SessionPoint* add(int64_t n, bool left = false) {
    auto point = std::make_unique<SessionPoint>(point_of(counted(n, left ? 5 : 0), n));
    point->n_tokens = n;
    point->sequence = points_.size() + 1;
    points_.push_back(std::move(point));
    return points_.back().get();
  }
  int choose(std::vector<const SessionPoint*> areas, int64_t n) {
    return choose_area(areas, counted(n));
  }
  std::vector<std::unique_ptr<SessionPoint>> points_;
};

TEST_F(ChooseArea, FreeOnesFirstThenThoseThatTheConversationHasLeft) {
  const SessionPoint *a = add(100), *left = add(150, true), *b = add(200);
  EXPECT_EQ(choose({a, left, nullptr, b}, 300), 2);
  EXPECT_EQ(choose({a, left, b}, 300), 1);
}

TEST_F(ChooseArea, NeverTheNewestEvenIfItWasLeft) {
  const SessionPoint *a = add(100), *b = add(200), *left = add(250, true);
  EXPECT_EQ(choose({left, a, b}, 300) == 0, false);
  EXPECT_EQ(choose({b, a}, 300), 1);
}

TEST_F(ChooseArea, WhatStaysIsDenseNearTheEnd) {
  std::vector<const SessionPoint*> areas(4);
  for (int64_t n = 1000; n <= 20000; n += 1000) {
    const SessionPoint* point = add(n);
    areas[static_cast<size_t>(choose(areas, n))] = point;
  }
  std::vector<int64_t> left;
  for (const SessionPoint* point : areas) left.push_back(20000 - point->n_tokens);
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left[0], 0);
  EXPECT_EQ(left[1], 1000);
  EXPECT_LE(left[2], 4000);
  EXPECT_GE(left[3], 4000);
}

}  // namespace
}  // namespace tierkv
