// What SQLite does not do for the history's file: a private place for it, and its renaming when it
// is corrupt.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tierkv {

// Makes the file empty and private (0600) unless it exists, and directories that are missing
// (0700). An existing file of others' eyes is made private.
Status prepare_private_file(const std::string& path);

// A number that tells whether a path still names the same file; 0: there is none.
uint64_t file_identity(const std::string& path);

// While it is held the path keeps naming the same file: set_file_aside waits. Without it SQLite
// would take the journal of a new file for that of the old one, which it has open, and undo both.
class KeepInPlace {
 public:
  explicit KeepInPlace(const std::string& path);
  ~KeepInPlace();
  KeepInPlace(const KeepInPlace&) = delete;
  KeepInPlace& operator=(const KeepInPlace&) = delete;

 private:
  const int directory_;
};

// Renames the file, and the journal that belongs to it, to path.corrupt-TIME, unless it is no
// longer the one of that identity: another process was faster. Gives the new name, or "" then.
Result<std::string> set_file_aside(const std::string& path, uint64_t identity);

}  // namespace tierkv
