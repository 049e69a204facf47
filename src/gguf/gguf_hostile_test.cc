// Files made to break the parser: each must be refused with a sentence that says what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/memory_file.h"
#include "gguf/gguf.h"
#include "gguf/test_writer.h"

namespace tierkv {
namespace {

using ::testing::HasSubstr;
using Tensor = GgufTestWriter::Tensor;

constexpr uint32_t kString = 8, kArray = 9, kBool = 7, kF32 = 0, kQ4_0 = 2, kQ4_K = 12;
constexpr uint64_t kHuge = uint64_t{1} << 62;
constexpr StatusCode kCorrupt = StatusCode::kCorrupt, kUnsupported = StatusCode::kUnsupported;

Result<GgufFile> parse(const std::vector<std::byte>& bytes) {
  return GgufFile::parse(std::make_unique<MemoryFile>(bytes, "hostile.gguf"));
}

GgufTestWriter small_file() {
  GgufTestWriter writer;
  writer.set_alignment(32).add("name", "a model").add("on", true).add("rate", 0.5);
  writer.add("tokens", std::vector<std::string>{"a", "bc"}).add("ids", std::vector<int16_t>{1, 2});
  writer.add_tensor({"first", {8}, kF32, std::vector<std::byte>(32), {}, {}});
  writer.add_tensor({"second", {32, 2}, kQ4_0, std::vector<std::byte>(36), {}, {}});
  return writer;
}

struct Hostile {
  const char* name;
  std::function<void(GgufTestWriter&)> spoil;
  StatusCode code;
  const char* expected;
};

void expect_refused(const std::vector<std::byte>& bytes, const Hostile& hostile) {
  SCOPED_TRACE(hostile.name);
  const auto file = parse(bytes);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), hostile.code) << file.status().message();
  EXPECT_THAT(file.status().message(), HasSubstr("hostile.gguf"));
  EXPECT_THAT(file.status().message(), HasSubstr(hostile.expected));
}

// Spoils the start of the small file, or adds one bad entry to it.
void expect_all_refused(std::initializer_list<Hostile> table) {
  for (const Hostile& hostile : table) {
    GgufTestWriter writer = small_file();
    hostile.spoil(writer);
    expect_refused(writer.bytes(), hostile);
  }
}

std::vector<std::byte> array_bytes(uint32_t kind, uint64_t count, std::string_view rest = "") {
  return ByteWriter().put(kind).put(count).raw(rest).bytes();
}

TEST(GgufHostile, TheSmallFileItselfIsFine) {
  const auto file = parse(small_file().bytes());
  EXPECT_TRUE(file.ok()) << file.status().message();
}

TEST(GgufHostile, Start) {
  using W = GgufTestWriter;
  expect_all_refused({
      {"other magic", [](W& w) { w.magic = "ELF\x7f"; }, kCorrupt, "begins with 'ELF\\x7f'"},
      {"reversed", [](W& w) { w.magic = "FUGG"; }, kUnsupported, "big-endian"},
      {"GGML", [](W& w) { w.magic = "lmgg"; }, kUnsupported, "old GGML file"},
      {"GGMF", [](W& w) { w.magic = "fmgg"; }, kUnsupported, "old GGMF file"},
      {"GGJT", [](W& w) { w.magic = "tjgg"; }, kUnsupported, "old GGJT file"},
      {"GGLA", [](W& w) { w.magic = "algg"; }, kUnsupported, "old GGLA adapter"},
      {"GGJT as read", [](W& w) { w.magic = "GGJT"; }, kUnsupported, "old GGJT file"},
      {"zip", [](W& w) { w.magic = "PK\3\4"; }, kUnsupported, "PyTorch or zip"},
      {"LFS", [](W& w) { w.magic = "version https"; }, kUnsupported, "Git LFS"},
      {"big-endian", [](W& w) { w.version = 0x03000000; }, kUnsupported, "big-endian"},
      {"version 0", [](W& w) { w.version = 0; }, kUnsupported, "version 0"},
      {"version 1", [](W& w) { w.version = 1; }, kUnsupported, "version 1; convert"},
      {"version 4", [](W& w) { w.version = 4; }, kUnsupported, "version 4; this program reads 2"},
      {"many keys", [](W& w) { w.claimed_metadata = 1000; }, kCorrupt, "claims 1000 metadata"},
      {"all keys", [](W& w) { w.claimed_metadata = UINT64_MAX; }, kCorrupt, "metadata entries"},
      {"many tensors", [](W& w) { w.claimed_tensors = 1000; }, kCorrupt, "claims 1000 tensors"},
      {"all tensors", [](W& w) { w.claimed_tensors = kHuge; }, kCorrupt, "more than its"},
      {"a tensor too many", [](W& w) { w.claimed_tensors = 3; }, kCorrupt, "tensor 2"},
      {"a key too few", [](W& w) { w.claimed_metadata = 5; }, kCorrupt, "tensor 0"},
      {"a key too many", [](W& w) { w.claimed_metadata = 7; }, kCorrupt, "tensor 0: has an empty"},
  });
}

