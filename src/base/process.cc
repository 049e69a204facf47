#include "base/process.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstring>

#include "base/status.h"

namespace tierkv {
namespace {

// A "Name:   123 kB" line of /proc/self/status.
uint64_t status_kilobytes(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long kilobytes = 0;
  const size_t length = std::strlen(name);
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, name, length) == 0 && line[length] == ':') {
      std::sscanf(line + length + 1, "%llu", &kilobytes);
      break;
    }
  }
  std::fclose(file);
  return kilobytes * 1024;
}

}  // namespace

uint64_t resident_bytes() { return status_kilobytes("VmRSS"); }
uint64_t peak_resident_bytes() { return status_kilobytes("VmHWM"); }

bool reset_peak_resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return false;
  const bool written = std::fwrite("5", 1, 1, file) == 1;
  return std::fclose(file) == 0 && written;
}

std::string program_build() {
  struct stat info {};
  if (stat("/proc/self/exe", &info) != 0) return "unknown build";
  return format("%lld bytes, made %lld", static_cast<long long>(info.st_size),
                static_cast<long long>(info.st_mtime));
}

}  // namespace tierkv
