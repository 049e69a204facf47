// Files behind an interface, so that tests can make disks fail. Positions are absolute; a call
// transfers everything it was asked for or returns an error. Implementations are safe to use from
// several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/transfer.h"

namespace tierkv {

class File {
 public:
  virtual ~File() = default;

  // Fills `out` from `offset`. Reaching the end of the file first is kCorrupt ("truncated").
  virtual Status read_at(uint64_t offset, std::span<std::byte> out) = 0;
  // Writes all of `data` at `offset`, growing the file. A full disk is kResourceExhausted.
  virtual Status write_at(uint64_t offset, std::span<const std::byte> data) = 0;
  virtual Result<uint64_t> size() = 0;
  // Hint: the page cache may forget this range. Never fails.
  virtual void drop_cache(uint64_t offset, uint64_t length) = 0;
  // The path, for messages.
  virtual const std::string& name() const = 0;

  // For I/O past the calls above (io_uring): an open descriptor, or -1 when there is none, and what
  // must be asked before and after each transfer through it, or null.
  virtual int descriptor() const { return -1; }
  virtual IoHook* hook() { return nullptr; }
};

// What opens files: the operating system's (real_file_system) or a test's.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Result<std::unique_ptr<File>> open_read(const std::string& path) = 0;

  // An empty file to read and write under this name; what was there is lost.
  virtual Result<std::unique_ptr<File>> create(const std::string& path) {
    return unsupported("no file can be made at " + path);
  }

  // A new, empty, private (0600) file in `directory` that has no name any more, or loses it with
  // the process: it leaves nothing behind, however the process ends. The directory is created when
  // only its last component is missing. Opened with O_DIRECT where the file system has it: buffers,
  // offsets and lengths must then be multiples of 4096.
  virtual Result<std::unique_ptr<File>> create_scratch(const std::string& directory) = 0;
};

FileSystem& real_file_system();

}  // namespace tierkv
