// The two ways to compute CRC-32C (reflected polynomial 0x82f63b78), side by side so that tests can
// hold one to the other. Everyone else calls crc32c() of kv/flash_store.h, which picks the CPU's
// instruction where there is one. Both take and return the finished (inverted) checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tierkv {

uint32_t crc32c_table(std::span<const std::byte> data, uint32_t crc);

// Whether this CPU has the instruction; without it crc32c_instruction must not be called.
bool crc32c_has_instruction();
uint32_t crc32c_instruction(std::span<const std::byte> data, uint32_t crc);

}  // namespace tierkv