TEST(GgufHostile, Metadata) {
  using W = GgufTestWriter;
  const auto length = [](uint64_t n) { return ByteWriter().put(n).bytes(); };
  expect_all_refused({
      {"duplicate", [](W& w) { w.add("name", true); }, kCorrupt, "key 'name' appears twice"},
      {"empty key", [](W& w) { w.add("", true); }, kCorrupt, "has an empty key"},
      {"long key", [](W& w) { w.add(std::string(65536, 'k'), true); }, kCorrupt, "65536 bytes"},
      {"kind 13", [](W& w) { w.add_raw("x", 13, {}); }, kCorrupt, "'x': has unknown kind 13"},
      {"kind huge", [](W& w) { w.add_raw("x", ~0u, {}); }, kCorrupt, "unknown kind 4294967295"},
      {"string past the end", [&](W& w) { w.add_raw("x", kString, length(9999)); }, kCorrupt,
       "'x': runs past the end"},
      {"string of 2^62", [&](W& w) { w.add_raw("x", kString, length(kHuge)); }, kCorrupt,
       "'x': runs past the end"},
      {"string of 2^64-1", [&](W& w) { w.add_raw("x", kString, length(UINT64_MAX)); }, kCorrupt,
       "'x': runs past the end"},
      {"bool of 2", [](W& w) { w.add_raw("x", kBool, ByteWriter().raw("\2").bytes()); }, kCorrupt,
       "bool with the value 2"},
      {"bool of 2 in an array", [](W& w) { w.add_raw("x", kArray, array_bytes(kBool, 1, "\2")); },
       kCorrupt, "bool with the value 2"},
      {"array of arrays", [](W& w) { w.add_raw("x", kArray, array_bytes(kArray, 1)); },
       kUnsupported, "array of arrays"},
      {"array of kind 99", [](W& w) { w.add_raw("x", kArray, array_bytes(99, 1)); }, kCorrupt,
       "unknown kind 99"},
      {"long array of bytes", [](W& w) { w.add_raw("x", kArray, array_bytes(0, 9999)); }, kCorrupt,
       "array of 9999 elements"},
      {"endless array of doubles", [](W& w) { w.add_raw("x", kArray, array_bytes(12, kHuge)); },
       kCorrupt, "more than the"},
      {"endless array of strings",
       [](W& w) { w.add_raw("x", kArray, array_bytes(kString, UINT64_MAX)); }, kCorrupt,
       "more than the"},
      {"string past the end in an array",
       [](W& w) { w.add_raw("x", kArray, array_bytes(kString, 1, "\xff\xff\xff\xff\0\0\0")); },
       kCorrupt, "element 0: runs past the end"},
      {"a key for a terminal", [](W& w) { w.add_raw("\x1b[31mred", 13, {}); }, kCorrupt,
       "'\\x1b[31mred'"},
  });
}

