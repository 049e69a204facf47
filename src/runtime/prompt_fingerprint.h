// Takes a prompt's fingerprint (plan/fingerprint.h) while it is read.
//
// kEntropy needs logits. Rows are collected over chunks and multiplied with the output matrix
// together, a slice of the vocabulary at a time: that reads the matrix seldom and takes little
// memory. The last token's logits, which are needed anyway, come with the last rows. Which tokens:
// the last, and every n-th before it. n is 32 or more, so that no more than 256 are taken, and so
// that their products with the output matrix are at most 1/100 of the prompt's products with the
// layers (SmolLM2: 32; Gemma 3 270M, with its vocabulary of 262,144: 168).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "model/decoder.h"
#include "plan/fingerprint.h"

namespace tierkv {

// Tokens between those that kEntropy takes of a prompt of n_tokens.
int64_t fingerprint_stride(const ModelSpec& spec, int64_t n_tokens);

// The entropy of a distribution from its logits, slice by slice.
class EntropySum {
 public:
  void add(std::span<const float> logits, const VectorKernels& kernels);
  double nats() const;

 private:
  // Of e^(x - max): the sum, and that of (x - max) e^(x - max).
  double max_ = 0, sum_ = 0, weighted_ = 0;
};

class PromptFingerprint {
 public:
  static uint64_t scratch_bytes(const ModelSpec& spec, FingerprintRule rule);

  // References must outlive this.
  static Result<std::unique_ptr<PromptFingerprint>> create(FingerprintRule rule,
                                                           const ModelSpec& spec, Decoder& decoder,
                                                           const Kernels& kernels, ThreadPool& pool,
                                                           MemoryBudget& budget);

  void begin(int64_t n_tokens);
  // Of the prompt's next `n` tokens, those whose outputs the decoder must give.
  ChunkTokens wanted(int64_t n) const;
  // The decoder has just read them, with these outputs. After the last of them, `last_logits`
  // [n_vocab] are the logits there.
  void take(int64_t n, float* last_logits);
  Fingerprint finish() const;

 private:
  PromptFingerprint(FingerprintRule rule, const ModelSpec& spec, Decoder& decoder,
                    const Kernels& kernels, ThreadPool& pool);
  std::span<const float> row(int64_t index) const;
  ChunkTokens taken(int64_t n) const;
  void flush(float* last_logits);

  const FingerprintRule rule_;

  const ModelSpec& spec_;
  Decoder& decoder_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  Buffer memory_;
  float* rows_ = nullptr;    // [rows, n_embd]
  float* logits_ = nullptr;  // [n_rows, slice]
  int64_t n_rows_ = 0;
  int64_t n_tokens_ = 0, stride_ = 1, done_ = 0;
  HiddenSum sum_, last_;
};

}  // namespace tierkv
