// What the operating system says of this process.
#pragma once

#include <cstdint>

namespace tierkv {

uint64_t resident_bytes();       // RSS now, 0 where unknown
uint64_t peak_resident_bytes();  // the largest RSS so far (VmHWM), 0 where unknown

}  // namespace tierkv
