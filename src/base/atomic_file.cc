#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tierkv {
namespace {

Status cannot_write(const std::string& path, int error) {
  const std::string message = "writing " + path + ": " + std::strerror(error);
  return error == ENOSPC || error == EDQUOT
             ? resource_exhausted(message + "; free space there or choose another place")
             : io_error(message);
}

// 0, or errno.
int write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return fsync(fd) == 0 ? 0 : errno;
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status write_file_atomically(const std::string& path, std::string_view data) {
  const std::string directory = directory_of(path);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return cannot_write(directory, errno);
  }
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return cannot_write(path, errno);
  int error = write_all(fd, data);
  if (error == 0 && fchmod(fd, 0644) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return cannot_write(path, error);
  }
  // The rename itself, where directories can be synchronised: nothing depends on it but luck.
  const int folder = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    (void)fsync(folder);
    close(folder);
  }
  return {};
}

Result<std::string> read_small_file(FileSystem& file_system, const std::string& path,
                                    uint64_t most_bytes) {
  TIERKV_ASSIGN_OR_RETURN(const auto file, file_system.open_read(path));
  TIERKV_ASSIGN_OR_RETURN(const uint64_t bytes, file->size());
  if (bytes > most_bytes) {
    return invalid_argument(format("%s is too large: %llu bytes", path.c_str(),
                                   static_cast<unsigned long long>(bytes)));
  }
  std::string text(bytes, '\0');
  TIERKV_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace tierkv
