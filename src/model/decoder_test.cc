// The decoder against a plain double-precision forward pass written from the papers, on tiny models
// that use what each architecture has.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kv/tiered_cache.h"
#include "model/tiny_model.h"

namespace tierkv {
namespace {

using Vec = std::vector<double>;

// One sequence, no cache, no batching: position by position over all earlier ones.
class Oracle {
 public:
  explicit Oracle(const TinyModel& model) : m_(model), s_(model.shape) {}

  // Logits of every position, [n][n_vocab].
  std::vector<Vec> forward(const std::vector<int32_t>& tokens) {
    const bool gemma = s_.architecture == "gemma3";
    std::vector<Vec> x;
    for (const int32_t token : tokens) {
      Vec row(s_.n_embd);
      const auto& table = m_.tensor("token_embd.weight");
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = table[token * s_.n_embd + i] * (gemma ? std::sqrt(double(s_.n_embd)) : 1);
      }
      x.push_back(row);
    }
    for (uint32_t layer = 0; layer < s_.n_layers; ++layer) run_layer(layer, gemma, x);
    std::vector<Vec> logits;
    for (Vec& row : x) {
      logits.push_back(product(m_.has("output.weight") ? "output.weight" : "token_embd.weight",
                               norm(row, "output_norm.weight"), s_.n_vocab));
    }
    return logits;
  }

 private:
  Vec product(const std::string& name, const Vec& x, uint64_t n_rows) const {
    const auto& w = m_.tensor(name);
    Vec y(n_rows);
    for (uint64_t r = 0; r < n_rows; ++r) {
      for (size_t c = 0; c < x.size(); ++c) y[r] += double(w[r * x.size() + c]) * x[c];
    }
    return y;
  }
  Vec norm(Vec x, const std::string& name) const {
    double square = 0;
    for (const double v : x) square += v * v;
    const double scale = 1 / std::sqrt(square / double(x.size()) + double(1e-5f));
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * m_.tensor(name)[i];
    return x;
  }
  void add_bias(const std::string& name, Vec& x) const {
    if (!m_.has(name)) return;
    for (size_t i = 0; i < x.size(); ++i) x[i] += m_.tensor(name)[i];
  }
  void rotate(double* head, int64_t position, double base, bool gemma) const {
    const int half = static_cast<int>(s_.head_dim / 2);
    for (int i = 0; i < half; ++i) {
      double theta = std::pow(base, -2.0 * i / s_.head_dim);
      if (m_.has("rope_freqs.weight")) theta /= m_.tensor("rope_freqs.weight")[i];
      double& a = gemma ? head[i] : head[2 * i];
      double& b = gemma ? head[i + half] : head[2 * i + 1];
      const double c = std::cos(position * theta), s = std::sin(position * theta), a0 = a;
      a = a0 * c - b * s;
      b = a0 * s + b * c;
    }
  }
  Vec heads(const std::string& block, const char* which, const Vec& h, int n_heads,
            int64_t position, double base, bool gemma, bool rope) const {
    Vec x = product(block + "attn_" + which + ".weight", h, n_heads * s_.head_dim);
    add_bias(block + "attn_" + which + ".bias", x);
    for (int i = 0; i < n_heads && rope; ++i) {
      Vec head(x.begin() + i * s_.head_dim, x.begin() + (i + 1) * s_.head_dim);
      if (gemma) head = norm(head, block + "attn_" + which + "_norm.weight");
      rotate(head.data(), position, base, gemma);
      std::copy(head.begin(), head.end(), x.begin() + i * s_.head_dim);
    }
    return x;
  }
  void run_layer(uint32_t layer, bool gemma, std::vector<Vec>& x) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    const bool local = gemma && layer % s_.period < s_.period - 1;
    const double base = local ? 10000 : s_.rope_base;
    const int64_t window = local ? s_.window : 1 << 30;
    std::vector<Vec> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Vec h = norm(x[t], block + "attn_norm.weight");
      q.push_back(heads(block, "q", h, s_.n_heads, t, base, gemma, true));
      k.push_back(heads(block, "k", h, s_.n_kv_heads, t, base, gemma, true));
      v.push_back(heads(block, "v", h, s_.n_kv_heads, t, base, gemma, false));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Vec a = product(block + "attn_output.weight", attend(q[t], k, v, t, window), s_.n_embd);
      if (gemma) a = norm(a, block + "post_attention_norm.weight");
      for (size_t i = 0; i < a.size(); ++i) x[t][i] += a[i];
      const Vec h = norm(x[t], block + "ffn_norm.weight");
      Vec gate = product(block + "ffn_gate.weight", h, s_.n_ff);
      const Vec up = product(block + "ffn_up.weight", h, s_.n_ff);
      for (size_t i = 0; i < gate.size(); ++i) {
        const double z = gate[i];
        gate[i] =
            up[i] *
            (gemma ? 0.5 * z * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)))
                   : z / (1 + std::exp(-z)));
      }
      Vec f = product(block + "ffn_down.weight", gate, s_.n_embd);
      if (gemma) f = norm(f, block + "post_ffw_norm.weight");
      for (size_t i = 0; i < f.size(); ++i) x[t][i] += f[i];
    }
  }
  Vec attend(const Vec& q, const std::vector<Vec>& k, const std::vector<Vec>& v, int64_t t,
             int64_t window) const {
    Vec out(q.size());
    const int d = static_cast<int>(s_.head_dim),
              group = static_cast<int>(s_.n_heads / s_.n_kv_heads);
    for (uint32_t h = 0; h < s_.n_heads; ++h) {
      const int kv = static_cast<int>(h) / group;
      double sum = 0;
      Vec weights;
      for (int64_t j = std::max<int64_t>(0, t - window + 1); j <= t; ++j) {
        double dot = 0;
        for (int i = 0; i < d; ++i) dot += q[h * d + i] * k[j][kv * d + i];
        weights.push_back(std::exp(dot / std::sqrt(double(d))));
        sum += weights.back();
      }
      const int64_t first = std::max<int64_t>(0, t - window + 1);
      for (int64_t j = first; j <= t; ++j) {
        for (int i = 0; i < d; ++i) out[h * d + i] += weights[j - first] / sum * v[j][kv * d + i];
      }
    }
    return out;
  }

  const TinyModel& m_;
  const TinyShape& s_;
};

