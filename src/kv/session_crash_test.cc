// The disk cut off at every moment, and with what it had not been told to keep lost in part: the
// newest point that was reported saved is there, or a newer one, and each that can be read is
// right.
#include <gtest/gtest.h>

#include <map>

#include "kv/session_test_util.h"

namespace tierkv {
namespace {

class SessionCrash : public ::testing::Test {
 protected:
  struct Saved {
    size_t actions;  // when write_point returned
    uint64_t sequence;
  };

  // Reads, saves, comes back, leaves the path, comes back to an older point.
  void live() {
    auto session = SessionFile::create(disk_, "a session", session_shape(layout_));
    ASSERT_TRUE(session.ok());
    created_ = disk_.log.size();
    std::vector<int32_t> tokens = counted(1300);
    {
      SessionRig rig(layout_, session->get());
      for (const int64_t n : {500, 1100, 1290, 1300}) read_and_save(rig, **session, tokens, n);
    }
    for (const auto& [keep, first] : {std::pair{700, 100000}, {1060, 200000}, {40, 300000}}) {
      session = SessionFile::open(disk_, "a session");
      ASSERT_TRUE(session.ok());
      const SessionPoint* from = nullptr;
      for (const SessionPoint* point : (*session)->points()) {
        if (from == nullptr && point->n_tokens >= keep) from = point;
      }
      ASSERT_NE(from, nullptr);
      tokens = first_tokens(*from, keep);
      for (int i = 0; i < 1000; ++i) tokens.push_back(first + i);
      SessionRig rig(layout_, session->get());
      ASSERT_TRUE(rig.cache->restore(*from, keep).ok());
      for (const int64_t more : {10, 600, 1000}) {
        read_and_save(rig, **session, tokens, keep + more);
      }
    }
  }
  void read_and_save(SessionRig& rig, SessionFile& session, const std::vector<int32_t>& tokens,
                     int64_t n) {
    ASSERT_TRUE(rig.feed(tokens, rig.cache->length(), n, 200).ok());
    const SessionPoint point = point_of(tokens, n);
    ++attempts_;
    tokens_of_[attempts_] = point.tokens;
    ASSERT_TRUE(rig.cache->save(point).ok());
    ASSERT_EQ(session.points()[0]->sequence, attempts_);
    saved_.push_back({disk_.log.size(), attempts_});
  }

  uint64_t saved_before(size_t n_actions) const {
    uint64_t sequence = 0;
    for (const Saved& saved : saved_) {
      if (saved.actions <= n_actions) sequence = saved.sequence;
    }
    return sequence;
  }

  // What is left of the first n actions. `power`: of those after the last sync any may be missing,
  // or be there in part; else only the last one may be cut short.
  std::vector<std::byte> remains(size_t n, bool power, std::mt19937& random) const {
    size_t synced = 0;
    for (size_t i = 0; i < n; ++i) {
      if (disk_.log[i].kind == DiskAction::kSync) synced = i;
    }
    std::vector<std::byte> content;
    for (size_t i = 0; i < n; ++i) {
      const DiskAction& action = disk_.log[i];
      const bool at_risk = power ? i > synced : i + 1 == n;
      size_t bytes = action.data.size();
      if (at_risk && random() % 2 == 0) bytes = random() % (bytes / 512 + 1) * 512;
      LoggedDisk::apply(action, bytes, content);
    }
    return content;
  }

  const std::vector<float>& right_answer(const std::vector<int32_t>& tokens) {
    auto& known = answers_[tokens];
    if (known.empty()) known = expected_answer(layout_, tokens);
    return known;
  }

  void check(std::vector<std::byte> content, size_t n) {
    auto session =
        SessionFile::parse(std::make_unique<MemoryFile>(std::move(content), "what is left"));
    ASSERT_TRUE(session.ok()) << session.status().message();
    const auto points = (*session)->points();
    const uint64_t least = saved_before(n);
    ASSERT_GE(points.empty() ? 0 : points[0]->sequence, least) << "after " << n << " actions";
    for (const SessionPoint* point : points) {
      ASSERT_EQ(point->tokens, tokens_of_[point->sequence]);
      SessionRig rig(layout_, session->get());
      const Status status = rig.cache->restore(*point, point->n_tokens);
      ASSERT_TRUE(status.ok() || point != points[0]) << status.message() << ", action " << n;
      if (!status.ok()) {
        ASSERT_EQ(status.code(), StatusCode::kCorrupt);
        continue;
      }
      ASSERT_EQ(answer(rig, point->tokens), right_answer(point->tokens)) << "action " << n;
    }
  }

  const KvLayout layout_ = make_kv_layout(session_shapes(1, 0));
  LoggedDisk disk_;
  size_t created_ = 0;
  uint64_t attempts_ = 0;
  std::vector<Saved> saved_;
  std::map<uint64_t, std::vector<int32_t>> tokens_of_;
  std::map<std::vector<int32_t>, std::vector<float>> answers_;
};

TEST_F(SessionCrash, AKilledProcessLeavesTheLastPointOrANewerOne) {
  live();
  std::mt19937 random(1);
  for (size_t n = created_; n <= disk_.log.size(); ++n) check(remains(n, false, random), n);
}

TEST_F(SessionCrash, SoDoesALostPowerSupply) {
  live();
  std::mt19937 random(2);
  for (size_t n = created_; n <= disk_.log.size(); ++n) check(remains(n, true, random), n);
}

}  // namespace
}  // namespace tierkv
