// What this machine could do at best with one instruction set and a number of threads: the roofs
// that measured speeds are held against.
#pragma once

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace tierkv {

// Per second; a multiply-add is two operations. 0: the CPU has no such instruction, or the budget
// has no room for what has to be read.
struct Roofs {
  double int8_operations = 0;
  double bf16_operations = 0;
  double f32_operations = 0;
  double read_bytes = 0;
};

// Takes about a second, and up to 512 MiB of the budget for that long: enough to be far from any
// cache. With less than some 100 MiB `read_bytes` may be a cache's.
Roofs measure_roofs(const Kernels& kernels, ThreadPool& pool, MemoryBudget& budget);

}  // namespace tierkv
