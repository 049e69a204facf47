// Two oracles: values worked out by hand, and the Python package `gguf` on random blocks.
#include "kernels/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tierkv {
namespace {

using Bytes = std::vector<uint8_t>;

std::vector<float> dequantized(const TensorTypeInfo& info, const Bytes& blocks) {
  const size_t n_elements = blocks.size() / info.bytes * info.block;
  std::vector<float> out(n_elements);
  dequantize(info.type, std::as_bytes(std::span(blocks)).data(), static_cast<int64_t>(n_elements),
             out.data());
  return out;
}

// A block of zeros but for some bytes, and some of the values that it stands for.
struct Golden {
  std::map<int, uint8_t> bytes;  // by position in the block
  std::map<int, float> values;   // by element
};

// float16: 0x3c00 is 1, 0x3800 is 0.5, 0x4000 is 2, 0xc000 is -2.
const std::map<TensorType, Golden> kGoldens = {
    {TensorType::kF32, {{{2, 0xc0}, {3, 0xbf}}, {{0, -1.5f}}}},
    {TensorType::kF16, {{{0, 0x01}, {1, 0x80}}, {{0, -0x1p-24f}}}},
    {TensorType::kBF16, {{{0, 0x49}, {1, 0x40}}, {{0, 3.140625f}}}},
    // d = 2. Byte 0 of the codes: elements 0 (low nibble) and 16 (high); zeros mean -8.
    {TensorType::kQ4_0,
     {{{1, 0x40}, {2, 0xf9}}, {{0, 2.0f}, {16, 14.0f}, {1, -16.0f}, {17, -16.0f}, {31, -16.0f}}}},
    // d = 0.5, m = -2. The last byte: elements 15 and 31.
    {TensorType::kQ4_1,
     {{{1, 0x38}, {3, 0xc0}, {19, 0x3f}}, {{15, 5.5f}, {31, -0.5f}, {0, -2.0f}, {30, -2.0f}}}},
    // d = 1; fifth bits of elements 1 and 30.
    {TensorType::kQ5_0,
     {{{1, 0x3c}, {2, 0x02}, {5, 0x40}, {7, 0x05}, {20, 0xa0}},
      {{1, 5.0f}, {30, 10.0f}, {0, -16.0f}, {17, -16.0f}, {14, -16.0f}}}},
    // d = 2, m = 1; fifth bits of elements 0 and 31.
    {TensorType::kQ5_1,
     {{{1, 0x40}, {3, 0x3c}, {4, 0x01}, {7, 0x80}, {8, 0x21}, {23, 0xf0}},
      {{0, 35.0f}, {31, 63.0f}, {16, 5.0f}, {15, 1.0f}}}},
    // d = 0.5; codes are signed bytes.
    {TensorType::kQ8_0,
     {{{1, 0x38}, {2, 0x80}, {33, 0x7f}}, {{0, -64.0f}, {31, 63.5f}, {1, 0.0f}}}},
    // d = 1, dmin = 0.5. Sub-block 0: scale 3, minimum 2. Sub-block 5: scale 0x1a (10 low bits in
    // byte 9 of the scales, 1 above bit 5 of byte 1), minimum 0x25 (5, and 2 atop byte 5).
    {TensorType::kQ4_K,
     {{{1, 0x3c},
       {3, 0x38},
       {4, 0x03},
       {8, 0x02},
       {5, 0x40},
       {9, 0x80},
       {13, 0x5a},
       {16, 0x07},
       {16 + 64 + 31, 0xb0}},
      {{0, 3 * 7 - 0.5f * 2},
       {1, -0.5f * 2},
       {5 * 32 + 31, 26 * 11 - 0.5f * 37},
       {5 * 32, -0.5f * 37},
       {4 * 32 + 31, 0.0f},
       {255, 0.0f}}}},
    // As above, with the fifth bits of code 0 of sub-block 0 and code 31 of sub-block 5.
    {TensorType::kQ5_K,
     {{{1, 0x3c},
       {3, 0x38},
       {4, 0x03},
       {8, 0x02},
       {5, 0x40},
       {9, 0x80},
       {13, 0x5a},
       {16, 0x01},
       {16 + 31, 0x20},
       {48, 0x07},
       {48 + 64 + 31, 0xb0}},
      {{0, 3 * 23 - 0.5f * 2},
       {1, -0.5f * 2},
       {5 * 32 + 31, 26 * 27 - 0.5f * 37},
       {5 * 32, -0.5f * 37},
       {4 * 32 + 31, 0.0f}}}},
    // d = 2. Element 0: scale 0 is 3, code 5 + 16 * 2 - 32. Element 128 + 64 + 1: scale 12 is -1,
    // high nibble of ql[65] is 9, high bits of qh[33] at bit 4 are 3: code 57 - 32.
    {TensorType::kQ6_K,
     {{{209, 0x40}, {192, 3}, {204, 0xff}, {0, 0x05}, {128, 0x02}, {65, 0x90}, {128 + 33, 0x30}},
      {{0, 2 * 3 * 5.0f},
       {1, 2 * 3 * -32.0f},
       {193, 2 * -1 * 25.0f},
       {192, 2 * -1 * -32.0f},
       {255, 0.0f}}}},
};

TEST(Dequantize, ValuesWorkedOutByHand) {
  for (const TensorTypeInfo& info : kTensorTypes) {
    ASSERT_TRUE(kGoldens.contains(info.type)) << info.name;
    const Golden& golden = kGoldens.at(info.type);
    Bytes blocks(info.bytes * 3);  // the one between is wanted: block boundaries count too
    for (const auto& [position, byte] : golden.bytes) {
      blocks[info.bytes + static_cast<size_t>(position)] = byte;
    }
    const std::vector<float> out = dequantized(info, blocks);
    for (const auto& [element, value] : golden.values) {
      EXPECT_EQ(out[info.block + static_cast<size_t>(element)], value)
          << info.name << " element " << element;
    }
  }
}

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Bit for bit: each value is one or two float32 products and a sum, in the same order on both
// sides.
TEST(Dequantize, RandomBlocksAgreeWithTheGgufPackage) {
  const char* directory = std::getenv("TIERKV_ORACLE_DIR");
  ASSERT_NE(directory, nullptr) << "run this through ctest, which makes the oracle's files with "
                                   "tests/oracle/dequantize.py and sets TIERKV_ORACLE_DIR";
  for (const TensorTypeInfo& info : kTensorTypes) {
    const std::string stem = std::string(directory) + "/" + info.name;
    const Bytes blocks = read_file(stem + ".blocks");
    const Bytes expected = read_file(stem + ".f32");
    ASSERT_FALSE(blocks.empty()) << info.name;
    ASSERT_EQ(blocks.size() % info.bytes, 0u) << info.name;
    const std::vector<float> out = dequantized(info, blocks);
    ASSERT_EQ(out.size() * sizeof(float), expected.size()) << info.name;
    const std::vector<float> wanted =
        dequantized(tensor_type_info(TensorType::kF32), expected);  // the file's float32 values
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(wanted[i]))
          << info.name << " element " << i << ": " << out[i] << " and not " << wanted[i];
    }
  }
}

}  // namespace
}  // namespace tierkv
