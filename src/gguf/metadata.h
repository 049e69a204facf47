// The metadata section of a GGUF file: key, kind, value, one after another.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/status.h"
#include "gguf/gguf.h"
#include "gguf/reader.h"

namespace tierkv {

using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// The fewest bytes that an entry takes: length of the key, a one-byte key, kind, a one-byte value.
inline constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
// The format's own limit for keys; tensor names are held to it too.
inline constexpr uint64_t kMaxNameBytes = 65535;

Result<GgufMetadata> read_metadata(GgufReader& reader, uint64_t count);

// "uint", "array of strings": what a value is, for messages.
const char* value_kind_name(const GgufValue& value);

}  // namespace tierkv
