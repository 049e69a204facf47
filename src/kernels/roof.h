// The most that an instruction set can do ("roofs"): loops of independent products in registers,
// and of loads. They are timed in runtime/roofs.h; what a model reaches is judged by them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tierkv {

// Above this many rounds a float32 accumulator could no longer count.
inline constexpr int64_t kMaxRoofRounds = 1 << 22;
inline constexpr int64_t kRoofReadUnit = 256;  // bytes

struct RoofKernels {
  // `rounds` rounds of multiply-adds of ones. The answer is how many multiply-adds that was, as the
  // accumulators counted them; 0 where the CPU has no such instruction.
  int64_t (*int8_dot)(int64_t rounds);
  int64_t (*bf16_dot)(int64_t rounds);
  int64_t (*f32_fma)(int64_t rounds);
  // The sum of all 64-bit words, read in four streams. n_bytes is a multiple of kRoofReadUnit,
  // `data` 8-byte aligned.
  uint64_t (*read)(const std::byte* data, int64_t n_bytes);
};

extern const RoofKernels kRoofScalar;  // one lane: a compiler's own vectors can do better
#if defined(__x86_64__)
extern const RoofKernels kRoofAvx2;
extern const RoofKernels kRoofAvx512;
#endif

}  // namespace tierkv
