// What the operating system says of this process.
#pragma once

#include <cstdint>
#include <string>

namespace tierkv {

uint64_t resident_bytes();       // RSS now, 0 where unknown
uint64_t peak_resident_bytes();  // the largest RSS so far (VmHWM), 0 where unknown

// Makes the RSS of now the largest so far. False, and nothing changes, where the system can't.
bool reset_peak_resident_bytes();

// Of the program's file: its size and when it was made, which change with every build.
std::string program_build();

}  // namespace tierkv
