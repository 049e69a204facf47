#include "model/matmul_runner.h"

#include <algorithm>

#include "base/carve.h"

namespace tierkv {
namespace {

// Weight bytes of one task: small enough to share evenly, large enough to be worth taking.
constexpr uint64_t kTaskBytes = 96 << 10;
constexpr int64_t kMaxJobs = 4;
constexpr int64_t kWidenedPanels = 2;  // widened to float32 at once: the most that a tile takes

// Panels of one task. Kernels stream four panels at once for few tokens and pair them up for many;
// other numbers give the same bits and repeat some work.
int64_t panels_per_task(const PackedMatrix& w, int64_t n_tokens) {
  if (n_tokens > 16) return 2;
  const int64_t by_bytes = static_cast<int64_t>(kTaskBytes / packed_panel_bytes(w.type, w.n_cols));
  return std::max<int64_t>(4, by_bytes / 4 * 4);
}

// Scratch of one thread: the kernel's, and for kFloat32 panels widened row by row, then packed.
uint64_t thread_bytes(int64_t max_cols, Activations activations) {
  const uint64_t kernel = align64(matmul_scratch_bytes(max_cols));
  if (activations == Activations::kInt8) return kernel;
  return kernel + align64(kPanelRows * max_cols * sizeof(float)) +
         align64(kWidenedPanels * packed_panel_bytes(TensorType::kF32, max_cols));
}

}  // namespace

uint64_t MatmulRunner::memory_bytes(int64_t max_tokens, int64_t max_cols, int n_threads,
                                    Activations activations) {
  return align64(quantized_bytes(max_tokens, max_cols)) +
         thread_bytes(max_cols, activations) * n_threads;
}

void MatmulRunner::set_memory(std::byte* memory, int64_t max_tokens, int64_t max_cols) {
  quantized_ = memory;
  scratch_ = memory + align64(quantized_bytes(max_tokens, max_cols));
  scratch_bytes_ = thread_bytes(max_cols, activations_);
}

void MatmulRunner::multiply(const float* x, int64_t n_tokens, int64_t n_cols,
                            std::span<const MatmulJob> jobs, const PackedMatrix* following) {
  const MatmulInput input = {x, quantized_, n_tokens, n_cols};
  int64_t first_task[kMaxJobs + 1] = {0};
  int64_t panels[kMaxJobs];
  const int64_t n_jobs = static_cast<int64_t>(jobs.size());
  for (int64_t i = 0; i < n_jobs; ++i) {
    panels[i] = panels_per_task(*jobs[i].w, n_tokens);
    first_task[i + 1] = first_task[i] + (jobs[i].w->n_panels() + panels[i] - 1) / panels[i];
  }
  struct Part {
    int64_t job, panel;
  };
  const auto part_of = [&](int64_t task) -> Part {
    int64_t i = 0;
    while (task >= first_task[i + 1]) ++i;
    return {i, (task - first_task[i]) * panels[i]};
  };
  const auto panel_address = [](const PackedMatrix& w, int64_t panel) {
    return w.data + std::min(panel, w.n_panels() - 1) * packed_panel_bytes(w.type, w.n_cols);
  };
  // Where a task begins; of those after the last, in the matrix that follows.
  const auto address = [&](int64_t task) -> const std::byte* {
    const int64_t beyond = task - first_task[n_jobs];
    if (beyond >= 0) {
      if (following == nullptr) return nullptr;
      return panel_address(*following, beyond * panels_per_task(*following, n_tokens));
    }
    const Part part = part_of(task);
    return panel_address(*jobs[part.job].w, part.panel);
  };
  pool_.parallel_for(first_task[n_jobs], [&](int64_t task, int thread) {
    const auto [i, begin] = part_of(task);
    const int64_t end = std::min(begin + panels[i], jobs[i].w->n_panels());
    std::byte* scratch = scratch_ + thread * scratch_bytes_;
    if (activations_ == Activations::kFloat32 && uses_quantized_input(jobs[i].w->type)) {
      multiply_in_float(jobs[i], input, begin, end, scratch);
      return;
    }
    kernels_.matmul->matmul(*jobs[i].w, input, 0, n_tokens, begin, end, jobs[i].out,
                            jobs[i].w->n_rows, scratch, address(task + pool_.size()));
  });
}

// A few panels at a time become a float32 matrix of their own.
void MatmulRunner::multiply_in_float(const MatmulJob& job, const MatmulInput& input,
                                     int64_t panel_begin, int64_t panel_end, std::byte* scratch) {
  const int64_t n_cols = job.w->n_cols;
  float* rows = reinterpret_cast<float*>(scratch + align64(matmul_scratch_bytes(n_cols)));
  std::byte* widened =
      reinterpret_cast<std::byte*>(rows) + align64(kPanelRows * n_cols * sizeof(float));
  for (int64_t first = panel_begin; first < panel_end; first += kWidenedPanels) {
    const int64_t row = first * kPanelRows;
    const int64_t end = std::min(first + kWidenedPanels, panel_end);
    for (int64_t panel = first; panel < end; ++panel) {
      const int64_t begin_row = panel * kPanelRows;
      const int64_t n_rows = std::min<int64_t>(kPanelRows, job.w->n_rows - begin_row);
      for (int64_t i = 0; i < n_rows; ++i) unpack_row(*job.w, begin_row + i, rows + i * n_cols);
      pack_panel(TensorType::kF32, reinterpret_cast<const std::byte*>(rows), n_rows, n_cols,
                 widened + (panel - first) * packed_panel_bytes(TensorType::kF32, n_cols));
    }
    const int64_t n_rows = std::min(end * kPanelRows, job.w->n_rows) - row;
    const PackedMatrix matrix = {TensorType::kF32, n_rows, n_cols, widened};
    kernels_.matmul->matmul(matrix, input, 0, input.n_tokens, 0, end - first, job.out + row,
                            job.w->n_rows, scratch, nullptr);
  }
}

}  // namespace tierkv
