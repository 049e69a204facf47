// Which instruction sets this machine and build can run, and the one in force.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"

namespace tierkv {

enum class Isa { kScalar, kAvx2, kAvx512 };  // kAvx512: F, BW, VL, DQ, VBMI and VNNI

const char* isa_name(Isa isa);  // "scalar", "avx2", "avx512": also the values of TIERKV_ISA

// Beyond kAvx512: AVX512_BF16.
bool cpu_multiplies_bf16();

// Those that run here, worst first; kScalar is always there. By CPUID, and by what was built.
std::span<const Isa> available_isas();

// The best available one, or the one `name` asks for when it is not empty. An unknown name, or one
// this machine lacks, is an error that lists what there is.
Result<Isa> choose_isa(std::string_view name);

}  // namespace tierkv
