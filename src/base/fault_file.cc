#include "base/fault_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace tierkv {
namespace {

constexpr size_t kShortBytes = 4096;  // O_DIRECT moves whole blocks

bool due(const std::atomic<int64_t>& at, int64_t now) { return at >= 0 && now >= at; }

// The call that fails: for ever with EIO, once with any other error.
int error_at(std::atomic<int64_t>& at, const std::atomic<int>& error, int64_t index) {
  if (!due(at, index)) return 0;
  if (error == 0) return EIO;
  at = FaultPlan::kNever;
  return error;
}

class PlannedFaults : public IoHook {
 public:
  explicit PlannedFaults(FaultPlan& plan) : plan_(plan) {}

  Order before(IoKind kind, size_t bytes) override {
    const bool read = kind == IoKind::kRead;
    const int64_t index = read ? plan_.reads++ : plan_.writes++;
    Order order;
    if (const int64_t every = plan_.short_every; every > 0 && index % every == 0) {
      order.most = kShortBytes;
    }
    if (read) {
      order.error = error_at(plan_.fail_read_at, plan_.read_error, index);
      if (plan_.flip_bit_in_read == index) flip_next_ = true;
      return order;
    }
    order.error = error_at(plan_.fail_write_at, plan_.write_error, index);
    if (order.error != 0) return order;
    const int64_t total = plan_.bytes_written += static_cast<int64_t>(std::min(bytes, order.most));
    if (plan_.disk_full_at >= 0 && total > plan_.disk_full_at) order.error = ENOSPC;
    if (plan_.tear_write_at == index) {
      order.most = bytes / 2 / 4096 * 4096;
      order.claims_all = true;
    }
    return order;
  }

  void after(IoKind kind, std::span<std::byte> data) override {
    if (kind == IoKind::kRead && !data.empty() && flip_next_.exchange(false)) {
      data[data.size() / 2] ^= std::byte{4};
    }
    if (const int64_t delay = plan_.delay_us; delay > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
    }
  }

 private:
  FaultPlan& plan_;
  std::atomic<bool> flip_next_{false};
};

class FaultFile : public File {
 public:
  FaultFile(std::unique_ptr<File> inner, FaultPlan& plan)
      : inner_(std::move(inner)), plan_(plan), faults_(plan) {}

  Status read_at(uint64_t offset, std::span<std::byte> out) override {
    return run({IoKind::kRead, name(), offset, out},
               [this](uint64_t at, auto part) { return inner_->read_at(at, part); });
  }
  Status write_at(uint64_t offset, std::span<const std::byte> data) override {
    const std::span<std::byte> all = {const_cast<std::byte*>(data.data()), data.size()};
    return run({IoKind::kWrite, name(), offset, all},
               [this](uint64_t at, auto part) { return inner_->write_at(at, part); });
  }
  Result<uint64_t> size() override { return inner_->size(); }
  void drop_cache(uint64_t offset, uint64_t length) override { inner_->drop_cache(offset, length); }
  Status sync() override {
    if (due(plan_.fail_sync_at, plan_.syncs++)) return os_error("saving " + name(), EIO);
    return inner_->sync();
  }
  void discard(uint64_t offset, uint64_t length) override { inner_->discard(offset, length); }
  Status publish() override { return inner_->publish(); }
  bool still_named() override { return inner_->still_named(); }
  const std::string& name() const override { return inner_->name(); }
  int descriptor() const override { return inner_->descriptor(); }
  IoHook* hook() override { return &faults_; }

 private:
  // The inner file's own errors pass as they are.
  template <typename Call>
  Status run(Transfer transfer, Call&& call) {
    Status own;
    const Status status =
        run_transfer(transfer, &faults_, [&](uint64_t at, std::span<std::byte> part) {
          own = call(at, part);
          return own.ok() ? static_cast<int64_t>(part.size()) : -int64_t{EIO};
        });
    return own.ok() ? status : own;
  }

  std::unique_ptr<File> inner_;
  FaultPlan& plan_;
  PlannedFaults faults_;
};

class FaultFileSystem : public FileSystem {
 public:
  FaultFileSystem(FileSystem& inner, FaultPlan& plan) : inner_(inner), plan_(plan) {}

  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    return wrap(inner_.open_read(path));
  }

  Result<std::unique_ptr<File>> open_exclusive(const std::string& path) override {
    return wrap(inner_.open_exclusive(path));
  }

  Result<std::unique_ptr<File>> create_exclusive(const std::string& path) override {
    if (plan_.fail_create) return io_error("creating " + path + ": injected EACCES");
    return wrap(inner_.create_exclusive(path));
  }

  Result<std::unique_ptr<File>> create_scratch(const std::string& directory) override {
    if (plan_.fail_create) return io_error("creating a file in " + directory + ": injected EACCES");
    return wrap(inner_.create_scratch(directory));
  }

 private:
  Result<std::unique_ptr<File>> wrap(Result<std::unique_ptr<File>> opened) {
    if (!opened.ok()) return opened;
    return std::unique_ptr<File>(new FaultFile(std::move(*opened), plan_));
  }

  FileSystem& inner_;
  FaultPlan& plan_;
};

}  // namespace

std::unique_ptr<FileSystem> make_fault_file_system(FileSystem& inner, FaultPlan& plan) {
  return std::make_unique<FaultFileSystem>(inner, plan);
}

}  // namespace tierkv
