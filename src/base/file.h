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
  // Everything written so far, and the size, has reached the disk.
  virtual Status sync() { return {}; }
  // Hint: nobody needs this range any more; it may read as zeros and its space may be freed.
  virtual void discard(uint64_t, uint64_t) {}
  // The path, for messages.
  virtual const std::string& name() const = 0;

  // Of files from create_exclusive: gives the file its name, for good, unless that is taken.
  virtual Status publish() { return unsupported(name() + " can't be given a name"); }
  // Whether the path still leads to this file: nobody removed it or put another in its place.
  virtual bool still_named() { return true; }

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

  // Both lock the file against every other process for as long as it is open (kResourceExhausted
  // when another has it), and use O_DIRECT as create_scratch does. The second makes a private file
  // (0600) that has no name, and so vanishes with the process, until it is published.
  virtual Result<std::unique_ptr<File>> open_exclusive(const std::string& path) {
    return unsupported("no file can be locked at " + path);
  }
  virtual Result<std::unique_ptr<File>> create_exclusive(const std::string& path) {
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
