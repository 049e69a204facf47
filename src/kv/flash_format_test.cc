#include "kv/flash_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

namespace tierkv {
namespace {

using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

FlashLayout example_layout() { return {0xfeedface12345678, {10000, 0, 4096, 1}, 7}; }

Bytes sealed(const FlashLayout& layout, int layer, int64_t extent) {
  Bytes buffer(extent_buffer_bytes(layout.payload_bytes[layer]), std::byte{0xa5});
  seal_extent(layout, layer, extent, buffer);
  return buffer;
}

TEST(FlashFormat, RegionsAndExtentsDoNotOverlapAndAreAligned) {
  const FlashLayout layout = example_layout();
  const auto geometry = FlashGeometry::create(layout);
  ASSERT_TRUE(geometry.ok());
  uint64_t free_from = kFlashBlock;
  for (int layer = 0; layer < 4; ++layer) {
    if (layout.payload_bytes[layer] == 0) continue;
    for (int64_t extent = 0; extent < layout.max_extents; ++extent) {
      const uint64_t at = geometry->offset(layer, extent);
      EXPECT_EQ(at % kFlashBlock, 0u);
      EXPECT_EQ(at, free_from) << layer << " " << extent;
      free_from = at + extent_buffer_bytes(layout.payload_bytes[layer]);
    }
  }
  EXPECT_EQ(geometry->end(), free_from);
}

TEST(FlashFormat, RefusesAbsurdLayouts) {
  const std::vector<FlashLayout> bad = {{1, {}, 4},
                                        {1, {100}, 0},
                                        {1, {100}, -1},
                                        {1, {100, UINT64_MAX}, 2},
                                        {1, {uint64_t{1} << 40}, int64_t{1} << 40},
                                        {1, {uint64_t{1} << 61, uint64_t{1} << 61}, 1},
                                        {1, std::vector<uint64_t>(kMaxFlashLayers + 1, 1), 1}};
  for (const FlashLayout& layout : bad) {
    EXPECT_EQ(FlashGeometry::create(layout).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(FlashGeometry::create({1, std::vector<uint64_t>(kMaxFlashLayers, 1), 1}).ok());
}

TEST(FlashFormat, FileHeaderComesBack) {
  for (const FlashLayout& layout :
       {example_layout(), FlashLayout{0, std::vector<uint64_t>(kMaxFlashLayers, 9), 1}}) {
    Bytes block(kFlashBlock, std::byte{0xff});
    encode_file_header(layout, block);
    const auto decoded = decode_file_header(block);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(decoded->model_hash, layout.model_hash);
    EXPECT_EQ(decoded->payload_bytes, layout.payload_bytes);
    EXPECT_EQ(decoded->max_extents, layout.max_extents);
  }
}

TEST(FlashFormat, FileHeaderWithAnyBitFlippedIsRefused) {
  Bytes block(kFlashBlock);
  encode_file_header(example_layout(), block);
  for (size_t bit = 0; bit < block.size() * 8; bit += bit < 1024 ? 1 : 97) {
    Bytes flipped = block;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_file_header(flipped).ok()) << bit;
  }
}

TEST(FlashFormat, FileHeaderOfALaterVersionIsUnsupported) {
  Bytes block(kFlashBlock);
  encode_file_header(example_layout(), block);
  block[8] = std::byte{9};
  const auto decoded = decode_file_header(block);
  EXPECT_EQ(decoded.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(decoded.status().message(), HasSubstr("version 9"));
}

// A checksum keeps accidents out, not people: a file made on purpose must not lead out of bounds.
TEST(FlashFormat, HostileFileHeaderWithAGoodChecksumIsRefused) {
  struct Case {
    size_t offset;
    uint64_t value;
    size_t bytes;
  };
  for (const Case& c : {Case{12, 0xffffffff, 4}, Case{12, 0, 4}, Case{12, 481, 4},
                        Case{24, uint64_t{1} << 63, 8}, Case{24, 0, 8}, Case{40, UINT64_MAX, 8}}) {
    Bytes block(kFlashBlock);
    encode_file_header(example_layout(), block);
    std::memcpy(block.data() + c.offset, &c.value, c.bytes);
    std::memset(block.data() + 32, 0, 4);
    const uint32_t crc = crc32c(block);
    std::memcpy(block.data() + 32, &crc, 4);
    EXPECT_EQ(decode_file_header(block).status().code(), StatusCode::kCorrupt) << c.offset;
  }
}

TEST(FlashFormat, SealedExtentPassesAndItsPaddingIsZero) {
  const FlashLayout layout = example_layout();
  for (const int layer : {0, 2, 3}) {
    const Bytes buffer = sealed(layout, layer, 5);
    EXPECT_TRUE(check_extent(layout, layer, 5, buffer).ok());
    for (size_t i = kFlashBlock + layout.payload_bytes[layer]; i < buffer.size(); ++i) {
      ASSERT_EQ(buffer[i], std::byte{0});
    }
  }
}

TEST(FlashFormat, AnyBitOfHeaderOrPayloadFlippedIsNoticed) {
  const FlashLayout layout = example_layout();
  const Bytes good = sealed(layout, 0, 2);
  std::mt19937 random(1);
  std::vector<size_t> bits;
  for (size_t bit = 0; bit < 48 * 8; ++bit) bits.push_back(bit);
  for (int i = 0; i < 300; ++i) bits.push_back(8 * kFlashBlock + random() % 80000);
  for (const size_t bit : bits) {
    Bytes flipped = good;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(check_extent(layout, 0, 2, flipped).code(), StatusCode::kCorrupt) << bit;
  }
}

struct Mismatch {
  const char* name;
  std::function<void(FlashLayout&)> change;
  int layer;
  int64_t extent;
  const char* says;
};

TEST(FlashFormat, ExtentOfAnotherPlaceModelOrShapeIsRefused) {
  const Bytes buffer = sealed(example_layout(), 2, 3);
  const std::vector<Mismatch> cases = {
      {"model", [](FlashLayout& l) { l.model_hash = 1; }, 2, 3, "belongs to another model"},
      {"layer", [](FlashLayout& l) { l.payload_bytes[0] = 4096; }, 0, 3, "layer 2, extent 3 lies"},
      {"extent", [](FlashLayout&) {}, 2, 4, "layer 2, extent 3 lies"},
      {"shape", [](FlashLayout& l) { l.payload_bytes[2] = 4000; }, 2, 3, "4096 bytes, not 4000"}};
  for (const Mismatch& c : cases) {
    FlashLayout layout = example_layout();
    c.change(layout);
    const Status status = check_extent(layout, c.layer, c.extent, buffer);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << c.name;
    EXPECT_THAT(status.message(), HasSubstr(c.says)) << c.name;
  }
}

}  // namespace
}  // namespace tierkv
