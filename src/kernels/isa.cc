#include "kernels/isa.h"

#include <string>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tierkv {
namespace {

#if defined(__x86_64__)
// Asked of the CPU itself: clang before 15 does not know this name in __builtin_cpu_supports.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::vector<Isa> detect() {
  std::vector<Isa> found = {Isa::kScalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    cpu_has_f16c() && __builtin_cpu_supports("bmi2");
  if (!avx2) return found;
  found.push_back(Isa::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni")) {
    found.push_back(Isa::kAvx512);
  }
#endif
  return found;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool cpu_multiplies_bf16() {
#if defined(__x86_64__)
  return available_isas().back() == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

std::span<const Isa> available_isas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

Result<Isa> choose_isa(std::string_view name) {
  const std::span<const Isa> isas = available_isas();
  if (name.empty()) return isas.back();
  std::string known;
  for (const Isa isa : isas) {
    if (name == isa_name(isa)) return isa;
    known += std::string(known.empty() ? "" : ", ") + isa_name(isa);
  }
  return invalid_argument("instruction set \"" + std::string(name) +
                          "\" is not available here; choose one of " + known);
}

}  // namespace tierkv
