// Attention over all tiers against a double-precision oracle, and the promises of tiered_cache.h:
// flash changes no bit, threads change no bit, budgets hold, faults lose nothing.
#include "kv/tiered_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kv/tiered_test_util.h"

namespace tierkv {
namespace {

TEST(TieredCache, ExactAttentionMatchesTheOracle) {
  const auto shapes = shapes_for(1, 1);
  const Sequence sequence(shapes, 400);
  Rig rig(shapes, 2, MemoryBudget::kUnlimited, nullptr, AttentionMath::kFloat32);
  std::vector<std::vector<float>> out;
  ASSERT_TRUE(sequence.feed(*rig.cache, 0, 200, &out).ok());  // many
  ASSERT_TRUE(sequence.feed(*rig.cache, 200, 390, &out).ok());
  ASSERT_TRUE(sequence.feed(*rig.cache, 390, 399, &out).ok());  // few
  ASSERT_TRUE(sequence.feed(*rig.cache, 399, 400, &out).ok());  // one
  for (int layer = 0; layer < 2; ++layer) {
    const size_t row = shapes[layer].n_heads * shapes[layer].head_dim;
    for (const int64_t token : {0, 1, 63, 64, 199, 200, 389, 390, 398, 399}) {
      EXPECT_LT(relative_error(out[layer], token * row, sequence.oracle(layer, token)), kFloatError)
          << "layer " << layer << " token " << token;
    }
  }
}

TEST(TieredCache, PrefillIsCloseToTheOracle) {
  const auto shapes = shapes_for(1, 1);
  const Sequence sequence(shapes, 400);
  Rig rig(shapes);
  std::vector<std::vector<float>> out;
  ASSERT_TRUE(sequence.feed(*rig.cache, 0, 200, &out).ok());
  ASSERT_TRUE(sequence.feed(*rig.cache, 200, 400, &out).ok());
  for (int layer = 0; layer < 2; ++layer) {
    const size_t row = shapes[layer].n_heads * shapes[layer].head_dim;
    for (const int64_t token : {0, 1, 63, 64, 199, 200, 399}) {
      EXPECT_LT(relative_error(out[layer], token * row, sequence.oracle(layer, token)),
                kPrefillError)
          << "layer " << layer << " token " << token;
    }
  }
}

// A chunk's output of some of its tokens, few or many, in layers that see everything or a window;
// pages exact, compressed and on flash.
TEST(TieredCache, AttendsForTheTokensThatAreWanted) {
  const auto shapes = shapes_for(1, 1);
  const Sequence sequence(shapes, 1000);
  for (const bool settled : {false, true}) {
    for (const ChunkTokens wanted : {ChunkTokens{199, 1}, {7, 32}, {1, 3}}) {
      Rig rig(shapes, 2, MemoryBudget::kUnlimited, nullptr, AttentionMath::kFloat32);
      std::vector<std::vector<float>> out;
      for (int64_t at = 0; at < 800; at += 200) {
        ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 200).ok());
      }
      if (settled) {
        ASSERT_TRUE(rig.cache->settle(plan_of(rig.layout, 1, 2, 4, {8, 8}, true)).ok());
        ASSERT_GT(rig.cache->report().n_offloaded, 0);
      }
      ASSERT_TRUE(sequence.feed(*rig.cache, 800, 1000, &out, wanted).ok());
      for (int layer = 0; layer < 2; ++layer) {
        const size_t row = shapes[layer].n_heads * shapes[layer].head_dim;
        ASSERT_EQ(out[layer].size(), row * wanted.count(200));
        for (int64_t i = 0; i < wanted.count(200); i += 5) {
          const int64_t token = 800 + wanted.first + i * wanted.step;
          EXPECT_LT(relative_error(out[layer], i * row, sequence.oracle(layer, token)),
                    settled ? 0.02 : kFloatError)
              << "layer " << layer << " token " << token;
        }
      }
    }
  }
}

