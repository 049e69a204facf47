// What the tests of the flash store share: a directory that goes away, aligned memory, payloads
// that say whose they are, and a disk that holds requests back.
#pragma once

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "kv/flash_store.h"

namespace tierkv {

class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tierkv-test-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TempDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string path_;
};

class AlignedBuffer {
 public:
  explicit AlignedBuffer(size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kFlashBlock, bytes))), bytes_(bytes) {
    std::memset(data_.get(), 0, bytes);
  }
  std::span<std::byte> all() { return {data_.get(), bytes_}; }
  std::span<std::byte> first(size_t bytes) { return all().first(bytes); }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_;
};

// Every byte depends on its place, so that no mixture of two extents looks right.
inline std::byte payload_byte(size_t i, int layer, int64_t extent) {
  uint64_t x = i * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(layer) * 0xbf58476d1ce4e5b9u +
               static_cast<uint64_t>(extent) * 0x94d049bb133111ebu;
  x ^= x >> 29;
  return static_cast<std::byte>(x * 0xbf58476d1ce4e5b9u >> 56);
}

inline void fill_payload(std::span<std::byte> buffer, uint64_t bytes, int layer, int64_t extent) {
  for (size_t i = 0; i < bytes; ++i) buffer[kFlashBlock + i] = payload_byte(i, layer, extent);
}

inline bool payload_matches(std::span<const std::byte> buffer, uint64_t bytes, int layer,
                            int64_t extent) {
  for (size_t i = 0; i < bytes; ++i) {
    if (buffer[kFlashBlock + i] != payload_byte(i, layer, extent)) return false;
  }
  return true;
}

// What this build and kernel have; tests that promise something of the store promise it of each.
inline std::vector<FlashBackend> available_backends() {
  std::vector<FlashBackend> backends = {FlashBackend::kPool};
  const TempDirectory directory;
  const FlashStoreOptions options = {.backend = FlashBackend::kUring};
  if (FlashStore::create(real_file_system(), directory.path(), {1, {100}, 1}, options).ok()) {
    backends.push_back(FlashBackend::kUring);
  }
  return backends;
}

struct BackendName {
  template <typename Info>
  std::string operator()(const Info& info) const {
    return flash_backend_name(info.param);
  }
};

// The real file system behind a gate: while it is closed, reads and writes do not come back.
class SlowFileSystem : public FileSystem, private IoHook {
 public:
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    return real_file_system().open_read(path);
  }
  Result<std::unique_ptr<File>> create_scratch(const std::string& directory) override {
    TIERKV_ASSIGN_OR_RETURN(auto inner, real_file_system().create_scratch(directory));
    return std::unique_ptr<File>(new GatedFile(std::move(inner), *this));
  }

  void close_gate() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open_gate() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }
  // "R" and "W" in the order the disk saw them.
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  void clear_log() {
    const std::lock_guard lock(mutex_);
    log_.clear();
  }

 private:
  class GatedFile : public File {
   public:
    GatedFile(std::unique_ptr<File> inner, SlowFileSystem& owner)
        : inner_(std::move(inner)), owner_(owner) {}
    Status read_at(uint64_t offset, std::span<std::byte> out) override {
      owner_.before(IoKind::kRead, out.size());
      const Status status = inner_->read_at(offset, out);
      owner_.after(IoKind::kRead, out);
      return status;
    }
    Status write_at(uint64_t offset, std::span<const std::byte> data) override {
      owner_.before(IoKind::kWrite, data.size());
      const Status status = inner_->write_at(offset, data);
      owner_.after(IoKind::kWrite, {});
      return status;
    }
    Result<uint64_t> size() override { return inner_->size(); }
    void drop_cache(uint64_t offset, uint64_t length) override {
      inner_->drop_cache(offset, length);
    }
    const std::string& name() const override { return inner_->name(); }
    int descriptor() const override { return inner_->descriptor(); }
    IoHook* hook() override { return &owner_; }

   private:
    std::unique_ptr<File> inner_;
    SlowFileSystem& owner_;
  };

  Order before(IoKind kind, size_t) override {
    const std::lock_guard lock(mutex_);
    log_ += kind == IoKind::kRead ? 'R' : 'W';
    return {};
  }
  void after(IoKind, std::span<std::byte>) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait(lock, [this] { return open_; });
    --waiting_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int waiting_ = 0;
  std::string log_;
};

}  // namespace tierkv
