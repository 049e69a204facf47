// Attention over all tiers against a double-precision oracle, and the promises of tiered_cache.h:
// flash changes no bit, threads change no bit, budgets hold, faults lose nothing.
#include "kv/tiered_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/fault_file.h"
#include "base/half.h"

namespace tierkv {
namespace {

std::string scratch_directory() {
  std::string path = testing::TempDir() + "tierkv-cache-XXXXXX";
  return mkdtemp(path.data()) != nullptr ? path : std::string();
}

std::vector<KvLayerShape> shapes_for(int n_full, int n_window, int group = 3, int head_dim = 64) {
  std::vector<KvLayerShape> shapes;
  for (int i = 0; i < n_full + n_window; ++i) {
    KvLayerShape shape;
    shape.n_kv_heads = 2;
    shape.n_heads = 2 * group;
    shape.head_dim = head_dim;
    shape.scale = 1 / std::sqrt(static_cast<float>(head_dim));
    shape.window = i < n_window ? 150 : 0;
    shapes.push_back(shape);
  }
  return shapes;
}

// Random q, k, v of a whole sequence, the same for every cache of a test.
class Sequence {
 public:
  Sequence(const std::vector<KvLayerShape>& shapes, int64_t n_tokens) : shapes_(shapes) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (const KvLayerShape& shape : shapes) {
      q_.push_back(draw(n_tokens * shape.n_heads * shape.head_dim, random, normal));
      k_.push_back(draw(n_tokens * shape.n_kv_heads * shape.head_dim, random, normal));
      v_.push_back(draw(n_tokens * shape.n_kv_heads * shape.head_dim, random, normal));
    }
  }

  // Feeds tokens [begin, end) as one chunk; appends each layer's output to out[layer].
  Status feed(TieredCache& cache, int64_t begin, int64_t end,
              std::vector<std::vector<float>>* out = nullptr) const {
    TIERKV_RETURN_IF_ERROR(cache.begin(end - begin));
    for (int layer = 0; layer < static_cast<int>(shapes_.size()); ++layer) {
      const KvLayerShape& s = shapes_[layer];
      std::vector<float> result((end - begin) * s.n_heads * s.head_dim);
      const Status status =
          cache.attend(layer, q_[layer].data() + begin * s.n_heads * s.head_dim,
                       k_[layer].data() + begin * s.n_kv_heads * s.head_dim,
                       v_[layer].data() + begin * s.n_kv_heads * s.head_dim, result.data());
      if (!status.ok()) {
        cache.abandon();
        return status;
      }
      if (out != nullptr) {
        out->resize(shapes_.size());
        (*out)[layer].insert((*out)[layer].end(), result.begin(), result.end());
      }
    }
    return cache.commit();
  }

  // softmax(q k) v of one token in double, K and V rounded to float16.
  std::vector<double> oracle(int layer, int64_t token) const {
    const KvLayerShape& s = shapes_[layer];
    std::vector<double> out(s.n_heads * s.head_dim);
    const int64_t first = s.window == 0 ? 0 : std::max<int64_t>(0, token - s.window + 1);
    for (int head = 0; head < s.n_heads; ++head) {
      const int kv_head = head / s.group();
      const float* q = q_[layer].data() + (token * s.n_heads + head) * s.head_dim;
      std::vector<double> score;
      double max = -1e300, sum = 0;
      for (int64_t t = first; t <= token; ++t) {
        double dot = 0;
        for (int d = 0; d < s.head_dim; ++d) dot += q[d] * rounded(k_, layer, t, kv_head, d);
        score.push_back(dot * s.scale);
        max = std::max(max, score.back());
      }
      for (double& x : score) sum += x = std::exp(x - max);
      for (int64_t t = first; t <= token; ++t) {
        for (int d = 0; d < s.head_dim; ++d) {
          out[head * s.head_dim + d] += score[t - first] / sum * rounded(v_, layer, t, kv_head, d);
        }
      }
    }
    return out;
  }

 private:
  static std::vector<float> draw(int64_t n, std::mt19937& random,
                                 std::normal_distribution<float>& normal) {
    std::vector<float> values(n);
    for (float& x : values) x = normal(random);
    return values;
  }
  double rounded(const std::vector<std::vector<float>>& from, int layer, int64_t token, int kv_head,
                 int d) const {
    const KvLayerShape& s = shapes_[layer];
    return f16_to_f32(f32_to_f16(from[layer][(token * s.n_kv_heads + kv_head) * s.head_dim + d]));
  }

  const std::vector<KvLayerShape> shapes_;
  std::vector<std::vector<float>> q_, k_, v_;
};

// The error of a few hundred keys: of float32 sums, and with prefill's three roundings to bfloat16
// where the CPU multiplies that.
constexpr double kFloatError = 2e-5, kPrefillError = 1e-2;

// Everything a cache needs.
struct Rig {
  explicit Rig(std::vector<KvLayerShape> shapes, int n_threads = 2,
               uint64_t ram = MemoryBudget::kUnlimited, FileSystem* files = nullptr,
               AttentionMath math = AttentionMath::kBf16)
      : layout(make_kv_layout(std::move(shapes))), budget(ram), pool(n_threads) {
    FlashOptions flash;
    flash.file_system = files != nullptr ? files : &real_file_system();
    flash.directory = scratch_directory();
    flash.max_tokens = 1 << 16;
    Result<std::unique_ptr<TieredCache>> made = TieredCache::create(
        layout, budget, kernels_for(available_isas().back()), pool, 256, flash, math);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) cache = std::move(*made);
  }
  const KvLayout layout;
  MemoryBudget budget;
  ThreadPool pool;
  std::unique_ptr<TieredCache> cache;
};

