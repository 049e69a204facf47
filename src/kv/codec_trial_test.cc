#include "kv/codec_trial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tierkv {
namespace {

constexpr int64_t kTokens = 7 * kPageTokens, kChunk = 40;

std::vector<KvLayerShape> shapes() {
  KvLayerShape full{.n_heads = 6, .n_kv_heads = 2, .head_dim = 64, .scale = 0.125f};
  KvLayerShape window = full;
  window.window = 100;
  return {window, full, full};
}

// A cache with kTokens random tokens, and a chunk to attend with.
struct Rig {
  Rig() : layout(make_kv_layout(shapes())) {
    Result<std::unique_ptr<TieredCache>> made =
        TieredCache::create(layout, budget, kernels_for(available_isas().back()), pool, 256, {},
                            AttentionMath::kFloat32);
    cache = std::move(*made);
    for (int64_t done = 0; done < kTokens; done += kPageTokens) feed(kPageTokens);
  }

  // The outputs of all layers.
  std::vector<float> feed(int64_t n_tokens) {
    std::normal_distribution<float> normal;
    std::vector<float> all;
    EXPECT_TRUE(cache->begin(n_tokens).ok());
    for (int layer = 0; layer < 3; ++layer) {
      const auto draw = [&](int64_t n) {
        std::vector<float> values(static_cast<size_t>(n_tokens * n * 64));
        for (float& x : values) x = normal(random);
        return values;
      };
      const std::vector<float> q = draw(6), k = draw(2), v = draw(2);
      std::vector<float> out(q.size());
      EXPECT_TRUE(cache->attend(layer, q.data(), k.data(), v.data(), {}, out.data()).ok());
      all.insert(all.end(), out.begin(), out.end());
    }
    EXPECT_TRUE(cache->commit().ok());
    return all;
  }

  // The same chunk whenever it is asked for, not kept.
  std::vector<float> look() {
    random.seed(99);
    std::vector<float> out = feed(kChunk);
    EXPECT_TRUE(cache->rewind(kTokens));
    return out;
  }

  MemoryBudget budget;
  ThreadPool pool{2};
  const KvLayout layout;
  std::mt19937 random{5};
  std::unique_ptr<TieredCache> cache;
};

std::vector<TrialHead> all_heads(CodecId codec) {
  return {{1, 0, codec}, {1, 1, codec}, {2, 0, codec}, {2, 1, codec}};
}

// Many queries meet compressed pages decoded: what the trial leaves in the pages.
TEST(CodecTrial, IsWhatSettlingDoes) {
  Rig tried, settled;
  CodecTrial trial(*tried.cache, tried.budget);
  ASSERT_TRUE(trial.replace(all_heads({5, 3}), 1, 4).ok());
  Plan plan;
  plan.sink_pages = 1;
  plan.window_pages = 3;
  plan.tier1_pages = 3;
  plan.codecs.assign(4, {5, 3});
  ASSERT_TRUE(settled.cache->settle(plan).ok());
  settled.cache->set_exact_limit(INT64_MAX);  // the chunk stays exact
  settled.random.seed(99);
  EXPECT_EQ(tried.look(), settled.feed(kChunk));
}

TEST(CodecTrial, PutsBackWhatItReplaced) {
  Rig rig;
  const std::vector<float> before = rig.look();
  {
    CodecTrial trial(*rig.cache, rig.budget);
    ASSERT_TRUE(trial.replace(all_heads({3, 2}), 0, 7).ok());
    EXPECT_NE(rig.look(), before);
    ASSERT_TRUE(trial.replace(all_heads({8, 8}), 2, 3).ok());  // of the originals, not of K3V2
    Rig fresh;
    CodecTrial alone(*fresh.cache, fresh.budget);
    ASSERT_TRUE(alone.replace(all_heads({8, 8}), 2, 3).ok());
    EXPECT_EQ(rig.look(), fresh.look());
    ASSERT_TRUE(trial.replace(all_heads({3, 2}), 1, 3).ok());
  }
  EXPECT_EQ(rig.look(), before);
}

// K alone, V alone: one changes where the weights go, the other what is weighed; together both.
TEST(CodecTrial, SidesAndHeadsAreApart) {
  Rig rig;
  const std::vector<float> before = rig.look();
  CodecTrial trial(*rig.cache, rig.budget);
  const auto outputs = [&](TrialHead head) {
    EXPECT_TRUE(trial.replace({&head, 1}, 1, 4).ok());
    return rig.look();
  };
  const std::vector<float> k = outputs({1, 1, {4, 0}}), v = outputs({1, 1, {0, 4}});
  EXPECT_NE(k, before);
  EXPECT_NE(v, before);
  EXPECT_NE(k, v);
  const size_t layer = kChunk * 6 * 64;
  for (const std::vector<float>& out : {k, v}) {
    for (size_t i = 0; i < before.size(); ++i) {
      const bool touched = i / layer == 1 && i / 64 % 6 >= 3;  // layer 1, queries of KV head 1
      if (!touched) {
        ASSERT_EQ(out[i], before[i]) << i;
      }
    }
  }
}

TEST(CodecTrial, RefusesWhatHasNoCodec) {
  Rig rig;
  const std::vector<float> before = rig.look();
  CodecTrial trial(*rig.cache, rig.budget);
  const auto status = [&](TrialHead head, int64_t begin, int64_t end) {
    return trial.replace({&head, 1}, begin, end).code();
  };
  EXPECT_EQ(status({0, 0, {4, 4}}, 1, 2), StatusCode::kInvalidArgument);  // a window's layer
  EXPECT_EQ(status({3, 0, {4, 4}}, 1, 2), StatusCode::kInvalidArgument);  // no such layer
  EXPECT_EQ(status({1, 2, {4, 4}}, 1, 2), StatusCode::kInvalidArgument);  // no such head
  EXPECT_EQ(status({1, 0, {7, 4}}, 1, 2), StatusCode::kInvalidArgument);  // no such width
  EXPECT_EQ(status({1, 0, {4, 4}}, 1, 8), StatusCode::kInvalidArgument);  // beyond the tokens
  EXPECT_EQ(status({1, 0, {4, 4}}, -1, 2), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.look(), before);
  Plan plan;
  plan.sink_pages = 1;
  plan.window_pages = 3;
  plan.tier1_pages = 1;
  plan.codecs.assign(4, {4, 4});
  ASSERT_TRUE(rig.cache->settle(plan).ok());
  EXPECT_EQ(status({1, 0, {4, 4}}, 1, 2), StatusCode::kInvalidArgument);  // compressed already
}

}  // namespace
}  // namespace tierkv
