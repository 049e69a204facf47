// The portable backend: a pool of threads that each do one blocking pread or pwrite at a time. An
// io_uring backend belongs behind the same FlashStore and shares kv/flash_format.h.
#include "kv/flash_store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "kv/flash_format.h"

namespace tierkv {
namespace {

constexpr int kMaxIoThreads = 64;

enum class Operation { kRead, kWrite };

struct Request {
  Operation operation;
  int layer;
  int64_t extent;
  std::span<std::byte> buffer;
  Status status;
  bool done = false;
  bool claimed = false;  // somebody is in wait() for it
};

class PooledFlashStore final : public FlashStore {
 public:
  PooledFlashStore(std::unique_ptr<File> file, FlashGeometry geometry)
      : file_(std::move(file)), geometry_(std::move(geometry)) {}
  ~PooledFlashStore() override;

  Status start_threads(int n_threads);

  Ticket start_write(int layer, int64_t extent, std::span<std::byte> buffer) override {
    return start({Operation::kWrite, layer, extent, buffer, {}});
  }
  Ticket start_read(int layer, int64_t extent, std::span<std::byte> buffer) override {
    return start({Operation::kRead, layer, extent, buffer, {}});
  }
  Status wait(Ticket ticket) override;
  bool done(Ticket ticket) const override;
  FlashStats stats() const override;

 private:
  Ticket start(Request request);
  Status check_request(const Request& request) const;
  Status check_order_locked(const Request& request) const;
  void io_loop();
  Request* next_locked();
  Status perform(const Request& request);
  void count_locked(const Request& request);

  const std::unique_ptr<File> file_;
  const FlashGeometry geometry_;

  mutable std::mutex mutex_;
  std::condition_variable work_, finished_;
  bool stop_ = false;
  Ticket last_ticket_ = 0;
  std::unordered_map<Ticket, Request> requests_;  // started and not yet waited for
  std::deque<Ticket> reads_, writes_;             // not yet taken by a thread
  FlashStats stats_;
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

Status PooledFlashStore::start_threads(int n_threads) {
  n_threads = std::clamp(n_threads, 1, kMaxIoThreads);
  try {
    while (static_cast<int>(threads_.size()) < n_threads) {
      threads_.emplace_back([this] { io_loop(); });
    }
  } catch (const std::system_error& error) {
    return resource_exhausted(std::string("the system has no thread left for flash I/O: ") +
                              error.what());
  }
  return {};
}

FlashStore::Ticket PooledFlashStore::start(Request request) {
  Status refused = check_request(request);
  const std::lock_guard lock(mutex_);
  if (refused.ok()) refused = check_order_locked(request);
  const Ticket ticket = ++last_ticket_;
  if (refused.ok()) {
    (request.operation == Operation::kRead ? reads_ : writes_).push_back(ticket);
    work_.notify_one();
  } else {
    request.status = std::move(refused);
    request.done = true;
  }
  requests_.emplace(ticket, std::move(request));
  return ticket;
}

Status PooledFlashStore::check_request(const Request& request) const {
  const FlashLayout& layout = geometry_.layout();
  if (request.layer < 0 || static_cast<size_t>(request.layer) >= layout.payload_bytes.size() ||
      layout.payload_bytes[request.layer] == 0 || request.extent < 0 ||
      request.extent >= layout.max_extents) {
    return internal_error(format("the flash store has no place for layer %d, extent %lld",
                                 request.layer, static_cast<long long>(request.extent)));
  }
  if (request.buffer.size() != geometry_.stride(request.layer) ||
      reinterpret_cast<uintptr_t>(request.buffer.data()) % kFlashBlock != 0) {
    return internal_error(
        format("a flash buffer of layer %d must have %llu bytes and lie on a "
               "%llu-byte boundary",
               request.layer, static_cast<unsigned long long>(geometry_.stride(request.layer)),
               static_cast<unsigned long long>(kFlashBlock)));
  }
  return {};
}

// Requests are carried out in any order, so two that touch one extent must not be open together
// unless both read it. Open means not yet waited for, so that the answer does not hang on timing.
Status PooledFlashStore::check_order_locked(const Request& request) const {
  for (const auto& [ticket, other] : requests_) {
    if (other.layer != request.layer || other.extent != request.extent) continue;
    if (other.operation == Operation::kRead && request.operation == Operation::kRead) continue;
    if (other.status.code() == StatusCode::kInternal) continue;  // was refused here itself
    return internal_error(
        format("layer %d, extent %lld was asked of the flash store before an "
               "earlier %s of it was waited for",
               request.layer, static_cast<long long>(request.extent),
               other.operation == Operation::kRead ? "read" : "write"));
  }
  return {};
}

// Reads go first: somebody is about to wait for them.
Request* PooledFlashStore::next_locked() {
  std::deque<Ticket>& queue = reads_.empty() ? writes_ : reads_;
  if (queue.empty()) return nullptr;
  Request* request = &requests_.at(queue.front());  // stays put: it is waited for before it goes
  queue.pop_front();
  return request;
}

void PooledFlashStore::io_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || !reads_.empty() || !writes_.empty(); });
    if (stop_) return;
    Request* request = next_locked();
    lock.unlock();
    Status status = perform(*request);
    lock.lock();
    request->status = std::move(status);
    request->done = true;
    count_locked(*request);
    finished_.notify_all();
  }
}

