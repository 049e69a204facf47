// Splits matrix products over the threads of a pool. Several products of the same input are one
// job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace tierkv {

struct MatmulJob {
  const PackedMatrix* w;
  float* out;  // [n_tokens, w->n_rows]
};

// What multiplies integer weights. kInt8 is how models run. kFloat32 widens the weights panel by
// panel and multiplies in float32, an order of magnitude slower: it is for measuring, since the
// rounding of activations to int8 moves the logits more than a good KV codec does
// (docs/decisions.md).
enum class Activations : uint8_t { kInt8, kFloat32 };

class MatmulRunner {
 public:
  MatmulRunner(const Kernels& kernels, ThreadPool& pool, Activations activations)
      : kernels_(kernels), pool_(pool), activations_(activations) {}

  // Memory for inputs of up to max_tokens x max_cols, given to set_memory.
  static uint64_t memory_bytes(int64_t max_tokens, int64_t max_cols, int n_threads,
                               Activations activations);
  void set_memory(std::byte* memory, int64_t max_tokens, int64_t max_cols);

  // x [n_tokens, n_cols]. prepare(row_begin, row_end) is called first for blocks of rows, on any
  // thread, and may write those rows of x: norms and activations go there, beside the quantisation.
  // `following` is the matrix that will be multiplied next, if known: a hint, which lets decoding
  // wait less for memory.
  template <typename Prepare>
  void run(const float* x, int64_t n_tokens, int64_t n_cols, std::span<const MatmulJob> jobs,
           const PackedMatrix* following, Prepare&& prepare) {
    for_rows(n_tokens, [&](int64_t begin, int64_t end) {
      prepare(begin, end);
      if (activations_ == Activations::kFloat32) return;
      kernels_.matmul->quantize(x, n_tokens, n_cols, begin, end, quantized_);
    });
    multiply(x, n_tokens, n_cols, jobs, following);
  }

  // fn(row_begin, row_end) over blocks of rows.
  template <typename Fn>
  void for_rows(int64_t n_rows, Fn&& fn) {
    const int64_t n_blocks = (n_rows + kRowBlock - 1) / kRowBlock;
    pool_.parallel_for(n_blocks, [&](int64_t block, int) {
      const int64_t begin = block * kRowBlock;
      fn(begin, begin + kRowBlock < n_rows ? begin + kRowBlock : n_rows);
    });
  }

 private:
  static constexpr int64_t kRowBlock = 8;

  void multiply(const float* x, int64_t n_tokens, int64_t n_cols, std::span<const MatmulJob> jobs,
                const PackedMatrix* following);
  void multiply_in_float(const MatmulJob& job, const MatmulInput& input, int64_t panel_begin,
                         int64_t panel_end, std::byte* scratch);

  const Kernels& kernels_;
  ThreadPool& pool_;
  const Activations activations_;
  std::byte* quantized_ = nullptr;
  std::byte* scratch_ = nullptr;
  uint64_t scratch_bytes_ = 0;  // per thread
};

}  // namespace tierkv
