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
#include "base/trace.h"

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
  uint64_t bytes_written = 0, bytes_read = 0;  // that arrived
  int64_t reads = 0, writes = 0;               // that the disk has answered
  int64_t asked = 0;                           // reads that were waited for
  int64_t hits = 0;                            // of these, asked for ahead and there already
  double stall_seconds = 0;                    // spent in wait() for reads
  // Of selective reading (kv/selective_read.h): extents that were judged, and those left alone.
  int64_t judged = 0, skipped = 0;

  double hit_rate() const { return asked == 0 ? 0 : static_cast<double>(hits) / asked; }
};

inline FlashStats& operator+=(FlashStats& a, const FlashStats& b) {
  a.bytes_written += b.bytes_written;
  a.bytes_read += b.bytes_read;
  a.reads += b.reads;
  a.writes += b.writes;
  a.asked += b.asked;
  a.hits += b.hits;
  a.stall_seconds += b.stall_seconds;
  a.judged += b.judged;
  a.skipped += b.skipped;
  return a;
}
// What came between two moments.
inline FlashStats operator-(const FlashStats& now, const FlashStats& before) {
  return {now.bytes_written - before.bytes_written,
          now.bytes_read - before.bytes_read,
          now.reads - before.reads,
          now.writes - before.writes,
          now.asked - before.asked,
          now.hits - before.hits,
          now.stall_seconds - before.stall_seconds,
          now.judged - before.judged,
          now.skipped - before.skipped};
}

// How requests reach the disk: io_uring, or a pool of threads that block. kAuto: io_uring where the
// kernel allows it, else the pool.
enum class FlashBackend : uint8_t { kAuto, kUring, kPool };
const char* flash_backend_name(FlashBackend backend);  // "auto", "uring", "pool"

struct FlashStoreOptions {
  FlashBackend backend = FlashBackend::kAuto;
  int queue_depth = 4;     // most requests that the disk is given at once
  Trace* trace = nullptr;  // where reads and writes are noted, if not null
};

// kLater: read ahead. kNow: somebody waits for it, so it is no hit, however fast it comes.
enum class ReadNeed : uint8_t { kLater, kNow };

class FlashStore {
 public:
  using Ticket = uint64_t;

  virtual ~FlashStore() = default;  // waits for all that is in flight

  // A scratch file in `directory` (FileSystem::create_scratch), gone with the store.
  static Result<std::unique_ptr<FlashStore>> create(FileSystem& file_system,
                                                    const std::string& directory,
                                                    const FlashLayout& layout,
                                                    const FlashStoreOptions& options = {});
  // A store in `file`, whose header is written anew: what lay in it is lost.
  static Result<std::unique_ptr<FlashStore>> create(std::unique_ptr<File> file,
                                                    const FlashLayout& layout,
                                                    const FlashStoreOptions& options = {});
  // The store that `file` holds already. Its header must be that of `layout`: kCorrupt or
  // kUnsupported when it can't be understood, kInvalidArgument naming what differs. Which extents
  // have been written is for the caller to know; one that was not is kCorrupt when it is read.
  static Result<std::unique_ptr<FlashStore>> open(std::unique_ptr<File> file,
                                                  const FlashLayout& layout,
                                                  const FlashStoreOptions& options = {});
  // The layout in a file's header, for callers who do not know it.
  static Result<FlashLayout> read_layout(File& file);

  virtual Ticket start_write(int layer, int64_t extent, std::span<std::byte> buffer) = 0;
  virtual Ticket start_read(int layer, int64_t extent, std::span<std::byte> buffer,
                            ReadNeed need = ReadNeed::kLater) = 0;

  // The memory that requests will use, if it is known: the kernel then maps it once and not for
  // each of them. At most once, before any start_*; the memory must outlive the store.
  virtual void register_buffers(std::span<const std::span<std::byte>>) {}

  // Reads go before writes, which have a share of the queue only, so that a read never waits for
  // more than the writes that are at the disk already. Apart from that requests are carried out in
  // any order, so one that touches an extent whose write (or, for a
  // write, whose read) was not yet waited for is refused: kInternal, whatever the timing.
  //
  // Every ticket is waited for exactly once; any other is kInternal. A read whose checksum,
  // position or model does not match is kCorrupt and names layer and extent.
  virtual Status wait(Ticket ticket) = 0;
  // Waits as well, but only for the buffer: the outcome is of no interest and not checked.
  virtual void discard(Ticket ticket) = 0;
  virtual bool done(Ticket ticket) const = 0;

  virtual FlashBackend backend() const = 0;  // never kAuto
  virtual FlashStats stats() const = 0;
};

// CRC-32C (Castagnoli) of `data`, continuing from `crc` (0 at the start).
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace tierkv