Plan plan_of(const KvLayout& layout, int64_t sinks, int64_t window, int64_t tier1, CodecId codec,
             bool flash) {
  Plan plan;
  plan.sink_pages = sinks;
  plan.window_pages = window;
  plan.tier1_pages = tier1;
  plan.flash = flash;
  for (const int layer : layout.full_layers) {
    plan.codecs.insert(plan.codecs.end(), layout.shapes[layer].n_kv_heads, codec);
  }
  return plan;
}

double relative_error(const std::vector<float>& got, size_t at, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[at + i] - want[i]) * (got[at + i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

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

TEST(TieredCache, FlashChangesNoBit) {
  const auto shapes = shapes_for(2, 1);
  const int64_t n_prompt = 1100, n_total = 1500;
  const Sequence sequence(shapes, n_total);
  Rig exact(shapes), flash(shapes), spilled(shapes, 3);
  spilled.cache->set_exact_limit(13 + exact.layout.extent_pages);
  std::vector<std::vector<float>> a, b, c;
  for (int64_t at = 0; at < n_prompt; at += 220) {
    ASSERT_TRUE(sequence.feed(*exact.cache, at, at + 220, &a).ok());
    ASSERT_TRUE(sequence.feed(*flash.cache, at, at + 220, &b).ok());
    ASSERT_TRUE(sequence.feed(*spilled.cache, at, at + 220, &c).ok());
  }
  ASSERT_TRUE(exact.cache->settle(plan_of(exact.layout, 1, 1000, 0, {}, false)).ok());
  ASSERT_TRUE(flash.cache->settle(plan_of(flash.layout, 1, 2, 0, {}, true)).ok());
  ASSERT_TRUE(spilled.cache->settle(plan_of(spilled.layout, 1, 2, 0, {}, true)).ok());
  for (int64_t at = n_prompt; at < n_total; at += 5) {
    ASSERT_TRUE(sequence.feed(*exact.cache, at, at + 5, &a).ok());
    ASSERT_TRUE(sequence.feed(*flash.cache, at, at + 5, &b).ok());
    ASSERT_TRUE(sequence.feed(*spilled.cache, at, at + 5, &c).ok());
  }
  EXPECT_EQ(exact.cache->report().n_offloaded, 0);
  EXPECT_GT(flash.cache->report().n_offloaded, 900);
  EXPECT_EQ(flash.cache->report().n_exact + flash.cache->report().n_offloaded, n_total);
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    EXPECT_EQ(0, std::memcmp(a[layer].data(), b[layer].data(), a[layer].size() * 4)) << layer;
    EXPECT_EQ(0, std::memcmp(a[layer].data(), c[layer].data(), a[layer].size() * 4)) << layer;
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

TEST(TieredCache, FlashFaultsAreErrorsNotWrongAnswers) {
  const auto shapes = shapes_for(2, 0);
  const Sequence sequence(shapes, 1400);
  for (int fault = 0; fault < 4; ++fault) {
    FaultPlan plan;
    const auto files = make_fault_file_system(real_file_system(), plan);
    Rig rig(shapes, 2, MemoryBudget::kUnlimited, files.get());
    for (int64_t at = 0; at < 1200; at += 200) {
      ASSERT_TRUE(sequence.feed(*rig.cache, at, at + 200).ok());
    }
    if (fault == 0) plan.fail_create = true;
    if (fault == 1) plan.disk_full_at = 1 << 20;
    const Status settled = rig.cache->settle(plan_of(rig.layout, 1, 2, 0, {}, true));
    if (fault <= 1) {
      EXPECT_FALSE(settled.ok()) << fault;
      // RAM tiers are intact: the conversation can go on exactly.
      std::vector<std::vector<float>> out;
      rig.cache->set_exact_limit(INT64_MAX);
      if (fault == 0) {
        ASSERT_TRUE(sequence.feed(*rig.cache, 1200, 1210, &out).ok());
        EXPECT_LT(relative_error(out[0], 0, sequence.oracle(0, 1200)), 2e-5);
      }
      continue;
    }
    ASSERT_TRUE(settled.ok());
    if (fault == 2) plan.fail_read_at = plan.reads.load();
    if (fault == 3) plan.flip_bit_in_read = plan.reads.load() + 1;
    Status status;
    for (int64_t at = 1200; at < 1240 && status.ok(); ++at)
      status = sequence.feed(*rig.cache, at, at + 1);
    EXPECT_EQ(status.code(), fault == 2 ? StatusCode::kIoError : StatusCode::kCorrupt)
        << status.message();
  }
}

}  // namespace
}  // namespace tierkv