Status PooledFlashStore::perform(const Request& request) {
  const int layer = request.layer;
  const int64_t extent = request.extent;
  const std::span<std::byte> buffer = request.buffer;
  const uint64_t offset = geometry_.offset(layer, extent);
  Status outcome;
  if (request.operation == Operation::kWrite) {
    seal_extent(geometry_.layout(), layer, extent, buffer);
    outcome = file_->write_at(offset, buffer);
  } else {
    outcome = file_->read_at(offset, buffer);
    if (outcome.code() == StatusCode::kCorrupt) {
      outcome = outcome.with_context("the flash copy is damaged");
    }
    if (outcome.ok()) outcome = check_extent(geometry_.layout(), layer, extent, buffer);
  }
  return outcome.with_context(
      format("layer %d, extent %lld", layer, static_cast<long long>(extent)));
}

void PooledFlashStore::count_locked(const Request& request) {
  const bool read = request.operation == Operation::kRead;
  ++(read ? stats_.reads : stats_.writes);
  if (request.status.ok()) {
    (read ? stats_.bytes_read : stats_.bytes_written) += request.buffer.size();
  }
}

Status PooledFlashStore::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const auto found = requests_.find(ticket);
  if (found == requests_.end() || found->second.claimed) {
    return internal_error(format("flash ticket %llu was never given out or was waited for already",
                                 static_cast<unsigned long long>(ticket)));
  }
  Request& request = found->second;
  request.claimed = true;
  const bool read = request.operation == Operation::kRead;
  if (request.done) {
    if (read && request.status.ok()) ++stats_.hits;
  } else {
    const auto start = std::chrono::steady_clock::now();
    finished_.wait(lock, [&] { return request.done; });
    const std::chrono::duration<double> stalled = std::chrono::steady_clock::now() - start;
    if (read) stats_.stall_seconds += stalled.count();
  }
  Status status = std::move(request.status);
  requests_.erase(ticket);
  return status;
}

bool PooledFlashStore::done(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(ticket);
  return found != requests_.end() && found->second.done;
}

FlashStats PooledFlashStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace

namespace {

Result<std::unique_ptr<FlashStore>> start_backend(std::unique_ptr<File> file,
                                                  FlashGeometry geometry,
                                                  const FlashStoreOptions& options) {
  if (options.backend == FlashBackend::kUring) {
    return unsupported("this build has no io_uring; choose another way of flash I/O");
  }
  auto store = std::make_unique<PooledFlashStore>(std::move(file), std::move(geometry));
  TIERKV_RETURN_IF_ERROR(store->start_threads(options.queue_depth));
  return std::unique_ptr<FlashStore>(std::move(store));
}

}  // namespace

Result<std::unique_ptr<FlashStore>> FlashStore::create(FileSystem& file_system,
                                                       const std::string& directory,
                                                       const FlashLayout& layout,
                                                       const FlashStoreOptions& options) {
  TIERKV_RETURN_IF_ERROR(FlashGeometry::create(layout).status());  // before a file is made
  TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<File> file, file_system.create_scratch(directory));
  Result<std::unique_ptr<FlashStore>> store = create(std::move(file), layout, options);
  if (store.ok()) return store;
  return store.status().with_context("preparing the flash store in " + directory);
}

Result<std::unique_ptr<FlashStore>> FlashStore::create(std::unique_ptr<File> file,
                                                       const FlashLayout& layout,
                                                       const FlashStoreOptions& options) {
  TIERKV_ASSIGN_OR_RETURN(FlashGeometry geometry, FlashGeometry::create(layout));
  alignas(kFlashBlock) std::array<std::byte, kFlashBlock> block;
  encode_file_header(layout, block);
  TIERKV_RETURN_IF_ERROR(file->write_at(0, block));
  return start_backend(std::move(file), std::move(geometry), options);
}

Result<FlashLayout> FlashStore::read_layout(File& file) {
  alignas(kFlashBlock) std::array<std::byte, kFlashBlock> block;
  TIERKV_RETURN_IF_ERROR(file.read_at(0, block));
  Result<FlashLayout> layout = decode_file_header(block);
  return layout.ok() ? layout : layout.status().with_context(file.name());
}

Result<std::unique_ptr<FlashStore>> FlashStore::open(std::unique_ptr<File> file,
                                                     const FlashLayout& layout,
                                                     const FlashStoreOptions& options) {
  TIERKV_ASSIGN_OR_RETURN(const FlashLayout found, read_layout(*file));
  TIERKV_RETURN_IF_ERROR(check_same_layout(found, layout).with_context(file->name()));
  TIERKV_ASSIGN_OR_RETURN(FlashGeometry geometry, FlashGeometry::create(layout));
  return start_backend(std::move(file), std::move(geometry), options);
}

}  // namespace tierkv