TEST(TieredCache, ThreadsChangeNoBit) {
  const auto shapes = shapes_for(1, 1);
  const Sequence sequence(shapes, 900);
  std::vector<std::vector<float>> results[3];
  const int threads[] = {1, 2, 5};
  for (int i = 0; i < 3; ++i) {
    Rig rig(shapes, threads[i]);
    for (int64_t at = 0; at < 800; at += 200) {
      ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 200, &results[i]).ok());
    }
    ASSERT_TRUE(rig.cache->settle(plan_of(rig.layout, 1, 2, 6, {5, 4}, true)).ok());
    for (int64_t at = 800; at < 900; ++at) {
      ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 1, &results[i]).ok());
    }
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(TieredCache, CompressedTokensAreCloseAndMigrate) {
  const auto shapes = shapes_for(2, 0);
  const Sequence sequence(shapes, 1000);
  Rig rig(shapes);
  for (int64_t at = 0; at < 600; at += 200)
    ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 200).ok());
  ASSERT_TRUE(rig.cache->settle(plan_of(rig.layout, 1, 3, 100, {8, 8}, false)).ok());
  std::vector<std::vector<float>> out;
  for (int64_t at = 600; at < 1000; at += 4)
    ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 4, &out).ok());
  const TierReport report = rig.cache->report();
  EXPECT_EQ(report.n_offloaded, 0);
  EXPECT_GE(report.n_compressed, 64 * 10);
  EXPECT_LE(report.n_exact, 64 * 5);
  EXPECT_EQ(report.n_exact + report.n_compressed, 1000);
  EXPECT_NEAR(report.bits_per_element, 8.25, 0.01);
  const size_t row = shapes[0].n_heads * shapes[0].head_dim;
  for (const int64_t token : {600, 700, 999}) {
    EXPECT_LT(relative_error(out[1], (token - 600) * row, sequence.oracle(1, token)), 0.02)
        << token;
  }
}

// Heads don't meet in attention: each must come out as if all heads had its codec.
TEST(TieredCache, EveryHeadHasACodecOfItsOwn) {
  const auto shapes = shapes_for(2, 0);
  const int n_kv_heads = shapes[0].n_kv_heads, group = shapes[0].group();
  const Sequence sequence(shapes, 700);
  const std::vector<CodecId> codecs = {{}, {5, 4}, {8, 2}, {3, 6}};
  const auto run = [&](auto codec_of_head) {
    Rig rig(shapes);
    for (int64_t at = 0; at < 600; at += 200) {
      EXPECT_TRUE(sequence.feed(*rig.cache, at, at + 200).ok());
    }
    Plan plan = plan_of(rig.layout, 1, 2, 100, {}, false);
    for (size_t i = 0; i < plan.codecs.size(); ++i) plan.codecs[i] = codec_of_head(i);
    EXPECT_TRUE(rig.cache->settle(plan).ok());
    std::vector<std::vector<float>> out;
    EXPECT_TRUE(sequence.feed(*rig.cache, 600, 604, &out).ok());  // scored on codes
    EXPECT_TRUE(sequence.feed(*rig.cache, 604, 700, &out).ok());  // decoded for many queries
    return out;
  };
  const auto mixed = run([&](size_t i) { return codecs[i % codecs.size()]; });
  const int64_t head_floats = shapes[0].head_dim * group;
  for (size_t i = 0; i < shapes.size() * n_kv_heads; ++i) {
    const size_t layer = i / n_kv_heads, head = i % n_kv_heads;
    const auto same = run([&](size_t) { return codecs[i % codecs.size()]; });
    for (int64_t token = 0; token < 100; ++token) {
      const int64_t at = (token * n_kv_heads + static_cast<int64_t>(head)) * head_floats;
      ASSERT_EQ(0, std::memcmp(&mixed[layer][at], &same[layer][at], head_floats * sizeof(float)))
          << "layer " << layer << " head " << head << " token " << token;
    }
  }
}

// Reads a prompt, settles by each plan in turn, and gives the outputs of the tokens that follow.
std::vector<std::vector<float>> outputs_after(const std::vector<Plan>& plans, TierReport* report,
                                              int64_t n_bound = 0) {
  const auto shapes = shapes_for(2, 1);
  const Sequence sequence(shapes, 1500);
  Rig rig(shapes);
  for (int64_t at = 0; at < 1400; at += 200) {
    EXPECT_TRUE(sequence.feed(*rig.cache, at, at + 200).ok());
  }
  for (const Plan& plan : plans) {
    const Status settled = rig.cache->settle(plan);
    EXPECT_TRUE(settled.ok()) << settled.message();
  }
  EXPECT_EQ(rig.cache->n_bound(), n_bound);
  *report = rig.cache->report();
  EXPECT_EQ(report->tier0_bytes + report->tier1_bytes + report->staging_bytes,
            rig.cache->ram_bytes());
  std::vector<std::vector<float>> out;
  for (int64_t at = 1400; at < 1500; at += 4) {
    EXPECT_TRUE(sequence.feed(*rig.cache, at, at + 4, &out).ok());
  }
  return out;
}

