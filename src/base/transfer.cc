#include "base/transfer.h"

#include <cerrno>
#include <cstring>

namespace tierkv {
namespace {

// O_DIRECT moves whole blocks: after a short call the next one begins at a block's first byte.
constexpr size_t kBlock = 4096;
constexpr int kMostIdleCalls = 100;

}  // namespace

Status os_error(const std::string& what, int error) {
  const std::string message = what + ": " + std::strerror(error);
  switch (error) {
    case ENOENT:
      return not_found(message);
    case ENOSPC:
    case EDQUOT:
      return resource_exhausted(message + "; free space there or choose another directory");
    case EACCES:
    case EPERM:
    case EROFS:
      return io_error(message + "; choose a file or directory you may use");
    default:
      return io_error(message);
  }
}

bool Transfer::fail(Status status) {
  status_ = std::move(status);
  return true;
}

bool Transfer::call_again() { return ++idle_calls_ > kMostIdleCalls ? fail(no_progress()) : false; }

Status Transfer::no_progress() const {
  return io_error((kind_ == IoKind::kRead ? "reading " : "writing ") + *name_ +
                  ": the system was asked again and again and moved nothing");
}

bool Transfer::advance(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return call_again();
  if (result < 0) {
    return fail(os_error((kind_ == IoKind::kRead ? "reading " : "writing ") + *name_,
                         static_cast<int>(-result)));
  }
  size_t reached = done_ + static_cast<size_t>(result);
  if (reached >= data_.size()) {
    done_ = data_.size();
    return true;
  }
  const bool whole_blocks = offset_ % kBlock == 0 && data_.size() % kBlock == 0;
  const bool moved = result > 0;
  if (whole_blocks) reached -= reached % kBlock;
  if (reached > done_) {
    done_ = reached;
    idle_calls_ = 0;
    return false;
  }
  if (kind_ == IoKind::kWrite) {
    return moved ? call_again()
                 : fail(io_error("writing " + *name_ + ": the system wrote nothing"));
  }
  return fail(corrupt(*name_ + " is truncated: " +
                      format("%zu bytes missing at offset %llu", data_.size() - done_,
                             static_cast<unsigned long long>(offset()))));
}

}  // namespace tierkv
