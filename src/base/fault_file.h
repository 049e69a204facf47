// A disk that fails on demand, for tests: wraps a FileSystem and injects faults into its files,
// whether they are read and written through File or through their descriptors.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/file.h"

namespace tierkv {

// What goes wrong, and when. Counters are over all files of one FaultFileSystem, from 0, and count
// calls to the system: a transfer that was cut short takes another one. kNever means it does not
// happen. May be changed while files are open.
struct FaultPlan {
  static constexpr int64_t kNever = -1;
  std::atomic<int64_t> fail_read_at{kNever};       // this read and all later ones give EIO
  std::atomic<int64_t> fail_write_at{kNever};      // this write and all later ones give EIO
  std::atomic<int> read_error{0}, write_error{0};  // 0: EIO; else this errno, then only once
  std::atomic<int64_t> disk_full_at{kNever};  // writes that pass this many bytes in total: ENOSPC
  std::atomic<int64_t> flip_bit_in_read{kNever};  // this read comes back with one bit flipped
  std::atomic<int64_t> tear_write_at{kNever};     // this write stores only its first half, silently
  std::atomic<int64_t> short_every{0};            // each n-th call moves one block; 0: none
  std::atomic<int64_t> delay_us{0};               // of every call
  std::atomic<int64_t> fail_sync_at{kNever};      // this sync and all later ones give EIO
  std::atomic<bool> fail_create{false};           // what makes private files gives EACCES
  std::atomic<int64_t> reads{0}, writes{0}, bytes_written{0}, syncs{0};  // so far
};

// `inner` and `plan` must outlive what this makes.
std::unique_ptr<FileSystem> make_fault_file_system(FileSystem& inner, FaultPlan& plan);

}  // namespace tierkv
