// Tier-2's file: exact KV pages of all layers in extents, each one unit of I/O with its own
// checksum. The interface is asynchronous: start_* returns at once, wait() gives the outcome. One
// region per layer in a sparse file; extent e of layer l lies at region(l) + e * stride. Layout:
// docs/formats.md.
//
// A buffer given to start_* has extent_buffer_bytes(payload_bytes) bytes, 4096-aligned: one block
// for the extent's header, which the store writes and checks, then the payload. It must stay
// untouched until wait() returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tierkv {

inline constexpr uint64_t kFlashBlock = 4096;

constexpr uint64_t extent_buffer_bytes(uint64_t payload_bytes) {
  return kFlashBlock + (payload_bytes + kFlashBlock - 1) / kFlashBlock * kFlashBlock;
}

struct FlashLayout {
  uint64_t model_hash = 0;
  std::vector<uint64_t> payload_bytes;  // of one extent, per layer; 0: the layer is never offloaded
  int64_t max_extents = 0;              // per layer
};

struct FlashStats {
  uint64_t bytes_written = 0, bytes_read = 0;
  int64_t reads = 0, writes = 0;
  int64_t hits = 0;          // wait() found the read already there
  double stall_seconds = 0;  // time spent in wait() for reads
};

class FlashStore {
 public:
  using Ticket = uint64_t;

  virtual ~FlashStore() = default;  // waits for all that is in flight

  // Creates the file in `directory` (FileSystem::create_scratch) and starts the I/O threads.
  static Result<std::unique_ptr<FlashStore>> create(FileSystem& file_system,
                                                    const std::string& directory,
                                                    const FlashLayout& layout,
                                                    int n_io_threads = 2);

  virtual Ticket start_write(int layer, int64_t extent, std::span<std::byte> buffer) = 0;
  virtual Ticket start_read(int layer, int64_t extent, std::span<std::byte> buffer) = 0;

  // Requests are carried out in any order, so one that touches an extent whose write (or, for a
  // write, whose read) was not yet waited for is refused: kInternal, whatever the timing.
  //
  // Every ticket is waited for exactly once; any other is kInternal. A read whose checksum,
  // position or model does not match is kCorrupt and names layer and extent.
  virtual Status wait(Ticket ticket) = 0;
  virtual bool done(Ticket ticket) const = 0;

  virtual FlashStats stats() const = 0;
};

// CRC-32C (Castagnoli) of `data`, continuing from `crc` (0 at the start).
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace tierkv
