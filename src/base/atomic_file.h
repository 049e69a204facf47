// Small files written so that a reader, or a crash, sees the old contents or the new, never a part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace tierkv {

// Writes a file beside `path`, waits until it is on the disk, and renames it. The directory is
// created (private) when only its last component is missing. On an error `path` is as it was.
Status write_file_atomically(const std::string& path, std::string_view data);

// The whole file; kInvalidArgument when it is larger than most_bytes.
Result<std::string> read_small_file(FileSystem& file_system, const std::string& path,
                                    uint64_t most_bytes);

}  // namespace tierkv
