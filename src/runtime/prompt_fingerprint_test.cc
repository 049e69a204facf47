// Against the same sum formed row by row from the decoder's own logits, on tiny models whose
// vocabulary needs several slices and whose prompts need several batches of rows.
#include "runtime/prompt_fingerprint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "kv/tiered_cache.h"
#include "model/tiny_model.h"

namespace tierkv {
namespace {

constexpr int64_t kChunk = 768;

TinyShape shape_of(const char* architecture) {
  TinyShape shape;
  shape.architecture = architecture;
  shape.n_layers = 4;
  shape.n_ff = 2048;  // products enough in the layers that every 32nd token is taken
  shape.n_vocab = 5000;
  shape.tied = false;  // else it would be certain of repeating each token
  return shape;
}

struct Rig {
  Rig(const TinyModel& model, FingerprintRule rule, int n_threads = 2)
      : pool(n_threads),
        file(std::move(*model.file())),
        kernels(kernels_for(available_isas().back())) {
    spec = std::move(*read_model_spec(file));
    weights = std::move(*Weights::load(file, spec, budget, pool));
    std::vector<KvLayerShape> shapes;
    for (const LayerSpec& layer : spec.layers) shapes.push_back(layer.attention);
    layout = make_kv_layout(shapes);
    decoder = std::move(*Decoder::create(spec, weights, kernels, pool, budget, kChunk));
    cache = std::move(
        *TieredCache::create(layout, budget, kernels, pool, kChunk, {}, AttentionMath::kFloat32));
    prompt = std::move(*PromptFingerprint::create(rule, spec, *decoder, kernels, pool, budget));
    last.resize(static_cast<size_t>(spec.n_vocab));
  }

  Fingerprint read(const std::vector<int32_t>& tokens, size_t chunk) {
    prompt->begin(static_cast<int64_t>(tokens.size()));
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      const size_t n = std::min(chunk, tokens.size() - at);
      const ChunkTokens outputs = prompt->wanted(static_cast<int64_t>(n));
      EXPECT_TRUE(decoder->forward({tokens.data() + at, n}, *cache, outputs).ok());
      prompt->take(static_cast<int64_t>(n), last.data());
      n_outputs = outputs.count(static_cast<int64_t>(n));
    }
    return prompt->finish();
  }

  MemoryBudget budget;
  ThreadPool pool;
  GgufFile file;
  const Kernels& kernels;
  ModelSpec spec;
  Weights weights;
  KvLayout layout;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<TieredCache> cache;
  std::unique_ptr<PromptFingerprint> prompt;
  std::vector<float> last;
  int64_t n_outputs = 0;  // of the last chunk
};

std::vector<int32_t> text(int n) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 17 + i * i) % 5000);
  return tokens;
}

double entropy(const float* logits, int64_t n) {
  double max = logits[0], sum = 0, weighted = 0;
  for (int64_t i = 1; i < n; ++i) max = std::max<double>(max, logits[i]);
  for (int64_t i = 0; i < n; ++i) {
    sum += std::exp(logits[i] - max);
    weighted += std::exp(logits[i] - max) * (logits[i] - max);
  }
  return std::log(sum) - weighted / sum;
}

// The largest, relative to the largest of `b`.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    worst = std::max<double>(worst, std::abs(a[i] - b[i]));
    largest = std::max<double>(largest, std::abs(b[i]));
  }
  return worst / largest;
}

double distance(const Fingerprint& a, const Fingerprint& b) {
  double worst = 0;
  for (int i = 0; i < kFingerprintDims; ++i) {
    worst = std::max<double>(worst, std::abs(f16_to_f32(a[i]) - f16_to_f32(b[i])));
  }
  return worst;
}

class PromptFingerprintTest : public testing::TestWithParam<const char*> {
 protected:
  const TinyModel model_{shape_of(GetParam())};
};

// Of a decoder that gives all outputs. The last layer's attention to few queries adds up in another
// order.
TEST_P(PromptFingerprintTest, EntropyEqualsTheSumRowByRow) {
  Rig rig(model_, FingerprintRule::kEntropy), all(model_, FingerprintRule::kEntropy);
  ASSERT_EQ(fingerprint_stride(rig.spec, 700), 32);
  const Fingerprint got = rig.read(text(700), kChunk);
  ASSERT_TRUE(all.decoder->forward(text(700), *all.cache).ok());
  HiddenSum sum(rig.spec.n_embd);
  std::vector<float> hidden(static_cast<size_t>(rig.spec.n_embd)), logits(5000);
  for (int64_t t = 699 % 32; t < 700; t += 32) {
    all.decoder->logits(t, 1, logits.data());
    all.decoder->hidden(t, 1, hidden.data());
    sum.add(hidden, entropy(logits.data(), 5000));
  }
  const HiddenSum* const parts[] = {&sum};
  EXPECT_LT(distance(got, make_fingerprint(parts)), 5e-4);  // a last bit of float16 below 1/2
  EXPECT_LT(difference(rig.last, logits), 1e-4);
  rig.decoder->logits(rig.n_outputs - 1, 1, logits.data());
  EXPECT_EQ(rig.last, logits);  // to the bit
}

