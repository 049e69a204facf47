#include "model/matmul_runner.h"

#include <algorithm>

namespace tierkv {
namespace {

// Weight bytes of one task: small enough to share evenly, large enough to be worth taking.
constexpr uint64_t kTaskBytes = 48 << 10;
constexpr int64_t kMaxJobs = 4;

uint64_t align64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// Panels of one task: an even number, since tiles pair panels up.
int64_t panels_per_task(const PackedMatrix& w, int64_t n_tokens) {
  if (n_tokens > 16) return 2;
  const int64_t by_bytes = kTaskBytes / packed_panel_bytes(w.type, w.n_cols);
  return std::max<int64_t>(2, by_bytes / 2 * 2);
}

}  // namespace

uint64_t MatmulRunner::memory_bytes(int64_t max_tokens, int64_t max_cols, int n_threads) {
  return align64(quantized_bytes(max_tokens, max_cols)) +
         align64(matmul_scratch_bytes(max_cols)) * n_threads;
}

void MatmulRunner::set_memory(std::byte* memory, int64_t max_tokens, int64_t max_cols) {
  quantized_ = memory;
  scratch_ = memory + align64(quantized_bytes(max_tokens, max_cols));
  scratch_bytes_ = align64(matmul_scratch_bytes(max_cols));
}

void MatmulRunner::multiply(const float* x, int64_t n_tokens, int64_t n_cols,
                            std::span<const MatmulJob> jobs) {
  const MatmulInput input = {x, quantized_, n_tokens, n_cols};
  int64_t first_task[kMaxJobs + 1] = {0};
  int64_t panels[kMaxJobs];
  const int64_t n_jobs = static_cast<int64_t>(jobs.size());
  for (int64_t i = 0; i < n_jobs; ++i) {
    panels[i] = panels_per_task(*jobs[i].w, n_tokens);
    first_task[i + 1] = first_task[i] + (jobs[i].w->n_panels() + panels[i] - 1) / panels[i];
  }
  pool_.parallel_for(first_task[n_jobs], [&](int64_t task, int thread) {
    int64_t i = 0;
    while (task >= first_task[i + 1]) ++i;
    const int64_t begin = (task - first_task[i]) * panels[i];
    const int64_t end = std::min(begin + panels[i], jobs[i].w->n_panels());
    kernels_.matmul->matmul(*jobs[i].w, input, 0, n_tokens, begin, end, jobs[i].out,
                            jobs[i].w->n_rows, scratch_ + thread * scratch_bytes_);
  });
}

}  // namespace tierkv
