#include "kv/flash_format.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tierkv {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little endian");

constexpr uint64_t kFileMagic = 0x48534c46'564b5254;    // "TRKVFLSH"
constexpr uint64_t kExtentMagic = 0x544e5458'564b5254;  // "TRKVXTNT"
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;

struct FileHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t n_layers;
  uint64_t model_hash;
  int64_t max_extents;
  uint32_t crc;  // of this block with crc = 0
  uint32_t reserved;
};
static_assert(sizeof(FileHeader) == 40);
static_assert(sizeof(FileHeader) + kMaxFlashLayers * sizeof(uint64_t) <= kFlashBlock);

struct ExtentHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t layer;
  uint64_t model_hash;
  int64_t extent;
  uint64_t payload_bytes;
  uint32_t payload_crc;
  uint32_t header_crc;  // of the fields before it
};
static_assert(sizeof(ExtentHeader) == 48);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

uint32_t file_header_crc(FileHeader header, std::span<const std::byte> block) {
  header.crc = 0;
  return crc32c(block.subspan(sizeof header), crc32c(bytes_of(header)));
}

uint32_t extent_header_crc(const ExtentHeader& header) {
  return crc32c(bytes_of(header).first(offsetof(ExtentHeader, header_crc)));
}

Status damaged(const std::string& why) {
  return corrupt("the flash copy is damaged: " + why +
                 "; start the request again, and choose another flash directory if it recurs");
}

unsigned long long ull(uint64_t value) { return value; }

}  // namespace

Result<FlashGeometry> FlashGeometry::create(const FlashLayout& layout) {
  const auto& sizes = layout.payload_bytes;
  if (sizes.empty() || sizes.size() > kMaxFlashLayers || layout.max_extents < 1) {
    return invalid_argument(
        format("a flash store holds 1 to %d layers and at least one extent, not "
               "%zu and %lld",
               kMaxFlashLayers, sizes.size(), static_cast<long long>(layout.max_extents)));
  }
  FlashGeometry geometry;
  geometry.layout_ = layout;
  uint64_t at = kFlashBlock;
  for (const uint64_t payload : sizes) {
    geometry.region_.push_back(at);
    if (payload == 0) continue;
    const uint64_t room = (kMaxFileBytes - at) / static_cast<uint64_t>(layout.max_extents);
    if (payload > kMaxFileBytes || extent_buffer_bytes(payload) > room) {
      return invalid_argument(
          "the flash store would pass the largest size of a file; use a shorter "
          "context");
    }
    at += extent_buffer_bytes(payload) * static_cast<uint64_t>(layout.max_extents);
  }
  geometry.end_ = at;
  return geometry;
}

void encode_file_header(const FlashLayout& layout, std::span<std::byte> block) {
  std::fill(block.begin(), block.end(), std::byte{0});
  const auto sizes = std::as_bytes(std::span(layout.payload_bytes));
  std::copy(sizes.begin(), sizes.end(), block.begin() + sizeof(FileHeader));
  FileHeader header{.magic = kFileMagic,
                    .version = kFlashVersion,
                    .n_layers = static_cast<uint32_t>(layout.payload_bytes.size()),
                    .model_hash = layout.model_hash,
                    .max_extents = layout.max_extents,
                    .crc = 0,
                    .reserved = 0};
  header.crc = file_header_crc(header, block);
  std::memcpy(block.data(), &header, sizeof header);
}

Result<FlashLayout> decode_file_header(std::span<const std::byte> block) {
  FileHeader header;
  std::memcpy(&header, block.data(), sizeof header);
  if (header.magic != kFileMagic) return corrupt("not a flash store: its first bytes are wrong");
  if (header.version != kFlashVersion) {
    return unsupported(format("the flash store has format version %u, this build reads %u",
                              header.version, kFlashVersion));
  }
  if (header.crc != file_header_crc(header, block)) return damaged("the file header's checksum");
  FlashLayout layout{header.model_hash, {}, header.max_extents};
  if (header.n_layers > kMaxFlashLayers) return damaged("the number of layers is absurd");
  layout.payload_bytes.resize(header.n_layers);
  const auto sizes = std::as_writable_bytes(std::span(layout.payload_bytes));
  std::copy_n(block.begin() + sizeof header, sizes.size(), sizes.begin());
  if (!FlashGeometry::create(layout).ok()) return damaged("the shapes in its header are absurd");
  return layout;
}

