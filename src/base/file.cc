#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

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

// Refused by file systems without it, such as tmpfs: buffered there.
void use_direct_io(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) (void)fcntl(fd, F_SETFL, flags | O_DIRECT);
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A file whose name is new is only safe once its directory is.
Status sync_directory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return os_error("opening the directory " + directory, errno);
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return error == 0 ? Status() : os_error("saving the directory " + directory, error);
}

// A process that was killed may keep its locks for a moment: the system ends its I/O first. On a
// machine with much else to do that took over .3 s.
constexpr int kLockTries = 300;
constexpr auto kLockPause = std::chrono::milliseconds(10);

Status lock_exclusive(int fd, const std::string& path) {
  for (int i = 0; i < kLockTries; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) return os_error("locking " + path, errno);
    std::this_thread::sleep_for(kLockPause);
  }
  return resource_exhausted(path + " is in use by another process; wait for it to end");
}

class RealFile : public File {
 public:
  // `temporary`: a name that the file has instead of its own until it is published, if any.
  RealFile(int fd, std::string name, std::string temporary = {})
      : fd_(fd), name_(std::move(name)), temporary_(std::move(temporary)) {}
  ~RealFile() override {
    if (!temporary_.empty()) unlink(temporary_.c_str());
    // io_uring may have the file open for a moment longer, but not locked.
    (void)flock(fd_, LOCK_UN);
    close(fd_);
  }

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

  Status sync() override {
    return fdatasync(fd_) == 0 ? Status() : os_error("saving " + name_, errno);
  }

  void discard(uint64_t offset, uint64_t length) override {
    (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(length));
  }

  Status publish() override {
    if (!give_name()) return os_error("creating " + name_, errno);
    temporary_.clear();
    return sync_directory(parent_of(name_));
  }

  bool still_named() override {
    struct stat ours, named;
    return fstat(fd_, &ours) == 0 && stat(name_.c_str(), &named) == 0 &&
           ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
  }

  const std::string& name() const override { return name_; }
  int descriptor() const override { return fd_; }

 private:
  static int64_t outcome(ssize_t moved) { return moved < 0 ? -errno : moved; }

  // Neither way replaces a file of that name.
  bool give_name() const {
    if (!temporary_.empty()) {
      return renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, name_.c_str(), RENAME_NOREPLACE) ==
             0;
    }
    const std::string self = "/proc/self/fd/" + std::to_string(fd_);
    return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name_.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }

  const int fd_;
  const std::string name_;
  std::string temporary_;
};

// A file without a name where the file system has such, else under a temporary one in `path`'s
// directory.
Result<std::unique_ptr<File>> create_unnamed(const std::string& path) {
  const std::string directory = parent_of(path);
  int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return std::unique_ptr<File>(new RealFile(fd, path));
  std::string temporary = path + ".new-XXXXXX";
  fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return os_error("creating " + path, errno);
  return std::unique_ptr<File>(new RealFile(fd, path, std::move(temporary)));
}

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

  Result<std::unique_ptr<File>> open_exclusive(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
      const int error = errno;
      if (error == ENOENT) return not_found("there is no file " + path);
      return os_error("opening " + path + " to read and write", error);
    }
    auto file = std::make_unique<RealFile>(fd, path);
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      return invalid_argument(path + " is not a regular file");
    }
    TIERKV_RETURN_IF_ERROR(lock_exclusive(fd, path));
    // Whoever had it before may have removed it.
    if (!file->still_named()) return not_found("there is no file " + path);
    use_direct_io(fd);
    return std::unique_ptr<File>(std::move(file));
  }

  Result<std::unique_ptr<File>> create_exclusive(const std::string& path) override {
    TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<File> file, create_unnamed(path));
    TIERKV_RETURN_IF_ERROR(lock_exclusive(file->descriptor(), path));
    use_direct_io(file->descriptor());
    return file;
  }

  Result<std::unique_ptr<File>> create_scratch(const std::string& directory) override {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
      return os_error("creating the flash directory " + directory, errno);
    }
    const int fd = open_nameless(directory);
    if (fd < 0) return os_error("creating a file in the flash directory " + directory, errno);
    use_direct_io(fd);
    return std::unique_ptr<File>(new RealFile(fd, directory + " (flash store)"));
  }
};

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem file_system;
  return file_system;
}

}  // namespace tierkv
