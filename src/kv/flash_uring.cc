// The io_uring backend: the caller's thread submits, one thread of our own reaps. Both work on the
// ring at once, each on its half: submissions under the lock, completions by the reaper alone.
#include "kv/flash_requests.h"

#ifdef TIERKV_URING
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>
#endif

namespace tierkv {
#ifdef TIERKV_URING
namespace {

class UringFlashStore final : public FlashRequests {
 public:
  // Takes over the ring.
  UringFlashStore(std::unique_ptr<File> file, FlashGeometry geometry,
                  const FlashStoreOptions& options, const io_uring& ring);
  ~UringFlashStore() override;

  void register_buffers(std::span<const std::span<std::byte>> buffers) override;
  FlashBackend backend() const override { return FlashBackend::kUring; }

 private:
  // A request at the disk, as the tests' hook wants it.
  struct Call {
    Request* request = nullptr;
    IoHook::Order order;
    std::span<std::byte> part;
  };

  void work_arrived_locked() override;
  Status start_reaper_locked();
  void submit_locked(Call& call);
  int enter_locked(Call& call);
  int registered_index(std::span<const std::byte> part) const;
  void reap();
  void completed(Call& call, int64_t result);
  void free_locked(Call& call, Status status);

  io_uring ring_;
  bool fixed_file_ = false;
  std::vector<std::span<std::byte>> buffers_;  // registered
  std::vector<Call> calls_;                    // one a place in the queue
  bool stop_ = false;
  std::thread reaper_;  // started with the first request: older kernels let nobody register buffers
                        // while it waits
};

UringFlashStore::UringFlashStore(std::unique_ptr<File> file, FlashGeometry geometry,
                                 const FlashStoreOptions& options, const io_uring& ring)
    : FlashRequests(std::move(file), std::move(geometry), options),
      ring_(ring),
      calls_(static_cast<size_t>(queue_depth())) {
  const int descriptor = this->file().descriptor();
  fixed_file_ = io_uring_register_files(&ring_, &descriptor, 1) == 0;
}

// What has begun is finished, because the kernel holds its buffer; what has not is dropped.
UringFlashStore::~UringFlashStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (reaper_.joinable() && at_disk_locked() == 0) {  // else its last completion wakes the reaper
      io_uring_sqe* const wake = io_uring_get_sqe(&ring_);
      io_uring_prep_nop(wake);
      io_uring_sqe_set_data(wake, nullptr);
      while (io_uring_submit(&ring_) == -EINTR) continue;
    }
  }
  if (reaper_.joinable()) reaper_.join();
  io_uring_queue_exit(&ring_);
}

// Without it (RLIMIT_MEMLOCK on older kernels) requests name their memory themselves.
void UringFlashStore::register_buffers(std::span<const std::span<std::byte>> buffers) {
  std::vector<iovec> vectors;
  for (const auto& buffer : buffers) vectors.push_back({buffer.data(), buffer.size()});
  if (io_uring_register_buffers(&ring_, vectors.data(), static_cast<unsigned>(vectors.size())) ==
      0) {
    buffers_.assign(buffers.begin(), buffers.end());
  }
}

