// What the tests of the tiered cache share: sequences of random q, k, v with an oracle in double
// precision, and everything that a cache needs.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "kv/tiered_cache.h"

namespace tierkv {

inline std::string scratch_directory() {
  std::string path = testing::TempDir() + "tierkv-cache-XXXXXX";
  return mkdtemp(path.data()) != nullptr ? path : std::string();
}

inline std::vector<KvLayerShape> shapes_for(int n_full, int n_window, int group = 3,
                                            int head_dim = 64) {
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

  // Feeds tokens [begin, end) as one chunk; appends each layer's output of those that are wanted to
  // out[layer].
  Status feed(TieredCache& cache, int64_t begin, int64_t end,
              std::vector<std::vector<float>>* out = nullptr, ChunkTokens wanted = {}) const {
    TIERKV_RETURN_IF_ERROR(cache.begin(end - begin));
    for (int layer = 0; layer < static_cast<int>(shapes_.size()); ++layer) {
      const KvLayerShape& s = shapes_[layer];
      std::vector<float> result(wanted.count(end - begin) * s.n_heads * s.head_dim);
      const Status status =
          cache.attend(layer, q_[layer].data() + begin * s.n_heads * s.head_dim,
                       k_[layer].data() + begin * s.n_kv_heads * s.head_dim,
                       v_[layer].data() + begin * s.n_kv_heads * s.head_dim, wanted, result.data());
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

  // Makes the first query head of `token` attend to `to`, but for a trace.
  void point(int layer, int64_t token, int64_t to) {
    const KvLayerShape& s = shapes_[layer];
    const float* q = q_[layer].data() + token * s.n_heads * s.head_dim;
    float* k = k_[layer].data() + to * s.n_kv_heads * s.head_dim;
    double norm = 0;
    for (int d = 0; d < s.head_dim; ++d) norm += q[d] * q[d];
    const float score = 25 / s.scale;
    for (int d = 0; d < s.head_dim; ++d) k[d] = q[d] * score / static_cast<float>(norm);
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
               AttentionMath math = AttentionMath::kBf16, FlashOptions flash = {})
      : layout(make_kv_layout(std::move(shapes))), budget(ram), pool(n_threads) {
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

inline Plan plan_of(const KvLayout& layout, int64_t sinks, int64_t window, int64_t tier1,
                    CodecId codec, bool flash) {
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

inline double relative_error(const std::vector<float>& got, size_t at,
                             const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[at + i] - want[i]) * (got[at + i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace tierkv
