// The bytes of a flash store's file (docs/formats.md): one file header block, then one region per
// layer, then extents in it, each a header block and its payload padded to whole blocks. Little
// endian. Only offsets, encoding and checking: no I/O, so that every backend shares it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/flash_store.h"

namespace tierkv {

inline constexpr uint32_t kFlashVersion = 1;
inline constexpr int kMaxFlashLayers = 480;  // their payload sizes share the file header's block

// Where things lie, from a layout that was checked once.
class FlashGeometry {
 public:
  // kInvalidArgument: no layers, too many, no extents, or a file larger than 2^62 bytes.
  static Result<FlashGeometry> create(const FlashLayout& layout);

  const FlashLayout& layout() const { return layout_; }
  uint64_t offset(int layer, int64_t extent) const {
    return region_[layer] + static_cast<uint64_t>(extent) * stride(layer);
  }
  uint64_t stride(int layer) const { return extent_buffer_bytes(layout_.payload_bytes[layer]); }
  uint64_t end() const { return end_; }

 private:
  FlashLayout layout_;
  std::vector<uint64_t> region_;  // first byte of each layer's region
  uint64_t end_ = 0;              // of the file, when every extent has been written
};

// `block` has kFlashBlock bytes.
void encode_file_header(const FlashLayout& layout, std::span<std::byte> block);
// The layout a file was made with; kCorrupt, or kUnsupported for another format version.
Result<FlashLayout> decode_file_header(std::span<const std::byte> block);
// OK when the two are the same, else kInvalidArgument with the first thing that differs.
Status check_same_layout(const FlashLayout& found, const FlashLayout& wanted);

// `buffer` is a whole extent: header block and payload. seal_extent writes the header and zeroes
// the padding after the payload; check_extent is kCorrupt when anything does not match.
void seal_extent(const FlashLayout& layout, int layer, int64_t extent, std::span<std::byte> buffer);
Status check_extent(const FlashLayout& layout, int layer, int64_t extent,
                    std::span<const std::byte> buffer);
// The payload's checksum, from the header of an extent that was sealed or checked.
uint32_t extent_crc(std::span<const std::byte> buffer);

}  // namespace tierkv
