#include "runtime/roofs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/buffer.h"

namespace tierkv {
namespace {

constexpr int kRounds = 8;
constexpr double kRoundSeconds = 0.03;    // at least, at most twice that
constexpr int64_t kTaskRounds = 1 << 14;  // of the product loops: some 50 us
constexpr uint64_t kReadBytes = 512 << 20;
constexpr uint64_t kLeastReadBytes = 8 << 20;
constexpr int64_t kTaskBytes = 1 << 20;  // of the reading loop

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Units a second that `work(n)` does at best, where n says how much it shall do: a machine that
// others use as well shows what it can do only now and then.
template <typename Work>
double best_rate(Work work) {
  double best = 0;
  int64_t n = 1;
  for (int round = 0; round < kRounds;) {
    const double start = now();
    const double units = work(n);
    const double seconds = now() - start;
    if (units == 0) return 0;
    if (seconds < kRoundSeconds) {
      n *= 2;
      continue;
    }
    best = std::max(best, units / seconds);
    ++round;
  }
  return best;
}

double operations_per_second(int64_t (*products)(int64_t rounds), ThreadPool& pool) {
  return best_rate([&](int64_t n) {
    std::atomic<int64_t> done{0};
    pool.parallel_for(n * pool.size(), [&](int64_t, int) { done += products(kTaskRounds); });
    return 2.0 * static_cast<double>(done);
  });
}

// As much as may be read, written once: pages that never were are all the same zeros.
Buffer make_readable(ThreadPool& pool, MemoryBudget& budget) {
  for (uint64_t bytes = kReadBytes; bytes >= kLeastReadBytes; bytes /= 2) {
    Result<Buffer> buffer = Buffer::allocate(budget, MemoryKind::kScratch, bytes, true);
    if (!buffer.ok()) continue;
    pool.parallel_for(static_cast<int64_t>(bytes) / kTaskBytes, [&](int64_t task, int) {
      std::memset(buffer->data() + task * kTaskBytes, 1, kTaskBytes);
    });
    return std::move(*buffer);
  }
  return {};
}

double read_bytes_per_second(const RoofKernels& kernels, ThreadPool& pool, MemoryBudget& budget) {
  const Buffer buffer = make_readable(pool, budget);
  const int64_t n_tasks = static_cast<int64_t>(buffer.size()) / kTaskBytes;
  return best_rate([&](int64_t n) {
    std::atomic<uint64_t> sum{0};  // or nothing would have to be read
    pool.parallel_for(n * n_tasks, [&](int64_t task, int) {
      sum += kernels.read(buffer.data() + task % n_tasks * kTaskBytes, kTaskBytes);
    });
    return sum == 0 ? 0.0 : static_cast<double>(n) * static_cast<double>(buffer.size());
  });
}

}  // namespace

Roofs measure_roofs(const Kernels& kernels, ThreadPool& pool, MemoryBudget& budget) {
  Roofs roofs;
  roofs.int8_operations = operations_per_second(kernels.roof->int8_dot, pool);
  roofs.bf16_operations = operations_per_second(kernels.roof->bf16_dot, pool);
  roofs.f32_operations = operations_per_second(kernels.roof->f32_fma, pool);
  roofs.read_bytes = read_bytes_per_second(*kernels.roof, pool, budget);
  return roofs;
}

}  // namespace tierkv