struct Rig {
  Rig(const TinyModel& model, Isa isa) : file(std::move(*model.file())), kernels(kernels_for(isa)) {
    auto read = read_model_spec(file);
    EXPECT_TRUE(read.ok()) << read.status().message();
    spec = std::move(*read);
    auto loaded = Weights::load(file, spec, budget, pool);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    weights = std::move(*loaded);
    std::vector<KvLayerShape> shapes;
    for (const LayerSpec& layer : spec.layers) shapes.push_back(layer.attention);
    layout = make_kv_layout(shapes);
    auto made = Decoder::create(spec, weights, kernels, pool, budget, 128);
    EXPECT_TRUE(made.ok());
    decoder = std::move(*made);
    cache = std::move(
        *TieredCache::create(layout, budget, kernels, pool, 128, {}, AttentionMath::kFloat32));
  }
  MemoryBudget budget;
  ThreadPool pool{2};
  GgufFile file;
  const Kernels& kernels;
  ModelSpec spec;
  Weights weights;
  KvLayout layout;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<TieredCache> cache;
};

// Chunks of several sizes must give what the oracle gives position by position. float32 weights go
// through float32 products, K and V through float16: errors of a few 1e-3 of the logits' spread.
void compare(const TinyShape& shape) {
  const TinyModel model(shape);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 120; ++i)
    tokens.push_back((i * 17 + i * i) % static_cast<int>(shape.n_vocab));
  const std::vector<Vec> want = Oracle(model).forward(tokens);
  for (const Isa isa : available_isas()) {
    Rig rig(model, isa);
    size_t at = 0;
    double worst = 0, spread = 0;
    for (const size_t n : {70u, 33u, 1u, 5u, 11u}) {
      const Status status = rig.decoder->forward({tokens.data() + at, n}, *rig.cache);
      ASSERT_TRUE(status.ok()) << status.message();
      std::vector<float> logits(n * shape.n_vocab);
      rig.decoder->logits(0, static_cast<int64_t>(n), logits.data());
      for (size_t i = 0; i < logits.size(); ++i) {
        const double expected = want[at + i / shape.n_vocab][i % shape.n_vocab];
        worst = std::max(worst, std::abs(logits[i] - expected));
        spread = std::max(spread, std::abs(expected));
      }
      at += n;
    }
    ASSERT_EQ(at, tokens.size());
    EXPECT_LT(worst, 3e-3 * spread) << shape.architecture << " " << isa_name(isa);
  }
}

TEST(Decoder, Llama) { compare({}); }

