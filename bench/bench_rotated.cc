// Speed of the rotated codec: attention over 16K tokens of one KV head at a time, decode-shaped (a
// few query rows), one thread, over enough heads that the blocks come from memory; and encoding.
//   bench_rotated --benchmark_filter=K4V4
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/isa.h"
#include "kernels/rotated.h"

namespace tierkv {
namespace {

constexpr int64_t kTokens = 16384;
constexpr int64_t kPages = kTokens / kPageTokens;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;
Bytes make_bytes(uint64_t n) {
  n = (n + 4095) / 4096 * 4096;
  Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(4096, n)));
  std::memset(bytes.get(), 0, n);
  return bytes;
}

const RotatedKernels& kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kRotatedAvx512;
  if (isa == Isa::kAvx2) return kRotatedAvx2;
#endif
  return kRotatedScalar;
}

std::vector<uint16_t> random_halves(int64_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> halves(static_cast<size_t>(n));
  for (uint16_t& h : halves) h = f32_to_f16(normal(random));
  return halves;
}

// `n_blocks` blocks, a few different ones over and over.
Bytes make_blocks(const RotatedKernels& k, RotatedFormat format, int64_t head_dim,
                  int64_t n_blocks) {
  const uint64_t block = rotated_block_bytes(format, head_dim);
  Bytes blocks = make_bytes(block * static_cast<uint64_t>(n_blocks));
  Bytes scratch = make_bytes(rotated_scratch_bytes(head_dim));
  constexpr int64_t kDifferent = 16;
  const std::vector<uint16_t> exact = random_halves(kDifferent * exact_block_elements(head_dim));
  for (int64_t i = 0; i < n_blocks; ++i) {
    std::byte* to = blocks.get() + static_cast<uint64_t>(i) * block;
    if (i >= kDifferent) {
      std::memcpy(to, to - kDifferent * static_cast<int64_t>(block), block);
    } else {
      k.encode(format, exact.data() + i * exact_block_elements(head_dim), kPageTokens, head_dim,
               nullptr, to, scratch.get());
    }
  }
  return blocks;
}

struct Rows {
  std::vector<float> q, max, sum, out, scale;
  std::vector<int32_t> first, last, code_sum;
  Bytes codes;
  AttentionRows rows;
  RotatedQuery query;

  Rows(int n, int64_t head_dim)
      : q(n * head_dim),
        max(n, kNoScore),
        sum(n),
        out(n * head_dim),
        scale(n),
        first(n, 0),
        last(n, kPageTokens),
        code_sum(n),
        codes(make_bytes(n * head_dim)) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0, 0.35f);
    for (float& x : q) x = normal(random);
    rows = {.n_rows = n,
            .head_dim = head_dim,
            .q = q.data(),
            .first = first.data(),
            .last = last.data(),
            .max = max.data(),
            .sum = sum.data(),
            .out = out.data()};
    query = {reinterpret_cast<int8_t*>(codes.get()), scale.data(), code_sum.data()};
  }
};

void attend(benchmark::State& state, Isa isa, RotatedFormat format, int64_t head_dim, int n_rows) {
  const RotatedKernels& k = kernels(isa);
  const uint64_t block = rotated_block_bytes(format, head_dim);
  const int64_t heads = 128 * 64 / head_dim;  // 140 MB at 4 bits
  const Bytes blocks = make_blocks(k, format, head_dim, heads * kPages + kBlocksAhead);
  Bytes scratch = make_bytes(rotated_scratch_bytes(head_dim));
  Rows r(n_rows, head_dim);
  k.prepare(r.rows, nullptr, r.query, scratch.get());
  for (auto _ : state) {
    const std::byte* at = blocks.get();
    for (int64_t i = 0; i < heads * kPages; i += kMaxRun, at += kMaxRun * block) {
      RotatedRun run{.n = kMaxRun};
      for (int b = 0; b < kMaxRun + kBlocksAhead; ++b) run.blocks[b] = at + b * block;
      k.attend(format, run, r.rows, r.query);
    }
  }
  state.SetBytesProcessed(state.iterations() * heads * kPages * static_cast<int64_t>(block));
  state.counters["per_head"] =
      benchmark::Counter(static_cast<double>(state.iterations() * heads),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void encode(benchmark::State& state, Isa isa, RotatedFormat format, int64_t head_dim) {
  const RotatedKernels& k = kernels(isa);
  const std::vector<uint16_t> exact = random_halves(exact_block_elements(head_dim));
  Bytes block = make_bytes(rotated_block_bytes(format, head_dim));
  Bytes scratch = make_bytes(rotated_scratch_bytes(head_dim));
  for (auto _ : state) {
    k.encode(format, exact.data(), kPageTokens, head_dim, nullptr, block.get(), scratch.get());
  }
}

void prepare(benchmark::State& state, Isa isa, int64_t head_dim, int n_rows) {
  const RotatedKernels& k = kernels(isa);
  Bytes scratch = make_bytes(rotated_scratch_bytes(head_dim));
  Rows r(n_rows, head_dim);
  for (auto _ : state) k.prepare(r.rows, nullptr, r.query, scratch.get());
}

void add_benchmarks(Isa isa) {
  const std::string suffix = std::string("/") + isa_name(isa);
  for (const RotatedFormat f : {RotatedFormat{4, 4}, {5, 4}, {4, 3}, {3, 2}, {6, 4}, {8, 8}}) {
    std::string name = "K";
    name.append(std::to_string(f.k_bits)).append("V").append(std::to_string(f.v_bits));
    for (const int rows : {1, 3, 4, 8}) {
      benchmark::RegisterBenchmark(
          ("attend/" + name + "/d64/rows" + std::to_string(rows) + suffix).c_str(), attend, isa, f,
          64, rows)
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(("attend/" + name + "/d256/rows4" + suffix).c_str(), attend, isa,
                                 f, 256, 4)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("encode/" + name + "/d64" + suffix).c_str(), encode, isa, f, 64)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark(("prepare/d64/rows4" + suffix).c_str(), prepare, isa, 64, 4);
}

}  // namespace
}  // namespace tierkv

int main(int argc, char** argv) {
  for (const tierkv::Isa isa : tierkv::available_isas()) tierkv::add_benchmarks(isa);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
