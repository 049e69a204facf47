// Single-thread speed of the matmul kernels, per weight type and instruction set:
//   gemm: 480 tokens (prefill), gemv: 1 token with weights larger than caches (decode).
// GOPS counts a multiply and an add per weight and token; bytes/s counts packed weights read.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "base/tensor_type.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"

namespace tierkv {
namespace {

const MatmulKernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kMatmulAvx512;
  if (isa == Isa::kAvx2) return kMatmulAvx2;
#endif
  (void)isa;
  return kMatmulScalar;
}

struct Shape {
  int64_t n_rows, n_cols, n_tokens;
};

// Memory of one product; contents don't matter to speed, as long as no scale is NaN or subnormal.
struct Problem {
  MemoryBudget budget;
  Buffer weights, x, quantized, out, scratch;

  Problem(TensorType type, Shape s)
      : weights(take(packed_matrix_bytes(type, s.n_rows, s.n_cols))),
        x(take(static_cast<uint64_t>(s.n_tokens * s.n_cols) * 4)),
        quantized(take(quantized_bytes(s.n_tokens, s.n_cols))),
        out(take(static_cast<uint64_t>(s.n_tokens * s.n_rows) * 4)),
        scratch(take(matmul_scratch_bytes(s.n_cols))) {
    std::memset(weights.data(), 0x35, weights.size());  // 0x3535 is 0.33 in float16
    std::minstd_rand random(1);
    for (float& value : x.span<float>()) value = static_cast<float>(random() % 2001) / 1000 - 1;
  }

  Buffer take(uint64_t bytes) {
    return std::move(*Buffer::allocate(budget, MemoryKind::kScratch, bytes, true));
  }
};

void run(benchmark::State& state, Isa isa, TensorType type, Shape s) {
  const MatmulKernels& kernels = kernels_of(isa);
  Problem p(type, s);
  kernels.quantize(p.x.as<float>(), s.n_tokens, s.n_cols, 0, s.n_tokens, p.quantized.data());
  const PackedMatrix w = {type, s.n_rows, s.n_cols, p.weights.data()};
  const MatmulInput in = {p.x.as<float>(), p.quantized.data(), s.n_tokens, s.n_cols};
  for (auto _ : state) {
    kernels.matmul(w, in, 0, s.n_tokens, 0, w.n_panels(), p.out.as<float>(), s.n_rows,
                   p.scratch.data(), nullptr);
    benchmark::ClobberMemory();
  }
  const double n = static_cast<double>(state.iterations());
  const double ops = 2.0 * static_cast<double>(s.n_rows * s.n_cols * s.n_tokens);
  state.counters["GOPS"] = benchmark::Counter(n * ops / 1e9, benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(n * static_cast<double>(p.weights.size()) / 1e9,
                                              benchmark::Counter::kIsRate);
}

void run_quantize(benchmark::State& state, Isa isa, Shape s) {
  Problem p(TensorType::kQ8_0, s);
  for (auto _ : state) {
    kernels_of(isa).quantize(p.x.as<float>(), s.n_tokens, s.n_cols, 0, s.n_tokens,
                             p.quantized.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * s.n_tokens * s.n_cols);
}

void register_all() {
  for (const Isa isa : available_isas()) {
    const std::string suffix = std::string("/") + isa_name(isa);
    for (const TensorTypeInfo& info : kTensorTypes) {
      const TensorType type = info.type;
      const Shape gemm = isa == Isa::kScalar ? Shape{1024, 1024, 12} : Shape{8192, 2048, 480};
      const Shape gemv = {16384, 4096, 1};
      benchmark::RegisterBenchmark((std::string("gemm/") + info.name + suffix).c_str(),
                                   [=](benchmark::State& state) { run(state, isa, type, gemm); });
      benchmark::RegisterBenchmark((std::string("gemv/") + info.name + suffix).c_str(),
                                   [=](benchmark::State& state) { run(state, isa, type, gemv); });
    }
    benchmark::RegisterBenchmark(("quantize" + suffix).c_str(), [=](benchmark::State& state) {
      run_quantize(state, isa, {16, 2048, 480});
    });
  }
}

}  // namespace
}  // namespace tierkv

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tierkv::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
