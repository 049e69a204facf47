// Byte counts as people write them: 300M, 1.5G, 64KiB. Suffixes are powers of 1024, as in llama.cpp
// and cgroups; K, KB and KiB mean the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tierkv {

// "300M", "1.5G", "2GiB", "4096" -> bytes. Refuses negatives, overflow, nonsense and zero.
Result<uint64_t> parse_size(std::string_view text);

// 1234567 -> "1.2 MiB": for people.
std::string format_size(uint64_t bytes);

// The least whole number of MiB that covers `bytes`, as parse_size reads it: "118M".
std::string format_size_argument(uint64_t bytes);

}  // namespace tierkv
