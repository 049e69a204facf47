#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tierkv {
namespace {

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
    while (!out.empty()) {
      const ssize_t n = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return os_error("reading " + name_, errno);
      if (n == 0) {
        return corrupt(name_ + " is truncated: " +
                       format("%zu bytes missing at offset %llu", out.size(),
                              static_cast<unsigned long long>(offset)));
      }
      offset += static_cast<uint64_t>(n);
      out = out.subspan(static_cast<size_t>(n));
    }
    return {};
  }

  Status write_at(uint64_t offset, std::span<const std::byte> data) override {
    while (!data.empty()) {
      const ssize_t n = pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return os_error("writing " + name_, errno);
      if (n == 0) return io_error("writing " + name_ + ": the system wrote nothing");
      offset += static_cast<uint64_t>(n);
      data = data.subspan(static_cast<size_t>(n));
    }
    return {};
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

 private:
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
