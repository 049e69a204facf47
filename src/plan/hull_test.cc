#include "plan/hull.h"

#include <gtest/gtest.h>

#include <functional>

#include "plan/plan_test_util.h"

namespace tierkv {
namespace {

std::vector<CodecId> codecs(const std::vector<CodecOption>& hull) {
  std::vector<CodecId> ids;
  for (const CodecOption& option : hull) ids.push_back(option.codec);
  return ids;
}

TEST(Hull, DropsWhatIsDominatedOrAboveTheLine) {
  const PlanHead head{.exact_page_bytes = 160,
                      .exact_seconds_per_token = 1,
                      .options = {{{8, 8}, 80, .001, 1},
                                  {{6, 6}, 70, .030, 1},  // above the line from 8 to 5
                                  {{5, 5}, 50, .010, 1},
                                  {{5, 6}, 55, .011, 1},  // more bytes and more KLD
                                  {{4, 4}, 40, .050, 1},
                                  {{4, 5}, 40, .050, .5},  // the same, faster
                                  {{3, 8}, 200, .0, 1}}};  // larger than float16
  EXPECT_EQ(codecs(lower_hull(head)), (std::vector<CodecId>{{0, 0}, {8, 8}, {5, 5}, {4, 5}}));
}

TEST(Hull, LayerWithoutOptionsStaysExact) {
  const std::vector<CodecOption> hull = lower_hull({.exact_page_bytes = 9, .options = {}});
  EXPECT_EQ(codecs(hull), std::vector<CodecId>{CodecId{}});
  EXPECT_TRUE(hull_steps({hull, hull}).empty());
}

// KLD of the hull's polyline at `bytes`.
double hull_at(const std::vector<CodecOption>& hull, uint64_t bytes) {
  for (size_t i = 1; i < hull.size(); ++i) {
    if (bytes < hull[i].page_bytes) continue;
    const double span = static_cast<double>(hull[i - 1].page_bytes - hull[i].page_bytes);
    const double share = static_cast<double>(hull[i - 1].page_bytes - bytes) / span;
    return hull[i - 1].kld + share * (hull[i].kld - hull[i - 1].kld);
  }
  return hull.back().kld;
}

TEST(Hull, IsConvexAndBelowEveryOption) {
  RandomPlans random(1);
  for (int round = 0; round < 500; ++round) {
    const PlanHead head = random.head(1 + round % 12);
    const std::vector<CodecOption> hull = lower_hull(head);
    ASSERT_EQ(hull[0].codec, CodecId{});
    double last_price = 0;
    for (size_t i = 1; i < hull.size(); ++i) {
      ASSERT_LT(hull[i].page_bytes, hull[i - 1].page_bytes);
      const double price = (hull[i].kld - hull[i - 1].kld) /
                           static_cast<double>(hull[i - 1].page_bytes - hull[i].page_bytes);
      ASSERT_GE(price, last_price - 1e-15);
      last_price = price;
    }
    for (const CodecOption& option : head.options) {
      if (option.page_bytes > head.exact_page_bytes) continue;
      ASSERT_GE(option.page_bytes, hull.back().page_bytes);
      ASSERT_GE(option.kld, hull_at(hull, option.page_bytes) - 1e-15);
    }
  }
}

void for_each_choice(const std::vector<PlanHead>& heads,
                     const std::function<void(uint64_t bytes, double kld)>& visit, size_t head = 0,
                     uint64_t bytes = 0, double kld = 0) {
  if (head == heads.size()) return visit(bytes, kld);
  for_each_choice(heads, visit, head + 1, bytes + heads[head].exact_page_bytes, kld);
  for (const CodecOption& option : heads[head].options) {
    for_each_choice(heads, visit, head + 1, bytes + option.page_bytes, kld + option.kld);
  }
}

// Everett's theorem: no assignment at all has both fewer bytes and less KLD than one of the chain.
TEST(Hull, EveryAssignmentOfTheChainIsTheBestForItsBytes) {
  RandomPlans random(2);
  for (int round = 0; round < 200; ++round) {
    const std::vector<PlanHead> heads = {random.head(4), random.head(4), random.head(3)};
    std::vector<std::vector<CodecOption>> hulls;
    for (const PlanHead& head : heads) hulls.push_back(lower_hull(head));
    std::vector<size_t> at(3, 0);
    std::vector<int> steps = hull_steps(hulls);
    ASSERT_EQ(steps.size(), hulls[0].size() + hulls[1].size() + hulls[2].size() - 3);
    for (const int head : steps) {
      ++at[head];
      uint64_t bytes = 0;
      double kld = 0;
      for (int l = 0; l < 3; ++l) {
        bytes += hulls[l][at[l]].page_bytes;
        kld += hulls[l][at[l]].kld;
      }
      for_each_choice(heads, [&](uint64_t other_bytes, double other_kld) {
        ASSERT_TRUE(other_bytes > bytes || other_kld >= kld);
      });
    }
  }
}

}  // namespace
}  // namespace tierkv