TEST(Decoder, LlamaWithRopeFactorsBiasesAndOwnOutput) {
  TinyShape shape;
  shape.rope_freqs = shape.biases = true;
  shape.tied = false;
  shape.rope_base = 500000;
  compare(shape);
}

TEST(Decoder, LlamaWithoutGrouping) {
  TinyShape shape;
  shape.n_kv_heads = shape.n_heads;
  compare(shape);
}

TEST(Decoder, Gemma3) {
  TinyShape shape;
  shape.architecture = "gemma3";
  shape.n_layers = 4;
  shape.n_heads = 4;
  shape.n_kv_heads = 1;
  shape.head_dim = 48;
  shape.rope_base = 1e6f;
  compare(shape);
}

TEST(Decoder, RefusesTokensOutsideTheVocabulary) {
  Rig rig(TinyModel({}), Isa::kScalar);
  const int32_t tokens[] = {1, 40};
  const Status status = rig.decoder->forward(tokens, *rig.cache);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.cache->length(), 0);
}

TEST(Decoder, CancellationLeavesTheCacheAsItWas) {
  Rig rig(TinyModel({}), Isa::kScalar);
  const int32_t tokens[] = {1, 2, 3};
  ASSERT_TRUE(rig.decoder->forward(tokens, *rig.cache).ok());
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(rig.decoder->forward(tokens, *rig.cache, {}, &cancel).code(), StatusCode::kCancelled);
  EXPECT_EQ(rig.cache->length(), 3);
}

// A chunk from a layer on, given what entered it, ends as the whole chunk does.
TEST(Decoder, GoesOnFromALayersInput) {
  TinyShape shape;
  shape.n_layers = 3;
  Rig rig(TinyModel(shape), available_isas().back());
  const std::vector<int32_t> prefix = {1, 2, 3, 4, 5, 6, 7}, chunk = {9, 8, 7, 6, 5};
  ASSERT_TRUE(rig.decoder->forward(prefix, *rig.cache).ok());
  std::vector<std::vector<float>> inputs;
  const auto keep = [&](int layer, const float* x) {
    EXPECT_EQ(layer, static_cast<int>(inputs.size()));
    inputs.emplace_back(x, x + chunk.size() * shape.n_embd);
  };
  ASSERT_TRUE(rig.decoder->forward(chunk, *rig.cache, {}, nullptr, keep).ok());
  std::vector<float> whole(chunk.size() * shape.n_vocab), rest(whole.size());
  rig.decoder->logits(0, static_cast<int64_t>(chunk.size()), whole.data());
  ASSERT_EQ(inputs.size(), 3u);
  for (int layer = 0; layer < 3; ++layer) {
    ASSERT_TRUE(rig.cache->rewind(static_cast<int64_t>(prefix.size())));
    ASSERT_TRUE(rig.decoder->forward_from(layer, inputs[layer], *rig.cache).ok());
    EXPECT_EQ(rig.cache->length(), static_cast<int64_t>(prefix.size() + chunk.size()));
    rig.decoder->logits(0, static_cast<int64_t>(chunk.size()), rest.data());
    EXPECT_EQ(rest, whole) << layer;
  }
  EXPECT_EQ(rig.decoder->forward_from(0, {}, *rig.cache).code(), StatusCode::kInvalidArgument);
}

// Logits of the tokens that are asked for only, and a cache as if all had been: what follows is the
// same, to the bit.
TEST(Decoder, GivesTheOutputsThatAreWanted) {
  for (const char* architecture : {"llama", "gemma3"}) {
    TinyShape shape;
    shape.architecture = architecture;
    const TinyModel model(shape);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 100; ++i) tokens.push_back(i * 7 % static_cast<int>(shape.n_vocab));
    const std::span<const int32_t> all(tokens);
    const int64_t n_vocab = shape.n_vocab;
    Rig whole(model, available_isas().back());
    ASSERT_TRUE(whole.decoder->forward(all.first(90), *whole.cache).ok());
    std::vector<float> want(90 * n_vocab), next(n_vocab);
    whole.decoder->logits(0, 90, want.data());
    ASSERT_TRUE(whole.decoder->forward(all.last(10), *whole.cache, {9, 1}).ok());
    whole.decoder->logits(0, 1, next.data());
    double spread = 0;
    for (const float x : want) spread = std::max<double>(spread, std::abs(x));
    for (const ChunkTokens outputs : {ChunkTokens{3, 10}, {89, 1}, {50, 1}, {0, 90}}) {
      Rig rig(model, available_isas().back());
      ASSERT_TRUE(rig.decoder->forward(all.first(90), *rig.cache, outputs).ok());
      const int64_t n = outputs.count(90);
      std::vector<float> got(n * n_vocab), after(n_vocab);
      rig.decoder->logits(0, n, got.data());
      for (int64_t i = 0; i < n; ++i) {
        const int64_t token = outputs.first + i * outputs.step;
        for (int64_t j = 0; j < n_vocab; ++j) {
          ASSERT_NEAR(got[i * n_vocab + j], want[token * n_vocab + j], 1e-4 * spread) << token;
        }
      }
      ASSERT_TRUE(rig.decoder->forward(all.last(10), *rig.cache, {9, 1}).ok());
      rig.decoder->logits(0, 1, after.data());
      EXPECT_EQ(after, next);
    }
    for (const ChunkTokens none : {ChunkTokens{90, 1}, {-1, 1}, {0, 0}}) {
      EXPECT_EQ(whole.decoder->forward(all.first(90), *whole.cache, none).code(),
                StatusCode::kInternal);
      EXPECT_EQ(whole.cache->length(), 100);
    }
  }
}

