#include "runtime/session_resume.h"

#include <gtest/gtest.h>

#include <memory>

#include "kv/session_test_util.h"

namespace tierkv {
namespace {

constexpr int64_t kChunk = 512, kFew = 16;

class ChooseResume : public ::testing::Test {
 protected:
  void add(std::vector<int32_t> tokens, int64_t n_answered, int64_t first_window_page = 0,
           int64_t pending = 0) {
    auto point = std::make_unique<SessionPoint>();
    point->n_tokens = static_cast<int64_t>(tokens.size()) - pending;
    point->n_answered = n_answered;
    point->first_window_page = first_window_page;
    point->tokens = std::move(tokens);
    points_.push_back(point.get());
    owned_.push_back(std::move(point));
  }
  Resume choose(const std::vector<int32_t>& tokens) {
    return choose_resume(window_ ? with_window_ : full_, points_, tokens, kChunk, kFew);
  }
  static std::vector<int32_t> join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  const KvLayout full_ = make_kv_layout(session_shapes(1, 0));
  const KvLayout with_window_ = make_kv_layout(session_shapes(1, 1));  // a window of 100
  bool window_ = false;
  std::vector<const SessionPoint*> points_;
  std::vector<std::unique_ptr<SessionPoint>> owned_;
};

TEST_F(ChooseResume, NothingSharedIsNothingKept) {
  EXPECT_EQ(choose(counted(100)).point, nullptr);
  add(counted(100), 100);
  EXPECT_EQ(choose(counted(100, 7)).point, nullptr);
  EXPECT_EQ(choose(counted(1)).point, nullptr);  // its only token is read for its logits
}

TEST_F(ChooseResume, ANextTurnGoesOnWhereTheAnswerEnded) {
  add(counted(1000), 1000);
  const Resume resume = choose(join(counted(1000), {5, 6, 7}));
  EXPECT_EQ(resume.n_tokens, 1000);
  EXPECT_TRUE(resume.next_turn);
}

TEST_F(ChooseResume, ATokenThatWasSampledButNotReadIsReadFirst) {
  add(counted(1000), 1000, 0, 1);
  const Resume resume = choose(join(counted(1000), {5, 6, 7}));
  EXPECT_EQ(resume.n_tokens, 999);
  EXPECT_TRUE(resume.next_turn);
}

TEST_F(ChooseResume, AnotherQuestionKeepsTheDocument) {
  add(counted(1000), 1000);
  const Resume resume = choose(join(counted(900), counted(100, 5000)));
  EXPECT_EQ(resume.n_tokens, 900);
  EXPECT_EQ(resume.n_shared, 900);
  EXPECT_FALSE(resume.next_turn);
}

TEST_F(ChooseResume, TheRestHasTheArithmeticOfItsChunk) {
  add(counted(1000), 1000);
  // The chunk [512, 910) has many tokens; so must what is read of it.
  EXPECT_EQ(choose(join(counted(905), {5, 5, 5, 5, 5})).n_tokens, 910 - kFew - 1);
  // The same question again: one token at least.
  EXPECT_EQ(choose(counted(910)).n_tokens, 910 - kFew - 1);
  // [512, 520) has few.
  EXPECT_EQ(choose(join(counted(515), {5, 5, 5, 5, 5})).n_tokens, 515);
  EXPECT_EQ(choose(counted(513)).n_tokens, 512);
  // The first of two chunks.
  EXPECT_EQ(choose(join(counted(510), counted(300, 5000))).n_tokens, 512 - kFew - 1);
}

TEST_F(ChooseResume, APromptThatWasReadInPartGoesOn) {
  add(counted(512), 0);
  const Resume resume = choose(counted(1000));
  EXPECT_EQ(resume.n_tokens, 512);
  EXPECT_FALSE(resume.next_turn);
}

TEST_F(ChooseResume, WindowsThatReachTooFarNeedAnOlderPoint) {
  window_ = true;
  add(counted(1000), 1000, 14);  // keeps tokens from 896 on
  add(counted(600), 0, 7);       // from 448 on
  const std::vector<int32_t> other = join(counted(700), counted(100, 5000));
  const Resume resume = choose(other);
  EXPECT_EQ(resume.point, points_[1]);
  EXPECT_EQ(resume.n_tokens, 600);
  EXPECT_EQ(resume.n_shared, 700);
  // Within what the newest keeps.
  EXPECT_EQ(choose(join(counted(996), counted(100, 5000))).point, points_[0]);
}

TEST_F(ChooseResume, OfTwoThatDoTheNextTurnIsPreferred) {
  add(join(counted(1000), {1, 2, 3, 4}), 1000);  // a next turn that was not read to its end
  add(counted(1000), 1000);
  const Resume resume = choose(join(counted(1000), {1, 2, 9, 9}));
  EXPECT_EQ(resume.point, points_[1]);
  EXPECT_TRUE(resume.next_turn);
}

}  // namespace
}  // namespace tierkv