// With originals on flash, only the last plan counts, whatever came before.
TEST(TieredCache, ANewPlanIsMadeFromOriginals) {
  const KvLayout layout = make_kv_layout(shapes_for(2, 1));
  const Plan coarse = plan_of(layout, 1, 3, 100, {3, 2}, true);
  const Plan all_exact = plan_of(layout, 1, 30, 0, {}, true);
  const Plan no_flash_needed = plan_of(layout, 1, 30, 0, {}, false);
  const std::vector<Plan> finals = {
      plan_of(layout, 1, 3, 7, {6, 5}, true),     // less in Tier-1, finer
      plan_of(layout, 1, 3, 0, {}, true),         // all on flash
      plan_of(layout, 1, 9, 100, {3, 2}, true),   // a longer window
      plan_of(layout, 1, 3, 100, {5, 4}, false),  // all in RAM
      no_flash_needed,
  };
  for (const Plan& final : finals) {
    TierReport direct, roundabout;
    const auto want = outputs_after({all_exact, final}, &direct);
    EXPECT_EQ(outputs_after({coarse, final}, &roundabout), want);
    EXPECT_EQ(roundabout.n_exact, direct.n_exact);
    EXPECT_EQ(roundabout.n_compressed, direct.n_compressed);
    EXPECT_EQ(roundabout.n_offloaded, direct.n_offloaded);
  }
  TierReport report;
  const auto exact = outputs_after({plan_of(layout, 1, 30, 0, {}, false)}, &report);
  EXPECT_EQ(outputs_after({coarse, no_flash_needed}, &report), exact);
  EXPECT_EQ(report.n_exact, 1400);
}

// Without flash there are no originals: what is compressed stays as it is.
TEST(TieredCache, PagesWithoutOriginalsAreBound) {
  const KvLayout layout = make_kv_layout(shapes_for(2, 1));
  const int64_t n_compressible = 1400 / kPageTokens + 1 - 1 - 3;  // all but sink and window
  TierReport report;
  const Plan first = plan_of(layout, 1, 3, 10, {5, 4}, false);
  outputs_after({first, plan_of(layout, 1, 3, 100, {5, 4}, false)}, &report, n_compressible);
  outputs_after({first, plan_of(layout, 1, 3, 10, {5, 4}, true)}, &report, 10);
  EXPECT_EQ(report.n_compressed, 640);
  EXPECT_GT(report.n_offloaded, 0);

  Rig rig(shapes_for(2, 1));
  const Sequence sequence(shapes_for(2, 1), 1000);
  for (int64_t at = 0; at < 1000; at += 200) {
    ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 200).ok());
  }
  ASSERT_TRUE(rig.cache->settle(first).ok());
  EXPECT_EQ(rig.cache->settle(plan_of(layout, 1, 3, 10, {4, 4}, false)).code(),
            StatusCode::kInternal);
}

TEST(TieredCache, RewindsWhatIsStillExact) {
  const auto shapes = shapes_for(1, 1);  // a window of 150
  const Sequence sequence(shapes, 700);
  Rig rig(shapes);
  std::vector<std::vector<float>> first, again;
  ASSERT_TRUE(sequence.feed(*rig.cache, 0, 200).ok());
  ASSERT_TRUE(sequence.feed(*rig.cache, 200, 210, &first).ok());
  ASSERT_TRUE(sequence.feed(*rig.cache, 210, 260, &first).ok());
  EXPECT_FALSE(rig.cache->rewind(261));
  ASSERT_TRUE(rig.cache->rewind(200));
  EXPECT_EQ(rig.cache->length(), 200);
  EXPECT_EQ(rig.cache->report().tier0_bytes,  // 4 pages, and of the window's those from token 0 on
            4 * (rig.layout.full_page_bytes + rig.layout.window_page_bytes));
  ASSERT_TRUE(sequence.feed(*rig.cache, 200, 210, &again).ok());
  ASSERT_TRUE(sequence.feed(*rig.cache, 210, 260, &again).ok());
  EXPECT_EQ(first, again);

  ASSERT_TRUE(sequence.feed(*rig.cache, 260, 500).ok());
  ASSERT_TRUE(sequence.feed(*rig.cache, 500, 510).ok());
  EXPECT_FALSE(rig.cache->rewind(250));  // token 101 has been dropped from the window
  EXPECT_EQ(rig.cache->length(), 510);
  EXPECT_TRUE(rig.cache->rewind(505));
  // To the beginning always, whatever windows have dropped.
  ASSERT_TRUE(rig.cache->rewind(0));
  EXPECT_EQ(rig.cache->report().tier0_bytes, 0u);
  ASSERT_TRUE(sequence.feed(*rig.cache, 0, 200).ok());
  again.clear();
  ASSERT_TRUE(sequence.feed(*rig.cache, 200, 210, &again).ok());
  ASSERT_TRUE(sequence.feed(*rig.cache, 210, 260, &again).ok());
  EXPECT_EQ(first, again);
  ASSERT_TRUE(sequence.feed(*rig.cache, 260, 505).ok());
  ASSERT_TRUE(rig.cache->settle(plan_of(rig.layout, 1, 2, 100, {5, 4}, false)).ok());
  EXPECT_GT(rig.cache->report().n_compressed, 0);
  EXPECT_FALSE(rig.cache->rewind(500));
}