TEST(ChunkTokens, AreCounted) {
  EXPECT_EQ(ChunkTokens().count(7), 7);
  EXPECT_EQ((ChunkTokens{3, 4}.count(7)), 1);
  EXPECT_EQ((ChunkTokens{2, 4}.count(7)), 2);
  EXPECT_EQ((ChunkTokens{7, 4}.count(7)), 0);
  EXPECT_EQ(ChunkTokens::last_of(7).count(7), 1);
}

// Short chunks go on where long ones ended, in less memory.
TEST(Decoder, GivesScratchBackBetweenChunks) {
  const TinyShape shape;
  std::vector<int32_t> tokens;
  for (int i = 0; i < 100; ++i) tokens.push_back(i * 7 % static_cast<int>(shape.n_vocab));
  const std::span<const int32_t> all(tokens);
  const auto logits_after = [&](bool resized) {
    Rig rig(TinyModel(shape), available_isas().back());
    EXPECT_TRUE(rig.decoder->forward(all.first(90), *rig.cache).ok());
    if (resized) {
      const uint64_t before = rig.budget.used(MemoryKind::kScratch);
      EXPECT_TRUE(rig.decoder->resize(rig.budget, 10).ok());
      EXPECT_TRUE(rig.cache->set_max_chunk(10).ok());
      EXPECT_EQ(rig.budget.used(MemoryKind::kScratch),
                Decoder::scratch_bytes(rig.spec, 10, rig.pool.size()) +
                    TieredAttention::scratch_bytes(rig.layout, 10, rig.pool.size()));
      EXPECT_LT(rig.budget.used(MemoryKind::kScratch), before);
      EXPECT_EQ(rig.decoder->forward(all.first(11), *rig.cache).code(),
                StatusCode::kInvalidArgument);
      EXPECT_EQ(rig.cache->length(), 90);
    }
    EXPECT_TRUE(rig.decoder->forward(all.last(10), *rig.cache).ok());
    std::vector<float> logits(10 * shape.n_vocab);
    rig.decoder->logits(0, 10, logits.data());
    return logits;
  };
  EXPECT_EQ(logits_after(true), logits_after(false));
}

TEST(ModelSpec, RefusesContradictions) {
  const auto status_of = [](const std::string& key, auto value) {
    GgufTestWriter writer;
    writer.add("general.architecture", "llama");
    writer.add(key, value);
    auto file = GgufFile::parse(std::make_unique<MemoryFile>(writer.bytes()));
    EXPECT_TRUE(file.ok()) << file.status().message();
    return read_model_spec(*file).status();
  };
  EXPECT_EQ(status_of("llama.block_count", uint32_t{0}).code(), StatusCode::kCorrupt);
  EXPECT_EQ(status_of("llama.block_count", uint32_t{2}).code(), StatusCode::kNotFound);
}

TEST(ModelSpec, NamesUnknownArchitecturesAndWrongShapes) {
  TinyShape shape;
  shape.architecture = "mamba";
  const auto unknown = read_model_spec(*TinyModel(shape).file());
  EXPECT_EQ(unknown.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(unknown.status().message().find("mamba"), std::string::npos);
  EXPECT_NE(unknown.status().message().find("llama"), std::string::npos);

  shape = {};
  shape.n_kv_heads = 3;  // does not divide 4
  EXPECT_EQ(read_model_spec(*TinyModel(shape).file()).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace tierkv