TEST_P(PromptFingerprintTest, TailEqualsTheSumRowByRow) {
  for (const int n : {1, 5, 16, 100}) {
    Rig rig(model_, FingerprintRule::kTail), all(model_, FingerprintRule::kTail);
    const Fingerprint got = rig.read(text(n), kChunk);
    ASSERT_TRUE(all.decoder->forward(text(n), *all.cache).ok());
    HiddenSum tail(rig.spec.n_embd), last(rig.spec.n_embd);
    std::vector<float> hidden(static_cast<size_t>(rig.spec.n_embd)), logits(5000);
    for (int64_t t = std::max(0, n - 16); t < n; ++t) {
      all.decoder->hidden(t, 1, hidden.data());
      tail.add(hidden, 1);
    }
    last.add(hidden, 1);
    const HiddenSum* const parts[] = {&tail, &last};
    EXPECT_LT(distance(got, make_fingerprint(parts)), 5e-4) << n;
    all.decoder->logits(n - 1, 1, logits.data());
    EXPECT_LT(difference(rig.last, logits), 1e-4);
    rig.decoder->logits(rig.n_outputs - 1, 1, logits.data());
    EXPECT_EQ(rig.last, logits);
  }
}

// A chunk of which the fingerprint takes nothing still has an output.
TEST_P(PromptFingerprintTest, WantsOutputsOfEveryChunk) {
  Rig entropy(model_, FingerprintRule::kEntropy), tail(model_, FingerprintRule::kTail);
  entropy.prompt->begin(40);  // takes tokens 7 and 39
  EXPECT_EQ(entropy.prompt->wanted(40).first, 7);
  EXPECT_EQ(entropy.prompt->wanted(40).step, 32);
  EXPECT_EQ(entropy.prompt->wanted(5).first, 4);
  tail.prompt->begin(40);  // takes tokens 24 to 39
  EXPECT_EQ(tail.prompt->wanted(40).first, 24);
  EXPECT_EQ(tail.prompt->wanted(40).step, 1);
  EXPECT_EQ(tail.prompt->wanted(30).first, 24);
  EXPECT_EQ(tail.prompt->wanted(20).first, 19);
}

TEST_P(PromptFingerprintTest, DoesNotDependOnChunksOrThreads) {
  const std::vector<int32_t> tokens = text(700);
  const std::vector<int32_t> other(tokens.rbegin(), tokens.rend());
  for (const FingerprintRule rule : {FingerprintRule::kTail, FingerprintRule::kEntropy}) {
    const Fingerprint whole = Rig(model_, rule).read(tokens, kChunk);
    EXPECT_EQ(Rig(model_, rule, 1).read(tokens, kChunk), whole);
    EXPECT_EQ(Rig(model_, rule, 3).read(tokens, kChunk), whole);
    for (const size_t chunk : {512, 64, 37, 32}) {
      EXPECT_LT(distance(Rig(model_, rule).read(tokens, chunk), whole), 2e-3) << chunk;
    }
    EXPECT_GT(distance(Rig(model_, rule).read(other, kChunk), whole), 2e-2);  // but on the text
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, PromptFingerprintTest, testing::Values("llama", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(FingerprintStride, IsBoundedByNumberAndCost) {
  const ModelSpec cheap = Rig(TinyModel(shape_of("llama")), FingerprintRule::kTail).spec;
  EXPECT_EQ(fingerprint_stride(cheap, 1), 32);
  EXPECT_EQ(fingerprint_stride(cheap, 32 * 256), 32);
  EXPECT_EQ(fingerprint_stride(cheap, 100000), 391);
  TinyShape shape = shape_of("llama");
  shape.n_ff = 96;
  const ModelSpec dear = Rig(TinyModel(shape), FingerprintRule::kTail).spec;
  // 64 x 5000 products of the output; 4 layers of 64 x (2 x 6 x 32 + 3 x 96).
  EXPECT_EQ(fingerprint_stride(dear, 1), (100 * 64 * 5000 + 172031) / 172032);
}

TEST(EntropySum, EqualsTheDefinitionInAnySlices) {
  const Kernels& kernels = kernels_for(available_isas().back());
  for (const float spread : {0.0f, 1.0f, 12.0f}) {
    std::vector<float> logits;
    for (int i = 0; i < 5003; ++i) logits.push_back(spread * std::sin(static_cast<float>(i * i)));
    const double want = entropy(logits.data(), 5003);
    for (const size_t slice : {16, 511, 4096, 5003}) {
      EntropySum sum;
      for (size_t at = 0; at < logits.size(); at += slice) {
        sum.add({logits.data() + at, std::min(slice, logits.size() - at)}, *kernels.vector);
      }
      EXPECT_NEAR(sum.nats(), want, 1e-4) << spread << " " << slice;
    }
  }
  EntropySum sure;
  const std::vector<float> one = {-200, 300, -200};
  sure.add(one, *kernels.vector);
  EXPECT_NEAR(sure.nats(), 0, 1e-6);
}

}  // namespace
}  // namespace tierkv
