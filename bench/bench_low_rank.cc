// Decode attention over pages of the low-rank codec: the query heads of one token, one KV head
// after the other, against more pages than caches hold. Items are stored tokens of one layer;
// GFLOP/s counts what low rank adds, the rebuilding of keys (an FMA counts as two).
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/isa.h"
#include "kernels/kernels.h"

namespace tierkv {
namespace {

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;

AlignedBytes allocate_aligned(uint64_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
}

struct Shape {
  const char* name;
  int n_kv_heads, group;
  int64_t head_dim;
};

void run(benchmark::State& state, Isa isa, Shape shape, int permille, int latent_bits) {
  const LowRankKernels& kernels = *kernels_for(isa).low_rank;
  const int64_t dim = shape.head_dim;
  const std::vector<float> ones(shape.n_kv_heads * dim / 2, 1.0f);
  const std::vector<float> angles(kPageTokens * dim, 0.5f);
  LowRankLayer layer{.rank = low_rank_of(shape.n_kv_heads, dim, permille),
                     .head_dim = dim,
                     .n_kv_heads = shape.n_kv_heads,
                     .latent_bits = latent_bits,
                     .k_scale = ones.data(),
                     .offset_angles = angles.data()};
  const std::vector<uint16_t> w(layer.rank * layer.width(), 0x2000);  // 1/128
  layer.w = w.data();

  const uint64_t block_bytes = low_rank_block_bytes(layer.rank, latent_bits);
  const int64_t n_blocks = (int64_t{64} << 20) / static_cast<int64_t>(block_bytes);
  const AlignedBytes blocks = allocate_aligned(n_blocks * block_bytes);
  std::mt19937 random(2);
  for (uint64_t i = 0; i < n_blocks * block_bytes; ++i) {
    blocks.get()[i] = static_cast<std::byte>(random() & 0x3f);  // float16 below 1, small int8
  }
  const AlignedBytes scratch = allocate_aligned(low_rank_scratch_bytes(layer.rank, dim));
  std::vector<float> q(shape.group * dim, 0.01f), out(shape.group * layer.rank), max(shape.group),
      sum(shape.group);
  const std::vector<int32_t> first(shape.group, 0), last(shape.group, kPageTokens);
  const AttentionRows rows{.n_rows = shape.group,
                           .head_dim = dim,
                           .q = q.data(),
                           .first = first.data(),
                           .last = last.data(),
                           .max = max.data(),
                           .sum = sum.data(),
                           .out = out.data()};
  for (auto _ : state) {
    for (int64_t b = 0; b < n_blocks; ++b) {
      for (int head = 0; head < shape.n_kv_heads; ++head) {
        kernels.attend(layer, blocks.get() + b * block_bytes, head, angles.data(), rows,
                       scratch.get());
      }
    }
  }
  const int64_t tokens = static_cast<int64_t>(state.iterations()) * n_blocks * kPageTokens;
  state.SetItemsProcessed(tokens);
  state.counters["GFLOP/s"] =
      benchmark::Counter(static_cast<double>(tokens * layer.rank * shape.n_kv_heads * dim) * 2e-9,
                         benchmark::Counter::kIsRate);
}

void add_benchmarks(Isa isa) {
  for (const Shape shape : {Shape{"smollm2", 3, 3, 64}, Shape{"gemma3", 1, 4, 256}}) {
    for (const int permille : {250, 500, 750}) {
      for (const int bits : {16, 8}) {
        const std::string name = std::string(shape.name) + "/" + isa_name(isa) + "/rank" +
                                 std::to_string(permille / 10) + "/bits" + std::to_string(bits);
        benchmark::RegisterBenchmark(
            name.c_str(), [=](benchmark::State& state) { run(state, isa, shape, permille, bits); });
      }
    }
  }
}

}  // namespace
}  // namespace tierkv

int main(int argc, char** argv) {
  for (const tierkv::Isa isa : tierkv::available_isas()) tierkv::add_benchmarks(isa);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