TEST(TieredCache, ChunksAfterCompressionAttendToIt) {
  const auto shapes = shapes_for(1, 0);
  const Sequence sequence(shapes, 800);
  Rig rig(shapes);
  for (int64_t at = 0; at < 600; at += 200)
    ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 200).ok());
  ASSERT_TRUE(rig.cache->settle(plan_of(rig.layout, 1, 2, 4, {8, 8}, true)).ok());
  std::vector<std::vector<float>> out;
  ASSERT_TRUE(sequence.feed(*rig.cache, 600, 800, &out).ok());
  const size_t row = shapes[0].n_heads * shapes[0].head_dim;
  for (const int64_t token : {600, 799}) {
    EXPECT_LT(relative_error(out[0], (token - 600) * row, sequence.oracle(0, token)), 0.02)
        << token;
  }
}

TEST(TieredCache, WindowLayersKeepOnlyTheirWindow) {
  const auto shapes = shapes_for(0, 2);
  const Sequence sequence(shapes, 2000);
  Rig rig(shapes);
  std::vector<std::vector<float>> out;
  for (int64_t at = 0; at < 2000; at += 250) {
    ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 250, &out).ok());
    EXPECT_LE(rig.budget.used(MemoryKind::kTier0),
              rig.layout.window_pages(250) * buffer_footprint(rig.layout.window_page_bytes));
  }
  const size_t row = shapes[0].n_heads * shapes[0].head_dim;
  EXPECT_LT(relative_error(out[1], 1999 * row, sequence.oracle(1, 1999)), kPrefillError);
}

TEST(TieredCache, ARefusedChunkLeavesTheCacheAsItWas) {
  const auto shapes = shapes_for(1, 0);
  const Sequence sequence(shapes, 600);
  const KvLayout layout = make_kv_layout(shapes);
  const uint64_t scratch = TieredAttention::scratch_bytes(layout, 256, 2);
  Rig rig(shapes, 2, scratch + 4 * buffer_footprint(layout.full_page_bytes));
  ASSERT_TRUE(sequence.feed(*rig.cache, 0, 200).ok());
  const uint64_t used = rig.budget.used();
  // Nothing may leave RAM (the window covers all), so the next pages are refused.
  const Status refused = sequence.feed(*rig.cache, 200, 450);
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(rig.cache->length(), 200);
  EXPECT_EQ(rig.budget.used(), used);
  std::vector<std::vector<float>> out;
  ASSERT_TRUE(sequence.feed(*rig.cache, 200, 250, &out).ok());
  const size_t row = shapes[0].n_heads * shapes[0].head_dim;
  EXPECT_LT(relative_error(out[0], 49 * row, sequence.oracle(0, 249)), kPrefillError);
}

TEST(TieredCache, TheBudgetHoldsWhileEverythingMoves) {
  const auto shapes = shapes_for(3, 1);
  const Sequence sequence(shapes, 4000);
  const KvLayout layout = make_kv_layout(shapes);
  const uint64_t pages = 3 + layout.extent_pages + 8;
  const uint64_t limit = TieredAttention::scratch_bytes(layout, 256, 2) +
                         ExtentStream::staging_bytes(layout) + pages * layout.full_page_bytes +
                         layout.window_pages(256) * layout.window_page_bytes + (64 << 10);
  Rig rig(shapes, 2, limit);
  rig.cache->set_exact_limit(static_cast<int64_t>(pages) - 1);
  for (int64_t at = 0; at < 3000; at += 250) {
    ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 250).ok()) << at;
  }
  ASSERT_TRUE(rig.cache->settle(plan_of(layout, 1, 3, 15, {4, 3}, true)).ok());
  for (int64_t at = 3000; at < 4000; at += 10)
    ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 10).ok());
  EXPECT_LE(rig.budget.peak(), limit);
  const TierReport report = rig.cache->report();
  EXPECT_EQ(report.n_exact + report.n_compressed + report.n_offloaded, 4000);
  EXPECT_EQ(report.n_compressed, 15 * 64);
}

}  // namespace
}  // namespace tierkv
