#include "runtime/history_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

namespace tierkv {
namespace {

Status refused(const std::string& path) { return io_error(path + ": " + std::strerror(errno)); }

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status make_directories(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    return S_ISDIR(info.st_mode) ? Status() : io_error(path + " is not a directory");
  }
  if (errno != ENOENT) return refused(path);
  TIERKV_RETURN_IF_ERROR(make_directories(parent(path)));
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return refused(path);
  return {};
}

// A descriptor that is closed, and a lock on it released, at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// path.corrupt-2026-11-30T120000, with a number where that exists.
std::string free_name(const std::string& path) {
  char when[32];
  const time_t now = time(nullptr);
  struct tm utc;
  strftime(when, sizeof(when), "%Y-%m-%dT%H%M%S", gmtime_r(&now, &utc));
  const std::string name = path + ".corrupt-" + when;
  std::string candidate = name;
  for (int i = 2; file_identity(candidate) != 0; ++i) candidate = name + "-" + std::to_string(i);
  return candidate;
}

}  // namespace

Status prepare_private_file(const std::string& path) {
  TIERKV_RETURN_IF_ERROR(make_directories(parent(path)));
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct stat info;
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return refused(path);
  if (!S_ISREG(info.st_mode)) return io_error(path + " is not a regular file");
  if ((info.st_mode & 077) != 0 && fchmod(file.get(), 0600) != 0) return refused(path);
  return {};
}

KeepInPlace::KeepInPlace(const std::string& path)
    : directory_(open(parent(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (directory_ >= 0) (void)flock(directory_, LOCK_SH);
}

KeepInPlace::~KeepInPlace() {
  if (directory_ >= 0) close(directory_);
}

uint64_t file_identity(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

Result<std::string> set_file_aside(const std::string& path, uint64_t identity) {
  const Descriptor directory(open(parent(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || flock(directory.get(), LOCK_EX) != 0) return refused(parent(path));
  if (file_identity(path) != identity) return std::string();
  const std::string to = free_name(path);
  if (rename(path.c_str(), to.c_str()) != 0) return refused(path);
  const std::string journal = path + "-journal";
  if (rename(journal.c_str(), (to + "-journal").c_str()) != 0 && errno != ENOENT) {
    return refused(journal);
  }
  return to;
}

}  // namespace tierkv