int UringFlashStore::registered_index(std::span<const std::byte> part) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const std::byte* const begin = buffers_[i].data();
    if (part.data() >= begin && part.data() + part.size() <= begin + buffers_[i].size()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void UringFlashStore::work_arrived_locked() {
  const Status started = reaper_.joinable() || stop_ ? Status() : start_reaper_locked();
  while (!stop_) {
    Request* const request = take_locked();
    if (request == nullptr) return;
    Call& call = *std::find_if(calls_.begin(), calls_.end(),
                               [](const Call& free) { return free.request == nullptr; });
    call.request = request;
    if (started.ok()) {
      submit_locked(call);
    } else {
      free_locked(call, started);
    }
  }
}

Status UringFlashStore::start_reaper_locked() {
  try {
    reaper_ = std::thread([this] { reap(); });
  } catch (const std::system_error& error) {
    return resource_exhausted(std::string("the system has no thread left for flash I/O: ") +
                              error.what());
  }
  return {};
}

// The next call of a transfer, or its end when a test's hook has it fail.
void UringFlashStore::submit_locked(Call& call) {
  Transfer& transfer = call.request->transfer;
  IoHook* const hook = file().hook();
  for (;;) {
    const std::span<std::byte> rest = transfer.rest();
    if (hook != nullptr) call.order = hook->before(transfer.kind(), rest.size());
    call.part = rest.first(std::min(rest.size(), call.order.most));
    int error = call.order.error;
    if (error == 0) error = enter_locked(call);
    if (error == 0) return;
    if (transfer.advance(-error)) return free_locked(call, transfer.status());
  }
}

// 0: the kernel has it; else an errno.
int UringFlashStore::enter_locked(Call& call) {
  const Transfer& transfer = call.request->transfer;
  io_uring_sqe* const sqe =
      io_uring_get_sqe(&ring_);  // there is one: it has twice the queue's depth
  if (sqe == nullptr) return EAGAIN;
  const int fd = fixed_file_ ? 0 : file().descriptor();
  const unsigned bytes = static_cast<unsigned>(call.part.size());
  const int index = registered_index(call.part);
  const bool read = transfer.kind() == IoKind::kRead;
  if (index >= 0) {
    (read ? io_uring_prep_read_fixed(sqe, fd, call.part.data(), bytes, transfer.offset(), index)
          : io_uring_prep_write_fixed(sqe, fd, call.part.data(), bytes, transfer.offset(), index));
  } else {
    (read ? io_uring_prep_read(sqe, fd, call.part.data(), bytes, transfer.offset())
          : io_uring_prep_write(sqe, fd, call.part.data(), bytes, transfer.offset()));
  }
  if (fixed_file_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data(sqe, &call);
  const int submitted = io_uring_submit(&ring_);
  if (submitted > 0) return 0;
  io_uring_prep_nop(sqe);  // it stays in the ring, and goes with the next as nothing
  io_uring_sqe_set_data(sqe, nullptr);
  return submitted == 0 ? EAGAIN : -submitted;
}

void UringFlashStore::reap() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ && at_disk_locked() == 0) return;
    }
    io_uring_cqe* cqe = nullptr;
    if (io_uring_wait_cqe(&ring_, &cqe) != 0) continue;  // interrupted
    Call* const call = static_cast<Call*>(io_uring_cqe_get_data(cqe));
    const int64_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (call != nullptr) completed(*call, result);
  }
}

void UringFlashStore::completed(Call& call, int64_t result) {
  std::unique_lock lock(mutex_);
  Transfer& transfer = call.request->transfer;
  if (IoHook* const hook = file().hook(); hook != nullptr && result >= 0) {
    const std::span<std::byte> moved = call.part.first(static_cast<size_t>(result));
    lock.unlock();
    hook->after(transfer.kind(), moved);
    lock.lock();
    if (call.order.claims_all) result = static_cast<int64_t>(transfer.rest().size());
  }
  if (transfer.advance(result)) {
    free_locked(call, transfer.status());
    work_arrived_locked();
  } else {
    submit_locked(call);
  }
}

void UringFlashStore::free_locked(Call& call, Status status) {
  Request& request = *call.request;
  call = {};
  finish_locked(request, std::move(status));
}

}  // namespace

Result<std::unique_ptr<FlashStore>> start_flash_uring(std::unique_ptr<File>& file,
                                                      const FlashGeometry& geometry,
                                                      const FlashStoreOptions& options) {
  if (file->descriptor() < 0) return unsupported("this file can't be used with io_uring");
  io_uring ring;
  const int error = io_uring_queue_init(2 * FlashRequests::kMaxQueueDepth, &ring, 0);
  if (error != 0) {
    return unsupported(std::string("the kernel refuses io_uring (") + std::strerror(-error) +
                       "); choose the thread pool");
  }
  return std::unique_ptr<FlashStore>(new UringFlashStore(std::move(file), geometry, options, ring));
}

#else

Result<std::unique_ptr<FlashStore>> start_flash_uring(std::unique_ptr<File>&, const FlashGeometry&,
                                                      const FlashStoreOptions&) {
  return unsupported("this build has no io_uring; choose the thread pool");
}

#endif

}  // namespace tierkv
