// The portable backend: threads that each do one blocking read or write at a time.
#include <condition_variable>
#include <system_error>
#include <thread>
#include <vector>

#include "kv/flash_requests.h"

namespace tierkv {
namespace {

class PooledFlashStore final : public FlashRequests {
 public:
  using FlashRequests::FlashRequests;
  ~PooledFlashStore() override;

  Status start_threads();
  FlashBackend backend() const override { return FlashBackend::kPool; }

 private:
  void work_arrived_locked() override { work_.notify_one(); }
  void io_loop();
  Status carry_out(const Request& request);

  std::condition_variable work_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// What has begun is finished, because the kernel holds its buffer; what has not is dropped.
PooledFlashStore::~PooledFlashStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status PooledFlashStore::start_threads() {
  try {
    while (static_cast<int>(threads_.size()) < queue_depth()) {
      threads_.emplace_back([this] { io_loop(); });
    }
  } catch (const std::system_error& error) {
    return resource_exhausted(std::string("the system has no thread left for flash I/O: ") +
                              error.what());
  }
  return {};
}

void PooledFlashStore::io_loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    Request* const request = take_locked();
    if (request == nullptr) {
      work_.wait(lock);
      continue;
    }
    lock.unlock();
    Status status = carry_out(*request);
    lock.lock();
    finish_locked(*request, std::move(status));
  }
}

Status PooledFlashStore::carry_out(const Request& request) {
  const Transfer& transfer = request.transfer;
  return transfer.kind() == IoKind::kRead ? file().read_at(transfer.offset(), request.buffer)
                                          : file().write_at(transfer.offset(), request.buffer);
}

}  // namespace

Result<std::unique_ptr<FlashStore>> start_flash_pool(std::unique_ptr<File> file,
                                                     FlashGeometry geometry,
                                                     const FlashStoreOptions& options) {
  auto store = std::make_unique<PooledFlashStore>(std::move(file), std::move(geometry), options);
  TIERKV_RETURN_IF_ERROR(store->start_threads());
  return std::unique_ptr<FlashStore>(std::move(store));
}

}  // namespace tierkv
