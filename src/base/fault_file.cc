#include "base/fault_file.h"

namespace tierkv {
namespace {

bool due(const std::atomic<int64_t>& at, int64_t now) { return at >= 0 && now >= at; }

class FaultFile : public File {
 public:
  FaultFile(std::unique_ptr<File> inner, FaultPlan& plan) : inner_(std::move(inner)), plan_(plan) {}

  Status read_at(uint64_t offset, std::span<std::byte> out) override {
    const int64_t index = plan_.reads++;
    if (due(plan_.fail_read_at, index)) return io_error("reading " + name() + ": injected EIO");
    TIERKV_RETURN_IF_ERROR(inner_->read_at(offset, out));
    if (plan_.flip_bit_in_read == index && !out.empty()) out[out.size() / 2] ^= std::byte{4};
    return {};
  }

  Status write_at(uint64_t offset, std::span<const std::byte> data) override {
    const int64_t index = plan_.writes++;
    if (due(plan_.fail_write_at, index)) return io_error("writing " + name() + ": injected EIO");
    const int64_t total = plan_.bytes_written += static_cast<int64_t>(data.size());
    if (plan_.disk_full_at >= 0 && total > plan_.disk_full_at) {
      return resource_exhausted("writing " + name() + ": No space left on device (injected)");
    }
    if (plan_.tear_write_at == index) data = data.first(data.size() / 2 / 4096 * 4096);
    return inner_->write_at(offset, data);
  }

  Result<uint64_t> size() override { return inner_->size(); }
  void drop_cache(uint64_t offset, uint64_t length) override { inner_->drop_cache(offset, length); }
  const std::string& name() const override { return inner_->name(); }

 private:
  std::unique_ptr<File> inner_;
  FaultPlan& plan_;
};

class FaultFileSystem : public FileSystem {
 public:
  FaultFileSystem(FileSystem& inner, FaultPlan& plan) : inner_(inner), plan_(plan) {}

  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    return wrap(inner_.open_read(path));
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
