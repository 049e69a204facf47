// Low-rank Tier-1 in a whole cache: what the codec can represent is reproduced, wherever its
// pages came from and however many threads there are, and what it takes was announced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kv/low_rank_codec.h"
#include "kv/session_test_util.h"
#include "kv/tiered_cache.h"

namespace tierkv {
namespace {

constexpr int64_t kPrompt = 900, kTotal = 990;
constexpr int kHeadDim = 64;
constexpr double kHalfPrecision = 2e-3;  // of an output: some roundings of 2^-11
constexpr CodecId kFull{.rank_permille = 1000, .latent_bits = 16};
constexpr CodecId kQuarter{.rank_permille = 250, .latent_bits = 16};

// One full and one window-only layer.
std::vector<KvLayerShape> shapes() {
  KvLayerShape shape{.n_heads = 6, .n_kv_heads = 2, .head_dim = kHeadDim, .scale = 1 / 8.0f};
  KvLayerShape window = shape;
  window.window = 150;
  return {window, shape};
}

KvRope rope(RopePairing pairing) {
  KvRope rope{pairing, {}};
  for (int i = 0; i < kHeadDim / 2; ++i) {
    rope.frequency.push_back(std::pow(10000.0, -2.0 * i / kHeadDim));
  }
  return rope;
}

// q, k (after RoPE) and v, [token][head][dim]; K before RoPE and V are of rank `rank` together.
struct Sequence {
  std::vector<float> q, k, v;

  Sequence(int64_t rank, RopePairing pairing) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    const int64_t width = 4 * kHeadDim;
    std::vector<float> directions(rank * width);
    for (float& x : directions) x = normal(random) / std::sqrt(static_cast<float>(rank));
    q.resize(kTotal * 6 * kHeadDim);
    for (float& x : q) x = normal(random);
    const KvRope how = rope(pairing);
    for (int64_t t = 0; t < kTotal; ++t) {
      std::vector<float> x(width);
      for (int64_t r = 0; r < rank; ++r) {
        const float z = normal(random);
        for (int64_t i = 0; i < width; ++i) x[i] += z * directions[r * width + i];
      }
      for (int head = 0; head < 2; ++head) rotate(how, t, x.data() + head * kHeadDim);
      k.insert(k.end(), x.begin(), x.begin() + 2 * kHeadDim);
      v.insert(v.end(), x.begin() + 2 * kHeadDim, x.end());
    }
  }

  static void rotate(const KvRope& how, int64_t position, float* head) {
    for (int i = 0; i < kHeadDim / 2; ++i) {
      const bool adjacent = how.pairing == RopePairing::kAdjacent;
      float& a = head[adjacent ? 2 * i : i];
      float& b = head[adjacent ? 2 * i + 1 : i + kHeadDim / 2];
      const double angle = static_cast<double>(position) * how.frequency[i], x = a, y = b;
      a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
      b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
    }
  }