Status check_same_layout(const FlashLayout& found, const FlashLayout& wanted) {
  if (found.model_hash != wanted.model_hash) {
    return invalid_argument(
        format("the flash store was made with another model (%016llx, not %016llx)",
               ull(found.model_hash), ull(wanted.model_hash)));
  }
  const auto& have = found.payload_bytes;
  const auto& want = wanted.payload_bytes;
  if (have.size() != want.size()) {
    return invalid_argument(
        format("the flash store has %zu layers, not %zu", have.size(), want.size()));
  }
  for (size_t layer = 0; layer < have.size(); ++layer) {
    if (have[layer] == want[layer]) continue;
    return invalid_argument(
        format("an extent of layer %zu has %llu bytes in the flash store, not %llu", layer,
               ull(have[layer]), ull(want[layer])));
  }
  if (found.max_extents == wanted.max_extents) return {};
  return invalid_argument(format("the flash store has room for %lld extents of a layer, not %lld",
                                 static_cast<long long>(found.max_extents),
                                 static_cast<long long>(wanted.max_extents)));
}

void seal_extent(const FlashLayout& layout, int layer, int64_t extent,
                 std::span<std::byte> buffer) {
  const uint64_t payload_bytes = layout.payload_bytes[layer];
  const auto payload = buffer.subspan(kFlashBlock, payload_bytes);
  const auto padding = buffer.subspan(kFlashBlock + payload_bytes);
  std::fill(padding.begin(), padding.end(), std::byte{0});
  ExtentHeader header{.magic = kExtentMagic,
                      .version = kFlashVersion,
                      .layer = static_cast<uint32_t>(layer),
                      .model_hash = layout.model_hash,
                      .extent = extent,
                      .payload_bytes = payload_bytes,
                      .payload_crc = crc32c(payload),
                      .header_crc = 0};
  header.header_crc = extent_header_crc(header);
  std::fill_n(buffer.begin(), kFlashBlock, std::byte{0});
  std::memcpy(buffer.data(), &header, sizeof header);
}

Status check_extent(const FlashLayout& layout, int layer, int64_t extent,
                    std::span<const std::byte> buffer) {
  ExtentHeader header;
  std::memcpy(&header, buffer.data(), sizeof header);
  if (header.magic != kExtentMagic) return damaged("there is no extent where one should be");
  if (header.header_crc != extent_header_crc(header))
    return damaged("its header's checksum is wrong");
  if (header.version != kFlashVersion) {
    return corrupt(format("the extent has format version %u, this build reads %u", header.version,
                          kFlashVersion));
  }
  if (header.model_hash != layout.model_hash) {
    return corrupt(format("the extent belongs to another model (%016llx, not %016llx)",
                          ull(header.model_hash), ull(layout.model_hash)));
  }
  if (header.layer != static_cast<uint32_t>(layer) || header.extent != extent) {
    return damaged(format("layer %u, extent %lld lies in its place", header.layer,
                          static_cast<long long>(header.extent)));
  }
  const uint64_t payload_bytes = layout.payload_bytes[layer];
  if (header.payload_bytes != payload_bytes) {
    return damaged(
        format("it has %llu bytes, not %llu", ull(header.payload_bytes), ull(payload_bytes)));
  }
  const uint32_t crc = crc32c(buffer.subspan(kFlashBlock, payload_bytes));
  if (crc == header.payload_crc) return {};
  return damaged(format("its checksum is %08x, not %08x", crc, header.payload_crc));
}

uint32_t extent_crc(std::span<const std::byte> buffer) {
  ExtentHeader header;
  std::memcpy(&header, buffer.data(), sizeof header);
  return header.payload_crc;
}

}  // namespace tierkv
