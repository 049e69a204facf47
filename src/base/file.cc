#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace tierkv {
namespace {

// A file that never had a name or, where the file system has no such thing (FAT, overlays), has
// just lost it. -1 and errno when there is none to be had.
int open_nameless(const std::string& directory) {
  const int nameless = open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0) return nameless;
  std::string path = directory + "/tierkv-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

class RealFile : public File {
 public:
  RealFile(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  ~RealFile() override { close(fd_); }

  Status read_at(uint64_t offset, std::span<std::byte> out) override {
    return run_transfer(
        {IoKind::kRead, name_, offset, out}, nullptr,
        [this](uint64_t at, std::span<std::byte> part) {
          return outcome(pread(fd_, part.data(), part.size(), static_cast<off_t>(at)));
        });
  }

  Status write_at(uint64_t offset, std::span<const std::byte> data) override {
    const std::span<std::byte> all = {const_cast<std::byte*>(data.data()), data.size()};
    return run_transfer(
        {IoKind::kWrite, name_, offset, all}, nullptr,
        [this](uint64_t at, std::span<std::byte> part) {
          return outcome(pwrite(fd_, part.data(), part.size(), static_cast<off_t>(at)));
        });
  }

  Result<uint64_t> size() override {
    struct stat info;
    if (fstat(fd_, &info) != 0) return os_error("examining " + name_, errno);
    return static_cast<uint64_t>(info.st_size);
  }

  void drop_cache(uint64_t offset, uint64_t length) override {
    posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_DONTNEED);
  }

  const std::string& name() const override { return name_; }
  int descriptor() const override { return fd_; }

 private:
  static int64_t outcome(ssize_t moved) { return moved < 0 ? -errno : moved; }

  const int fd_;
  const std::string name_;
};

class RealFileSystem : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    // O_NONBLOCK: opening a FIFO would wait for somebody to write to it.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return os_error("opening " + path, errno);
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      close(fd);
      return invalid_argument(path + " is not a regular file");
    }
    return std::unique_ptr<File>(new RealFile(fd, path));
  }

  Result<std::unique_ptr<File>> create(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return os_error("creating " + path, errno);
    return std::unique_ptr<File>(new RealFile(fd, path));
  }

  Result<std::unique_ptr<File>> create_scratch(const std::string& directory) override {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
      return os_error("creating the flash directory " + directory, errno);
    }
    const int fd = open_nameless(directory);
    if (fd < 0) return os_error("creating a file in the flash directory " + directory, errno);
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags | O_DIRECT);  // refused by tmpfs: buffered there
    return std::unique_ptr<File>(new RealFile(fd, directory + " (flash store)"));
  }
};

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem file_system;
  return file_system;
}

}  // namespace tierkv