  // The full layer's output for tokens [begin, end), fed as one chunk.
  std::vector<float> feed(TieredCache& cache, int64_t begin, int64_t end) const {
    std::vector<float> out((end - begin) * 6 * kHeadDim);
    EXPECT_TRUE(cache.begin(end - begin).ok());
    for (int layer = 0; layer < 2; ++layer) {
      const Status status =
          cache.attend(layer, q.data() + begin * 6 * kHeadDim, k.data() + begin * 2 * kHeadDim,
                       v.data() + begin * 2 * kHeadDim, {}, out.data());
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(cache.commit().ok());
    return out;
  }
};

struct Rig {
  explicit Rig(int n_threads = 2, RopePairing pairing = RopePairing::kAdjacent,
               SessionFile* session = nullptr)
      : layout(make_kv_layout(shapes())), pool(n_threads) {
    std::string directory = testing::TempDir() + "tierkv-low-rank-XXXXXX";
    FlashOptions flash;
    flash.file_system = &real_file_system();
    flash.directory = mkdtemp(directory.data());
    flash.max_tokens = 1 << 13;
    flash.session = session;
    auto made = TieredCache::create(layout, budget, kernels_for(available_isas().back()), pool, 300,
                                    flash, AttentionMath::kFloat32, 4 * kHeadDim);
    EXPECT_TRUE(made.ok()) << made.status().message();
    cache = std::move(*made);
    cache->set_ropes({rope(pairing), rope(pairing)});
  }
  Status settle(CodecId codec, int64_t tier1_pages, bool flash = false) {
    return cache->settle({.sink_pages = 1,
                          .window_pages = 2,
                          .tier1_pages = tier1_pages,
                          .flash = flash,
                          .codecs = {codec, codec}});
  }
  const KvLayout layout;
  MemoryBudget budget;
  ThreadPool pool;
  std::unique_ptr<TieredCache> cache;
};

void feed_prompt(const Sequence& sequence, TieredCache& cache) {
  for (int64_t at = 0; at < kPrompt; at += 300) sequence.feed(cache, at, at + 300);
}

// After the prompt: one token, five, then a chunk that decodes compressed pages.
std::vector<float> feed_rest(const Sequence& sequence, TieredCache& cache) {
  std::vector<float> out;
  for (const auto& [begin, end] : {std::pair{900, 901}, {901, 906}, {906, kTotal}}) {
    const std::vector<float> part = sequence.feed(cache, begin, end);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// How far a cache with the codec is from an exact one.
double error_of(const Sequence& sequence, CodecId codec, RopePairing pairing) {
  Rig exact(2, pairing), low_rank(2, pairing);
  feed_prompt(sequence, *exact.cache);
  feed_prompt(sequence, *low_rank.cache);
  const Status status = low_rank.settle(codec, 100);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(low_rank.cache->report().n_compressed, 64 * (kPrompt / 64 + 1 - 3));
  return relative_error(feed_rest(sequence, *low_rank.cache), feed_rest(sequence, *exact.cache));
}

class LowRankCache : public testing::TestWithParam<RopePairing> {};

TEST_P(LowRankCache, RowsOfTheCodecsRankAreReproduced) {
  const Sequence sequence(40, GetParam());
  EXPECT_LT(error_of(sequence, kQuarter, GetParam()), kHalfPrecision);
  CodecId bytes = kQuarter;
  bytes.latent_bits = 8;
  EXPECT_LT(error_of(sequence, bytes, GetParam()), 1e-2);  // 1/254 of the largest of 32 latents
}

TEST_P(LowRankCache, RowsOfMoreThanItsRankAreNot) {
  EXPECT_GT(error_of(Sequence(200, GetParam()), kQuarter, GetParam()), .1);
}

TEST_P(LowRankCache, FullRankIsTheExactCache) {
  EXPECT_LT(error_of(Sequence(4 * kHeadDim, GetParam()), kFull, GetParam()), kHalfPrecision);
}

INSTANTIATE_TEST_SUITE_P(Pairings, LowRankCache,
                         testing::Values(RopePairing::kAdjacent, RopePairing::kHalves));

TEST(LowRankCache, NeitherThreadsNorFlashChangeABit) {
  const Sequence sequence(200, RopePairing::kAdjacent);
  std::vector<std::vector<float>> outputs;
  for (const int n_threads : {1, 2, 5}) {
    Rig rig(n_threads);
    // With five threads pages leave for flash while the prompt is read, and come back to Tier-1.
    if (n_threads == 5) rig.cache->set_exact_limit(5 + rig.layout.extent_pages);
    feed_prompt(sequence, *rig.cache);
    EXPECT_EQ(rig.cache->uses_flash(), n_threads == 5);
    ASSERT_TRUE(rig.settle(kQuarter, 5).ok());
    EXPECT_EQ(rig.cache->report().n_compressed, 5 * 64);
    outputs.push_back(feed_rest(sequence, *rig.cache));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST(LowRankCache, PagesThatLeaveTheWindowLaterUseTheSameBasis) {
  const Sequence sequence(40, RopePairing::kAdjacent);
  Rig exact, rig;
  std::vector<float> wanted, got;
  for (Rig* r : {&exact, &rig}) {
    for (int64_t at = 0; at < 600; at += 300) sequence.feed(*r->cache, at, at + 300);
  }
  ASSERT_TRUE(rig.settle(kQuarter, 100).ok());
  const int64_t n_compressed = rig.cache->report().n_compressed;
  for (int64_t at = 600; at < kTotal; at += 10) {
    wanted = sequence.feed(*exact.cache, at, at + 10);
    got = sequence.feed(*rig.cache, at, at + 10);
  }
  EXPECT_GT(rig.cache->report().n_compressed, n_compressed + 4 * 64);
  EXPECT_LT(relative_error(got, wanted), kHalfPrecision);
}

TEST(LowRankCache, BytesAreThoseOfLatentsAndBasis) {
  const Sequence sequence(40, RopePairing::kAdjacent);
  Rig rig;
  feed_prompt(sequence, *rig.cache);
  ASSERT_TRUE(rig.settle(kQuarter, 100).ok());
  const TierReport report = rig.cache->report();
  EXPECT_EQ(report.bits_per_element, 4);
  EXPECT_EQ(report.basis_bytes, 64u * 256 * 2);
  EXPECT_EQ(report.tier1_page_bytes, static_cast<uint64_t>(report.n_compressed) * 64 * 2);
}

TEST(LowRankCache, WhatItTakesWasAnnounced) {
  const Sequence sequence(40, RopePairing::kAdjacent);
  const KvLayout layout = make_kv_layout(shapes());
  for (const int n_threads : {1, 3}) {
    Rig rig(n_threads);
    feed_prompt(sequence, *rig.cache);
    const uint64_t before = rig.budget.used();
    const uint64_t announced =
        PageTable::codec_scratch_bytes(layout, n_threads, {kQuarter}, 1 << 13);
    ASSERT_TRUE(rig.settle(kQuarter, 100).ok());
    EXPECT_LE(rig.budget.peak(), before + announced + 2 * layout.full_page_bytes);
    // And is used, but for tables that layers share and the exact pages that have gone.
    EXPECT_GT(rig.budget.peak(), before + announced / 2);
  }
}

TEST(LowRankCache, RefusesWhatItCantDo) {
  Rig rig;
  const Sequence sequence(40, RopePairing::kAdjacent);
  feed_prompt(sequence, *rig.cache);
  Plan mixed{.sink_pages = 1, .window_pages = 2, .tier1_pages = 5, .codecs = {kQuarter, {5, 4}}};
  EXPECT_EQ(rig.cache->settle(mixed).code(), StatusCode::kInvalidArgument);
  std::vector<KvLayerShape> odd = shapes();
  odd[1].head_dim = 80;
  const KvLayout layout = make_kv_layout(odd);
  EXPECT_EQ(check_low_rank(layout, {kFull, kFull}).code(), StatusCode::kUnsupported);
  EXPECT_TRUE(check_low_rank(layout, {CodecId{5, 4}, CodecId{8, 8}}).ok());
  EXPECT_TRUE(rig.settle(kQuarter, 5).ok());
}

// The bases are those that the prompt gave, though more pages are there now.
TEST(LowRankCache, ASavedSessionGoesOnWithTheSameBits) {
  const Sequence sequence(200, RopePairing::kAdjacent);
  constexpr int64_t kSaved = 970;
  LoggedDisk disk;
  const auto saved = SessionFile::create(disk, "s", session_shape(make_kv_layout(shapes())));
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  std::vector<float> wanted;
  {
    Rig rig(2, RopePairing::kAdjacent, saved->get());
    feed_prompt(sequence, *rig.cache);
    ASSERT_TRUE(rig.settle(kQuarter, 100).ok());
    sequence.feed(*rig.cache, kPrompt, kSaved);
    ASSERT_TRUE(rig.cache->save(point_of(counted(kSaved), kSaved)).ok());
    wanted = sequence.feed(*rig.cache, kSaved, kTotal);
  }
  const auto opened = SessionFile::open(disk, "s");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SessionPoint& point = *(*opened)->points()[0];
  Rig rig(2, RopePairing::kAdjacent, opened->get());
  ASSERT_TRUE(rig.cache->restore(point, kSaved).ok());
  ASSERT_TRUE(rig.settle(kQuarter, 100).ok());
  EXPECT_GT(rig.cache->report().n_compressed, 64 * 10);
  EXPECT_EQ(sequence.feed(*rig.cache, kSaved, kTotal), wanted);
}

// A plan whose codecs can't be had leaves an exact cache, and one that takes another plan.
void expect_goes_on_without(Rig& rig, const Sequence& sequence, const Plan& plan, StatusCode code) {
  EXPECT_EQ(rig.cache->settle(plan).code(), code);
  rig.budget.set_limit(MemoryBudget::kUnlimited);
  EXPECT_EQ(rig.cache->report().n_compressed, 0);
  Rig exact;
  feed_prompt(sequence, *exact.cache);
  EXPECT_EQ(feed_rest(sequence, *rig.cache), feed_rest(sequence, *exact.cache));
  EXPECT_EQ(rig.cache->report().n_compressed, 0);
  EXPECT_TRUE(rig.settle({5, 4}, 5).ok());
  EXPECT_EQ(rig.cache->report().n_compressed, 5 * 64);
}

TEST(LowRankCache, GoesOnExactWithoutRoomForTheBasis) {
  const Sequence sequence(40, RopePairing::kAdjacent);
  const Plan plan{
      .sink_pages = 1, .window_pages = 2, .tier1_pages = 5, .codecs = {kQuarter, kQuarter}};
  const uint64_t most =
      PageTable::codec_scratch_bytes(make_kv_layout(shapes()), 2, {kQuarter}, 1 << 13);
  for (const uint64_t room : {uint64_t{0}, most / 4, most / 2, most - most / 4}) {
    Rig rig;
    feed_prompt(sequence, *rig.cache);
    rig.budget.set_limit(rig.budget.used() + room);
    expect_goes_on_without(rig, sequence, plan, StatusCode::kResourceExhausted);
  }
}

TEST(LowRankCache, GoesOnExactAfterAPlanThatItRefuses) {
  const Sequence sequence(40, RopePairing::kAdjacent);
  const Plan mixed{
      .sink_pages = 1, .window_pages = 2, .tier1_pages = 5, .codecs = {kQuarter, {5, 4}}};
  Rig rig;
  feed_prompt(sequence, *rig.cache);
  expect_goes_on_without(rig, sequence, mixed, StatusCode::kInvalidArgument);
}

TEST(LowRankCache, GoesOnExactWhereNumbersHaveNoBasis) {
  Sequence sequence(40, RopePairing::kAdjacent);
  sequence.v[0] = HUGE_VALF;  // in a sink, so that it is exact anyway
  Rig rig;
  feed_prompt(sequence, *rig.cache);
  EXPECT_EQ(rig.settle(kQuarter, 5).code(), StatusCode::kCorrupt);
  EXPECT_EQ(rig.cache->report().n_compressed, 0);
  feed_rest(sequence, *rig.cache);
  EXPECT_EQ(rig.cache->report().n_compressed, 0);
}

}  // namespace
}  // namespace tierkv
