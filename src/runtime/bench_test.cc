// The counts against figures worked out by hand.
#include "runtime/bench.h"

#include <gtest/gtest.h>

#include "runtime/roofs.h"

namespace tierkv {
namespace {

// Of a layer: q 4 x 4, k and v 2 x 4: 32 products a token; output 4 x 4, gate, up and down 8 x 4:
// 112. Attention: 2 heads of 2, K and V: 8 products a key. Output: 10 x 4.
ModelSpec tiny_spec(std::vector<int64_t> windows) {
  ModelSpec spec;
  spec.n_embd = 4;
  spec.n_vocab = 10;
  for (const int64_t window : windows) {
    LayerSpec layer;
    layer.n_ff = 8;
    layer.attention.n_heads = 2;
    layer.attention.n_kv_heads = 1;
    layer.attention.head_dim = 2;
    layer.attention.window = window;
    spec.layers.push_back(layer);
  }
  return spec;
}

TEST(Bench, OperationsOfAPrompt) {
  // Alone, a layer is the last one: 32 of its products for each token, 112 for the last.
  const ModelSpec one = tiny_spec({0});
  EXPECT_EQ(prompt_operations(one, 0, 1), 2 * (144 + 8 * 1 + 40));
  EXPECT_EQ(prompt_operations(one, 0, 3), 2 * (3 * 32 + 112 + 8 * 3 + 40));
  EXPECT_EQ(prompt_operations(one, 2, 3), 2 * (3 * 32 + 112 + 8 * 5 + 40));
  const ModelSpec window = tiny_spec({2});
  EXPECT_EQ(prompt_operations(window, 1000, 3), 2 * (3 * 32 + 112 + 8 * 2 + 40));
  const ModelSpec both = tiny_spec({0, 2});
  EXPECT_EQ(prompt_operations(both, 2, 1), 2 * (2 * 144 + 8 * (3 + 2) + 40));
  const ModelSpec window_first = tiny_spec({2, 0});
  EXPECT_EQ(prompt_operations(window_first, 0, 3),
            2 * (3 * 144 + 8 * (1 + 2 + 2) + 3 * 32 + 112 + 8 * 3 + 40));
  EXPECT_EQ(prompt_operations(window_first, 1000, 3),
            2 * (3 * 144 + 8 * (2 + 2 + 2) + 3 * 32 + 112 + 8 * 1003 + 40));
}

PackedMatrix f32_matrix(int64_t n_rows, int64_t n_cols) {
  return {TensorType::kF32, n_rows, n_cols, nullptr};
}

TEST(Bench, WeightBytesOfAToken) {
  Weights weights;
  weights.token_embd = f32_matrix(64, 32);  // not counted unless it is the output
  weights.output = f32_matrix(32, 32);
  LayerWeights layer;
  layer.attn_q = layer.attn_output = f32_matrix(32, 32);
  layer.attn_k = layer.attn_v = f32_matrix(16, 32);
  layer.ffn_gate = layer.ffn_up = f32_matrix(48, 32);
  layer.ffn_down = f32_matrix(32, 48);
  weights.layers = {layer, layer};
  // Whole panels of 16 rows, four bytes a number, nothing beside.
  const uint64_t of_layer = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32;
  EXPECT_EQ(weight_bytes_per_token(weights), 4 * (32 * 32 + 2 * of_layer));
}

TEST(Bench, KvBytesOfAToken) {
  KvLayerShape full;
  full.n_heads = full.n_kv_heads = 2;
  full.head_dim = 64;
  KvLayerShape window = full;
  window.n_kv_heads = 1;
  window.window = 100;
  const KvLayout layout = make_kv_layout({full, window, full});
  const double full_token = 2 * (2 * 2 * 64 * 2);  // layers (K and V, heads, head_dim, float16)
  const double window_token = 2 * 1 * 64 * 2;
  TierReport tiers;
  EXPECT_EQ(kv_bytes_per_token(layout, tiers, 0), 0);
  tiers.n_exact = 90;
  EXPECT_EQ(kv_bytes_per_token(layout, tiers, 90), 90 * (full_token + window_token));
  tiers.n_compressed = 640;
  tiers.n_offloaded = 1280;
  tiers.bits_per_element = 4;
  EXPECT_EQ(kv_bytes_per_token(layout, tiers, 2010),
            (90 + 640 / 4 + 1280) * full_token + 100 * window_token);
}

TEST(Bench, MeanAndDeviation) {
  EXPECT_EQ(mean_and_deviation({3}).mean, 3);
  EXPECT_EQ(mean_and_deviation({3}).deviation, 0);
  const MeanAndDeviation of_three = mean_and_deviation({2, 4, 6});
  EXPECT_DOUBLE_EQ(of_three.mean, 4);
  EXPECT_DOUBLE_EQ(of_three.deviation, 2);  // (4 + 0 + 4) / (3 - 1), its root
}

TEST(Bench, NamesAreThoseOfLlamaBench) {
  EXPECT_EQ((BenchTest{512, 0, 0}.name()), "pp512");
  EXPECT_EQ((BenchTest{0, 128, 0}.name()), "tg128");
  EXPECT_EQ((BenchTest{512, 0, 4096}.name()), "pp512 @ d4096");
  EXPECT_EQ((BenchTest{0, 32, 16384}.name()), "tg32 @ d16384");
}

TEST(Roofs, KeepWithinTheBudget) {
  const Kernels& kernels = kernels_for(available_isas().back());
  ThreadPool pool(1);
  MemoryBudget budget(20 << 20);
  const Roofs roofs = measure_roofs(kernels, pool, budget);
  EXPECT_GT(roofs.int8_operations, 0);
  EXPECT_GT(roofs.f32_operations, 0);
  EXPECT_EQ(roofs.bf16_operations > 0, kernels.roof->bf16_dot(1) > 0);
  EXPECT_GT(roofs.read_bytes, 0);
  EXPECT_EQ(budget.used(), 0u);
  MemoryBudget none(1 << 20);
  EXPECT_EQ(measure_roofs(kernels, pool, none).read_bytes, 0);
}

}  // namespace
}  // namespace tierkv
