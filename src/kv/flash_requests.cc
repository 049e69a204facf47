#include "kv/flash_requests.h"

#include <algorithm>
#include <bit>

namespace tierkv {
namespace {

const char* kind_name(IoKind kind) { return kind == IoKind::kRead ? "read" : "write"; }

Status refused_order(int layer, int64_t extent, IoKind earlier) {
  return internal_error(
      format("layer %d, extent %lld was asked of the flash store before an earlier %s of it was "
             "waited for",
             layer, static_cast<long long>(extent), kind_name(earlier)));
}

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

FlashRequests::FlashRequests(std::unique_ptr<File> file, FlashGeometry geometry,
                             const FlashStoreOptions& options)
    : file_(std::move(file)),
      geometry_(std::move(geometry)),
      queue_depth_(std::clamp(options.queue_depth, 1, kMaxQueueDepth)),
      trace_(options.trace) {}

// The caller's thread seals: it has just filled the buffer, and has it in its cache.
FlashStore::Ticket FlashRequests::start_write(int layer, int64_t extent,
                                              std::span<std::byte> buffer) {
  if (check_place(layer, extent, buffer).ok()) {
    const TraceScope scope(trace_, "seal", layer, extent);
    seal_extent(geometry_.layout(), layer, extent, buffer);
  }
  return start(IoKind::kWrite, layer, extent, buffer);
}

FlashStore::Ticket FlashRequests::start_read(int layer, int64_t extent, std::span<std::byte> buffer,
                                             ReadNeed need) {
  return start(IoKind::kRead, layer, extent, buffer, need);
}

FlashStore::Ticket FlashRequests::start(IoKind kind, int layer, int64_t extent,
                                        std::span<std::byte> buffer, ReadNeed need) {
  Status refused = check_place(layer, extent, buffer);
  const uint64_t offset = refused.ok() ? geometry_.offset(layer, extent) : 0;
  Request request = {layer, extent, buffer, Transfer(kind, file_->name(), offset, buffer),
                     need,  {}};
  const std::lock_guard lock(mutex_);
  if (refused.ok()) refused = check_order_locked(request);
  const Ticket ticket = ++last_ticket_;
  request.done = !refused.ok();
  request.status = std::move(refused);
  const bool goes = !request.done;
  requests_.emplace(ticket, std::move(request));
  if (goes) {
    (kind == IoKind::kRead ? reads_ : writes_).push_back(ticket);
    work_arrived_locked();
  }
  return ticket;
}

Status FlashRequests::check_place(int layer, int64_t extent,
                                  std::span<const std::byte> buffer) const {
  const FlashLayout& layout = geometry_.layout();
  if (layer < 0 || static_cast<size_t>(layer) >= layout.payload_bytes.size() ||
      layout.payload_bytes[layer] == 0 || extent < 0 || extent >= layout.max_extents) {
    return internal_error(format("the flash store has no place for layer %d, extent %lld", layer,
                                 static_cast<long long>(extent)));
  }
  if (buffer.size() == geometry_.stride(layer) &&
      reinterpret_cast<uintptr_t>(buffer.data()) % kFlashBlock == 0) {
    return {};
  }
  return internal_error(
      format("a flash buffer of layer %d must have %llu bytes and lie on a %llu-byte boundary",
             layer, static_cast<unsigned long long>(geometry_.stride(layer)),
             static_cast<unsigned long long>(kFlashBlock)));
}

// Requests are carried out in any order, so two that touch one extent must not be open together
// unless both read it. Open means not yet waited for, so that the answer does not hang on timing.
Status FlashRequests::check_order_locked(const Request& request) const {
  for (const auto& [ticket, other] : requests_) {
    if (other.layer != request.layer || other.extent != request.extent) continue;
    const IoKind earlier = other.transfer.kind();
    if (earlier == IoKind::kRead && request.transfer.kind() == IoKind::kRead) continue;
    if (other.status.code() == StatusCode::kInternal) continue;  // was refused here itself
    return refused_order(request.layer, request.extent, earlier);
  }
  return {};
}

FlashRequests::Request* FlashRequests::take_locked() {
  const int most_writes = std::max(1, queue_depth_ / 4);
  if (at_disk_ >= queue_depth_) return nullptr;
  if (reads_.empty() && (writes_.empty() || writes_at_disk_ >= most_writes)) return nullptr;
  std::deque<Ticket>& queue = reads_.empty() ? writes_ : reads_;
  Request* request = &requests_.at(queue.front());  // stays put: it is waited for before it goes
  queue.pop_front();
  ++at_disk_;
  if (request->transfer.kind() == IoKind::kWrite) ++writes_at_disk_;
  request->lane = take_lane_locked();
  if (trace_ != nullptr) request->taken_ns = Trace::now_ns();
  return request;
}

// The lowest that is free: a trace then shows as many as are at the disk at once.
int FlashRequests::take_lane_locked() {
  const int lane = std::countr_one(lanes_);
  lanes_ |= uint64_t{1} << lane;
  return 1 + lane;
}

void FlashRequests::finish_locked(Request& request, Status status) {
  const IoKind kind = request.transfer.kind();
  if (status.code() == StatusCode::kCorrupt) {
    status = status.with_context("the flash copy is damaged");
  }
  if (trace_ != nullptr) {
    trace_->add({kind_name(kind), request.taken_ns, Trace::now_ns(), request.extent, request.layer,
                 request.lane});
  }
  --at_disk_;
  if (kind == IoKind::kWrite) --writes_at_disk_;
  lanes_ &= ~(uint64_t{1} << (request.lane - 1));
  request.status = std::move(status);
  request.done = true;
  count_locked(request);
  finished_.notify_all();
}

void FlashRequests::count_locked(const Request& request) {
  const bool read = request.transfer.kind() == IoKind::kRead;
  ++(read ? stats_.reads : stats_.writes);
  if (request.status.ok()) {
    (read ? stats_.bytes_read : stats_.bytes_written) += request.buffer.size();
  }
}

// Null: never given out, or waited for already.
FlashRequests::Request* FlashRequests::claim_locked(Ticket ticket) {
  const auto found = requests_.find(ticket);
  if (found == requests_.end() || found->second.claimed) return nullptr;
  found->second.claimed = true;
  return &found->second;
}

// The thread that waits checks what was read: it is the one that will use it.
Status FlashRequests::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  Request* const request = claim_locked(ticket);
  if (request == nullptr) {
    return internal_error(format("flash ticket %llu was never given out or was waited for already",
                                 static_cast<unsigned long long>(ticket)));
  }
  const bool read = request->transfer.kind() == IoKind::kRead;
  if (read) ++stats_.asked;
  if (request->done) {
    if (read && request->need == ReadNeed::kLater && request->status.ok()) ++stats_.hits;
  } else {
    const TraceScope scope(trace_, read ? "wait for read" : "wait for write", request->layer,
                           request->extent);
    const int64_t start = Trace::now_ns();
    finished_.wait(lock, [&] { return request->done; });
    if (read) stats_.stall_seconds += seconds(Trace::now_ns() - start);
  }
  const Request over = std::move(*request);
  requests_.erase(ticket);
  lock.unlock();
  Status status = over.status;
  if (status.code() == StatusCode::kInternal) return status;  // was refused, and says where
  if (read && status.ok()) {
    const TraceScope scope(trace_, "check", over.layer, over.extent);
    status = check_extent(geometry_.layout(), over.layer, over.extent, over.buffer);
  }
  if (status.ok()) return status;
  return status.with_context(
      format("layer %d, extent %lld", over.layer, static_cast<long long>(over.extent)));
}

void FlashRequests::discard(Ticket ticket) {
  std::unique_lock lock(mutex_);
  Request* const request = claim_locked(ticket);
  if (request == nullptr) return;
  finished_.wait(lock, [&] { return request->done; });
  requests_.erase(ticket);
}

bool FlashRequests::done(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(ticket);
  return found != requests_.end() && found->second.done;
}

FlashStats FlashRequests::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace tierkv
