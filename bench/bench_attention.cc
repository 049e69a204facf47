// Attention over exact pages. Prefill: all the rows of a chunk against pages that stay in cache, as
// GFLOP/s (an FMA counts as two; softmax not counted). Decode: the few query heads of one token
// against more KV than caches hold, as bytes of KV per second.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/attention.h"
#include "kernels/isa.h"

namespace tierkv {
namespace {

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;

AlignedBytes allocate_aligned(uint64_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
}

const AttentionKernels& attention_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return kAttentionAvx2;
  if (isa == Isa::kAvx512) return kAttentionAvx512;
#endif
  (void)isa;
  return kAttentionScalar;
}

// Query rows that see whole pages, and their states.
struct Queries {
  Queries(int n_rows, int64_t head_dim)
      : q(n_rows * head_dim),
        out(n_rows * head_dim),
        max(n_rows),
        sum(n_rows),
        first(n_rows, 0),
        last(n_rows, kPageTokens) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& x : q) x = normal(random) * 0.1f;
    rows = {n_rows, head_dim,   q.data(),   first.data(), last.data(),
            0.0f,   max.data(), sum.data(), out.data()};
  }

  std::vector<float> q, out, max, sum;
  std::vector<int32_t> first, last;
  AttentionRows rows;
};

AlignedBytes make_blocks(int64_t n_blocks, int64_t head_dim) {
  const int64_t elements = exact_block_elements(head_dim);
  AlignedBytes bytes = allocate_aligned(n_blocks * exact_block_bytes(head_dim));
  uint16_t* half = reinterpret_cast<uint16_t*>(bytes.get());
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < elements; ++i) half[i] = f32_to_f16(normal(random));
  for (int64_t b = 1; b < n_blocks; ++b) std::memcpy(half + b * elements, half, elements * 2);
  return bytes;
}

void run(benchmark::State& state, Isa isa, int n_rows, int64_t head_dim, int64_t n_blocks) {
  const AttentionKernels& attention = attention_for(isa);
  Queries queries(n_rows, head_dim);
  const AlignedBytes blocks = make_blocks(n_blocks, head_dim);
  const AlignedBytes scratch = allocate_aligned(attention_scratch_bytes(head_dim));
  const uint16_t* half = reinterpret_cast<const uint16_t*>(blocks.get());
  attention.init(queries.rows);
  for (auto _ : state) {
    for (int64_t b = 0; b < n_blocks; ++b) {
      queries.rows.next_block = half + (b + 1) % n_blocks * exact_block_elements(head_dim);
      attention.attend_exact(half + b * exact_block_elements(head_dim), queries.rows,
                             scratch.get());
    }
  }
  const double passes = static_cast<double>(state.iterations() * n_blocks);
  const auto rate = benchmark::Counter::kIsRate;
  state.counters["GFLOP/s"] =
      benchmark::Counter(passes * n_rows * kPageTokens * head_dim * 4e-9, rate);
  state.counters["GB/s"] = benchmark::Counter(passes * exact_block_bytes(head_dim) * 1e-9, rate);
}

void add_benchmarks(Isa isa) {
  constexpr int64_t kDecodeBytes = int64_t{128} << 20;
  for (const int64_t dim : {64, 128, 256}) {
    const std::string suffix =
        std::string("/") + isa_name(isa) + "/d" + std::to_string(dim) + "/rows";
    for (const int rows : {64, 192}) {
      benchmark::RegisterBenchmark(("prefill" + suffix + std::to_string(rows)).c_str(),
                                   [=](benchmark::State& state) { run(state, isa, rows, dim, 8); });
    }
    for (const int rows : {1, 3, 4, 8}) {
      benchmark::RegisterBenchmark(
          ("decode" + suffix + std::to_string(rows)).c_str(), [=](benchmark::State& state) {
            run(state, isa, rows, dim, kDecodeBytes / exact_block_bytes(dim));
          });
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
