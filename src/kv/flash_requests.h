// What the backends of the flash store share: tickets, which requests are allowed and which goes to
// the disk next, checking, counting. A backend carries out what take_locked() hands it and reports
// with finish_locked(); it is called when there may be something to take.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/transfer.h"
#include "kv/flash_format.h"
#include "kv/flash_store.h"

namespace tierkv {

class FlashRequests : public FlashStore {
 public:
  static constexpr int kMaxQueueDepth = 64;

  FlashRequests(std::unique_ptr<File> file, FlashGeometry geometry,
                const FlashStoreOptions& options);

  Ticket start_write(int layer, int64_t extent, std::span<std::byte> buffer) override;
  Ticket start_read(int layer, int64_t extent, std::span<std::byte> buffer, ReadNeed need) override;
  Status wait(Ticket ticket) override;
  void discard(Ticket ticket) override;
  bool done(Ticket ticket) const override;
  FlashStats stats() const override;

 protected:
  struct Request {
    int layer;
    int64_t extent;
    std::span<std::byte> buffer;
    Transfer transfer;
    ReadNeed need;  // of a read
    Status status;
    bool done = false;
    bool claimed = false;  // somebody is in wait() for it
    int lane = 0;          // of the trace, while it is at the disk
    int64_t taken_ns = 0;
  };

  // With the lock held: take_locked() may have something.
  virtual void work_arrived_locked() = 0;

  // The request that the disk should get next, reads first; null: none, or enough of them are there
  // already. It stays where it is until finish_locked().
  Request* take_locked();
  void finish_locked(Request& request, Status status);

  File& file() { return *file_; }
  int queue_depth() const { return queue_depth_; }
  int at_disk_locked() const { return at_disk_; }

  mutable std::mutex mutex_;

 private:
  using Requests = std::unordered_map<Ticket, Request>;

  Ticket start(IoKind kind, int layer, int64_t extent, std::span<std::byte> buffer,
               ReadNeed need = ReadNeed::kLater);
  Status check_place(int layer, int64_t extent, std::span<const std::byte> buffer) const;
  Status check_order_locked(const Request& request) const;
  Request* claim_locked(Ticket ticket);
  int take_lane_locked();
  void count_locked(const Request& request);

  const std::unique_ptr<File> file_;
  const FlashGeometry geometry_;
  const int queue_depth_;
  Trace* const trace_;

  std::condition_variable finished_;
  Ticket last_ticket_ = 0;
  Requests requests_;                  // started and not yet waited for
  std::deque<Ticket> reads_, writes_;  // not yet taken
  int at_disk_ = 0, writes_at_disk_ = 0;
  uint64_t lanes_ = 0;  // in use, one bit each
  FlashStats stats_;
};

// The backends. The file must have a descriptor for io_uring; kUnsupported when the kernel or the
// build has none.
Result<std::unique_ptr<FlashStore>> start_flash_pool(std::unique_ptr<File> file,
                                                     FlashGeometry geometry,
                                                     const FlashStoreOptions& options);
// Takes the file only when it succeeds.
Result<std::unique_ptr<FlashStore>> start_flash_uring(std::unique_ptr<File>& file,
                                                      const FlashGeometry& geometry,
                                                      const FlashStoreOptions& options);

}  // namespace tierkv
