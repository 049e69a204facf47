// One read or write of a file until all of it is done, whoever makes the system's calls: a loop
// (File::read_at) or completions (io_uring). The system may move less than it was asked for, be
// interrupted or ask to be called again; what that means is decided here, once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace tierkv {

enum class IoKind : uint8_t { kRead, kWrite };

// What tests do to each call to the system (base/fault_file.h). Real files have none.
class IoHook {
 public:
  struct Order {
    int error = 0;            // errno that the call fails with, instead of a transfer
    size_t most = SIZE_MAX;   // bytes that the call moves
    bool claims_all = false;  // and says that it moved everything
  };

  virtual ~IoHook() = default;
  // Before a call. Must not block.
  virtual Order before(IoKind kind, size_t bytes) = 0;
  // After one that moved `data`, which it may change if that was read. May block.
  virtual void after(IoKind kind, std::span<std::byte> data) = 0;
};

// The error of a system call, with what it was doing.
Status os_error(const std::string& what, int error);

class Transfer {
 public:
  // `name` is the file's, and must outlive the transfer.
  Transfer(IoKind kind, const std::string& name, uint64_t offset, std::span<std::byte> data)
      : kind_(kind), name_(&name), offset_(offset), data_(data) {}

  IoKind kind() const { return kind_; }
  // What the next call is to move.
  uint64_t offset() const { return offset_ + done_; }
  std::span<std::byte> rest() const { return data_.subspan(done_); }

  // Takes a call's outcome: bytes moved, or a negative errno. True when the transfer is over.
  bool advance(int64_t result);
  const Status& status() const { return status_; }

 private:
  bool fail(Status status);
  bool call_again();
  Status no_progress() const;

  IoKind kind_;
  const std::string* name_;
  uint64_t offset_;
  std::span<std::byte> data_;
  size_t done_ = 0;
  int idle_calls_ = 0;  // in a row that moved nothing
  Status status_;
};

// Carries out a transfer with `call`(offset, span) -> bytes or negative errno, which blocks.
template <typename Call>
Status run_transfer(Transfer transfer, IoHook* hook, Call&& call) {
  for (;;) {
    const IoHook::Order order =
        hook != nullptr ? hook->before(transfer.kind(), transfer.rest().size()) : IoHook::Order{};
    int64_t result = -order.error;
    if (order.error == 0) {
      const std::span<std::byte> rest = transfer.rest();
      const std::span<std::byte> part = rest.first(std::min(rest.size(), order.most));
      result = part.empty() ? 0 : call(transfer.offset(), part);
      if (hook != nullptr && result >= 0) {
        hook->after(transfer.kind(), part.first(static_cast<size_t>(result)));
      }
      if (result >= 0 && order.claims_all) result = static_cast<int64_t>(rest.size());
    }
    if (transfer.advance(result)) return transfer.status();
  }
}

}  // namespace tierkv