TEST(GgufHostile, Alignment) {
  const auto with = [](auto value) {
    GgufTestWriter writer;
    return writer.add("general.alignment", value).bytes();
  };
  const Hostile bad{"alignment", {}, kCorrupt, "general.alignment is"};
  for (const uint32_t value : {0u, 1u, 4u, 24u, 33u, 1u << 21, ~0u}) {
    expect_refused(with(value), bad);
  }
  expect_refused(with(int32_t{-32}), bad);
  expect_refused(with(std::string("32")), bad);
  EXPECT_TRUE(parse(with(uint32_t{1} << 20)).ok());
}

TEST(GgufHostile, TensorEntries) {
  const auto bytes = [](size_t n) { return std::vector<std::byte>(n); };
  const auto tensor = [](Tensor t) { return [t](GgufTestWriter& w) { w.add_tensor(t); }; };
  const std::string long_name(65536, 'n');
  expect_all_refused({
      {"duplicate", tensor({"first", {8}, kF32, bytes(32), {}, {}}), kCorrupt,
       "tensor 'first' appears twice"},
      {"no name", tensor({"", {8}, kF32, bytes(32), {}, {}}), kCorrupt, "has an empty name"},
      {"long name", tensor({long_name, {8}, kF32, bytes(32), {}, {}}), kCorrupt, "65536 bytes"},
      {"no dimensions", tensor({"x", {}, kF32, bytes(4), {}, {}}), kCorrupt, "has 0 dimensions"},
      {"5 dimensions", tensor({"x", {1, 1, 1, 1, 1}, kF32, bytes(4), {}, {}}), kCorrupt,
       "has 5 dimensions"},
      {"2^32-1 dimensions", tensor({"x", {1}, kF32, bytes(4), {}, ~0u}), kCorrupt,
       "has 4294967295 dimensions"},
      {"zero dimension", tensor({"x", {8, 0}, kF32, bytes(4), {}, {}}), kCorrupt,
       "a dimension of 0"},
      {"2^64 elements", tensor({"x", {1ull << 32, 1ull << 32}, kF32, bytes(4), {}, {}}), kCorrupt,
       "more elements than 63 bits"},
      {"2^66 elements that wrap to 0",
       tensor({"x", {1ull << 22, 1ull << 22, 1ull << 22}, kF32, bytes(4), {}, {}}), kCorrupt,
       "more elements than 63 bits"},
      {"2^64 bytes", tensor({"x", {kHuge}, kF32, bytes(4), {}, {}}), kCorrupt,
       "more bytes than 63 bits"},
      {"type IQ4_XS", tensor({"x", {256}, 23, bytes(136), {}, {}}), kUnsupported,
       "'x': has type IQ4_XS, which this program cannot run; use a file with F32"},
      {"type MXFP4", tensor({"x", {32}, 39, bytes(17), {}, {}}), kUnsupported, "has type MXFP4"},
      {"removed type 4", tensor({"x", {32}, 4, bytes(32), {}, {}}), kUnsupported, "unknown type 4"},
      {"type 2^32-1", tensor({"x", {32}, ~0u, bytes(32), {}, {}}), kUnsupported,
       "unknown type 4294967295"},
      {"half a Q4_0 block", tensor({"x", {16, 2}, kQ4_0, bytes(18), {}, {}}), kCorrupt,
       "rows of 16 elements, not a multiple of the 32 of a Q4_0 block"},
      {"half a Q4_K block", tensor({"x", {128, 2}, kQ4_K, bytes(144), {}, {}}), kCorrupt,
       "not a multiple of the 256"},
  });
}

