#include "runtime/cost_ladder.h"

#include <gtest/gtest.h>

#include "plan/accuracy.h"

namespace tierkv {
namespace {

double truth(CodecId codec) { return 2e-9 + 4e-10 * codec.k_bits + 7e-10 * codec.v_bits; }

std::vector<AttentionCosts::Codec> ladder() {
  std::vector<AttentionCosts::Codec> codecs;
  for (const uint8_t k : kKeyWidths) {
    for (const uint8_t v : kValueWidths) codecs.push_back({{k, v}, truth({k, v})});
  }
  return codecs;
}

TEST(CostLadder, LeavesWhatIsSmooth) {
  std::vector<AttentionCosts::Codec> codecs = ladder();
  smooth_costs(codecs);
  for (const auto& entry : codecs) EXPECT_NEAR(entry.seconds, truth(entry.codec), 1e-15);
}

// Eight of thirty disturbed, some of them neighbours.
TEST(CostLadder, ForgetsSpikes) {
  std::vector<AttentionCosts::Codec> codecs = ladder();
  for (const size_t i : {1, 2, 6, 11, 15, 16, 20, 24}) codecs[i].seconds *= 2.5;
  smooth_costs(codecs);
  for (const auto& entry : codecs) EXPECT_NEAR(entry.seconds, truth(entry.codec), 1e-15);
}

TEST(CostLadder, FollowsAWidthThatIsSlow) {
  std::vector<AttentionCosts::Codec> codecs = ladder();
  for (auto& entry : codecs) entry.seconds += entry.codec.k_bits == 3 ? 3e-9 : 0;
  smooth_costs(codecs);
  for (const auto& entry : codecs) {
    EXPECT_NEAR(entry.seconds, truth(entry.codec) + (entry.codec.k_bits == 3 ? 3e-9 : 0), 1e-15);
  }
}

TEST(CostLadder, TakesNothing) { smooth_costs({}); }

}  // namespace
}  // namespace tierkv
