// Elementwise and row operations of the decoder. All in float32.
#pragma once

#include <cstdint>

namespace tierkv {

// How rotary embedding pairs the dimensions of a head.
enum class RopePairing : uint8_t {
  kAdjacent,  // (2i, 2i+1): llama
  kHalves,    // (i, i + d/2): gemma, qwen
};

struct VectorKernels {
  // out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; weight may be null (all ones). out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  // out[i] = silu(gate[i]) * up[i], silu(z) = z / (1 + exp(-z)). out may be either input.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // out[i] = gelu(gate[i]) * up[i], gelu(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))).
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);  // out may be a or b
  void (*scale)(const float* a, float factor, int64_t n, float* out);  // out may be a
  // Rotates one head [head_dim] in place by the angles whose cosines and sines are given
  // [head_dim/2].
  void (*rope)(float* head, const float* cosines, const float* sines, int64_t head_dim,
               RopePairing pairing);
  float (*max)(const float* x, int64_t n);
  int64_t (*argmax)(const float* x, int64_t n);  // first of equal ones
  // sum(exp(x[i] - shift)), and out[i] = exp(x[i] - shift) unless out is null.
  double (*exp_sum)(const float* x, float shift, int64_t n, float* out);
  // Of each column of x [n_rows, n_cols]: the sum, and that of squares. In float32: for some
  // hundred rows.
  void (*column_sums)(const float* x, int64_t n_rows, int64_t n_cols, float* sums, float* squares);
  // IEEE half conversion, round to nearest even.
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);
  void (*from_f16)(const uint16_t* x, int64_t n, float* out);
};

extern const VectorKernels kVectorScalar;
#if defined(__x86_64__)
extern const VectorKernels kVectorAvx2;
extern const VectorKernels kVectorAvx512;
#endif

}  // namespace tierkv