TEST(GgufHostile, TensorPlaces) {
  const std::vector<std::byte> data(32);
  const auto at = [&](uint64_t offset, uint64_t n = 8) {
    return [=](GgufTestWriter& w) { w.add_tensor({"x", {n}, kF32, data, offset, {}}); };
  };
  expect_all_refused({
      {"unaligned", at(97), kCorrupt, "offset 97, not a multiple of the alignment 32"},
      {"far away", at(1 << 20), kCorrupt, "'x' (32 bytes) runs past the end"},
      {"at 2^64-32", at(UINT64_MAX - 31), kCorrupt, "runs past the end"},
      {"longer than the file", at(96, 9), kCorrupt, "'x' (36 bytes) runs past the end"},
      {"over the first", at(0), kCorrupt, "'first' and 'x' overlap"},
      {"over the second's tail", at(64), kCorrupt, "'second' and 'x' overlap"},
      {"under the second's head", at(0, 16), kCorrupt, "overlap"},
  });
}

// A file as large as its claims: only the bound on memory stands between it and the machine.
class EndlessFile : public MemoryFile {
 public:
  using MemoryFile::MemoryFile;
  Result<uint64_t> size() override { return uint64_t{1} << 50; }
};

TEST(GgufHostile, HeadersLargerThanMemoryAreRefused) {
  for (const uint32_t kind : {0u, 7u, 8u, 12u}) {
    GgufTestWriter writer;
    writer.add_raw("x", kArray, array_bytes(kind, uint64_t{1} << 40));
    auto bytes = writer.bytes();
    bytes.resize(64 << 10);
    const auto file = GgufFile::parse(std::make_unique<EndlessFile>(bytes, "endless.gguf"));
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), StatusCode::kResourceExhausted) << file.status().message();
    EXPECT_THAT(file.status().message(), HasSubstr("endless.gguf"));
    EXPECT_THAT(file.status().message(), HasSubstr("1024 MiB of memory"));
  }
}

// The small file ends with its last tensor's last byte, so no prefix of it is whole.
TEST(GgufHostile, EveryPrefixIsAClearError) {
  const auto whole = small_file().bytes();
  ASSERT_NE(small_file().header_bytes().size() % 32, 0u) << "no prefix ends inside the padding";
  for (size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    const auto file = parse({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)});
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), StatusCode::kCorrupt) << file.status().message();
    EXPECT_THAT(file.status().message(), HasSubstr("hostile.gguf"));
    EXPECT_THAT(file.status().message(), HasSubstr(length == 0 ? "empty" : "truncated"));
  }
}

// What open() promises of a file that it accepts.
void expect_sound(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    ASSERT_LE(tensor.offset, file.file_bytes());
    ASSERT_LE(tensor.bytes, file.file_bytes() - tensor.offset);
    ASSERT_FALSE(tensor.name.empty());
    ASSERT_EQ(tensor.row_bytes() * tensor.n_rows(), tensor.bytes);
    const TensorTypeInfo& info = tensor_type_info(tensor.type);
    ASSERT_EQ(tensor.row_bytes() * info.block, tensor.n_cols() * info.bytes);
  }
}

TEST(GgufHostile, EverySingleBitFlipOfTheHeaderIsRefusedOrSound) {
  const auto header_bytes = small_file().header_bytes().size();
  auto bytes = small_file().bytes();
  int refused = 0;
  for (size_t bit = 0; bit < header_bytes * 8; ++bit) {
    SCOPED_TRACE(bit);
    const std::byte mask = std::byte{1} << (bit % 8);
    bytes[bit / 8] ^= mask;
    if (const auto file = parse(bytes); file.ok()) {
      expect_sound(*file);
    } else {
      ++refused;
      EXPECT_THAT(file.status().message(), HasSubstr("hostile.gguf"));
    }
    bytes[bit / 8] ^= mask;
  }
  EXPECT_GT(refused, static_cast<int>(header_bytes * 8 / 2));  // most bits are structure
}

}  // namespace
}  // namespace tierkv
