// Well-formed files: what was written is what is read. Hostile files: gguf_hostile_test.cc.
#include "gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cstdio>
#include <limits>

#include "base/fault_file.h"
#include "base/memory_file.h"
#include "gguf/test_writer.h"

namespace tierkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<GgufFile> parse(const std::vector<std::byte>& bytes) {
  return GgufFile::parse(std::make_unique<MemoryFile>(bytes, "model.gguf"));
}

GgufFile parse_valid(const GgufTestWriter& writer) {
  auto file = parse(writer.bytes());
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(*file) : GgufFile();
}

template <typename T>
const T* value_of(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

TEST(GgufMetadata, ScalarsOfEveryKindWiden) {
  GgufTestWriter writer;
  writer.add("u8", uint8_t{255}).add("u16", uint16_t{65535}).add("u32", uint32_t{4294967295u});
  writer.add("u64", uint64_t{UINT64_MAX}).add("i8", int8_t{-128}).add("i16", int16_t{-32768});
  writer.add("i32", int32_t{INT32_MIN}).add("i64", int64_t{INT64_MIN});
  writer.add("f32", 0.1f).add("f64", 0.1).add("yes", true).add("no", false);
  writer.add("text", "caf\xc3\xa9").add("empty", "");
  const GgufFile file = parse_valid(writer);
  EXPECT_EQ(*value_of<uint64_t>(file, "u8"), 255u);
  EXPECT_EQ(*value_of<uint64_t>(file, "u16"), 65535u);
  EXPECT_EQ(*value_of<uint64_t>(file, "u32"), 4294967295u);
  EXPECT_EQ(*value_of<uint64_t>(file, "u64"), UINT64_MAX);
  EXPECT_EQ(*value_of<int64_t>(file, "i8"), -128);
  EXPECT_EQ(*value_of<int64_t>(file, "i16"), -32768);
  EXPECT_EQ(*value_of<int64_t>(file, "i32"), INT32_MIN);
  EXPECT_EQ(*value_of<int64_t>(file, "i64"), INT64_MIN);
  EXPECT_EQ(*value_of<double>(file, "f32"), double{0.1f});
  EXPECT_EQ(*value_of<double>(file, "f64"), 0.1);
  EXPECT_TRUE(*value_of<bool>(file, "yes"));
  EXPECT_FALSE(*value_of<bool>(file, "no"));
  EXPECT_EQ(*value_of<std::string>(file, "text"), "caf\xc3\xa9");
  EXPECT_EQ(*value_of<std::string>(file, "empty"), "");
  EXPECT_EQ(file.metadata().size(), 14u);
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(GgufMetadata, ArraysOfEveryKindWiden) {
  GgufTestWriter writer;
  writer.add("u8", std::vector<uint8_t>{0, 255}).add("u16", std::vector<uint16_t>{65535});
  writer.add("u32", std::vector<uint32_t>{7}).add("u64", std::vector<uint64_t>{UINT64_MAX});
  writer.add("i8", std::vector<int8_t>{-1, 1}).add("i16", std::vector<int16_t>{-2});
  writer.add("i32", std::vector<int32_t>{-3}).add("i64", std::vector<int64_t>{INT64_MIN});
  writer.add("f32", std::vector<float>{0.5f, -1}).add("f64", std::vector<double>{1e300});
  writer.add("flags", std::vector<bool>{true, false, true});
  writer.add("texts", std::vector<std::string>{"a", "", "bc"});
  writer.add("none", std::vector<std::string>{});
  const GgufFile file = parse_valid(writer);
  EXPECT_THAT(*value_of<std::vector<uint64_t>>(file, "u8"), ElementsAre(0, 255));
  EXPECT_THAT(*value_of<std::vector<uint64_t>>(file, "u16"), ElementsAre(65535));
  EXPECT_THAT(*value_of<std::vector<uint64_t>>(file, "u32"), ElementsAre(7));
  EXPECT_THAT(*value_of<std::vector<uint64_t>>(file, "u64"), ElementsAre(UINT64_MAX));
  EXPECT_THAT(*value_of<std::vector<int64_t>>(file, "i8"), ElementsAre(-1, 1));
  EXPECT_THAT(*value_of<std::vector<int64_t>>(file, "i16"), ElementsAre(-2));
  EXPECT_THAT(*value_of<std::vector<int64_t>>(file, "i32"), ElementsAre(-3));
  EXPECT_THAT(*value_of<std::vector<int64_t>>(file, "i64"), ElementsAre(INT64_MIN));
  EXPECT_THAT(*value_of<std::vector<float>>(file, "f32"), ElementsAre(0.5f, -1.0f));
  EXPECT_THAT(*value_of<std::vector<double>>(file, "f64"), ElementsAre(1e300));
  EXPECT_THAT(*value_of<std::vector<bool>>(file, "flags"), ElementsAre(true, false, true));
  EXPECT_THAT(*value_of<std::vector<std::string>>(file, "texts"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(*value_of<std::vector<std::string>>(file, "none"), IsEmpty());
}

// Arrays longer than the reader's buffer and its chunks, at sizes that do not divide them.
TEST(GgufMetadata, LongArraysCrossBuffers) {
  std::vector<uint32_t> numbers(100'001);
  std::vector<std::string> texts(20'003);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint32_t>(i * 2654435761u);
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = std::to_string(i * i);
  const std::string big(300'000, 'x');
  GgufTestWriter writer;
  writer.add("odd", uint8_t{1}).add("numbers", numbers).add("big", big).add("texts", texts);
  GgufFile file = parse_valid(writer);
  const auto read = file.take_integers("numbers");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::equal(read->begin(), read->end(), numbers.begin(), numbers.end()));
  EXPECT_EQ(*file.get_string("big"), big);
  EXPECT_EQ(*file.take_strings("texts"), texts);
}

TEST(GgufAccess, TypedGetters) {
  GgufTestWriter writer;
  writer.add("u", uint32_t{7}).add("i", int32_t{8}).add("f", 0.5f).add("b", true).add("s", "x");
  const GgufFile file = parse_valid(writer);
  EXPECT_EQ(*file.get_uint("u"), 7u);
  EXPECT_EQ(*file.get_uint("i"), 8u);
  EXPECT_EQ(*file.get_uint("absent", 9), 9u);
  EXPECT_EQ(*file.get_float("f"), 0.5);
  EXPECT_EQ(*file.get_float("absent", 1.5), 1.5);
  EXPECT_TRUE(*file.get_bool("b", false));
  EXPECT_TRUE(*file.get_bool("absent", true));
  EXPECT_EQ(*file.get_string("s"), "x");
  EXPECT_EQ(*file.get_string("absent", "y"), "y");
}

void expect_error(const Status& status, StatusCode code, const char* key, const char* what) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("model.gguf"));
  EXPECT_THAT(status.message(), HasSubstr(key));
  EXPECT_THAT(status.message(), HasSubstr(what));
}

TEST(GgufAccess, MissingKeysAreNotFound) {
  GgufFile file = parse_valid(GgufTestWriter());
  for (const Status& status :
       {file.get_uint("absent").status(), file.get_float("absent").status(),
        file.get_string("absent").status(), file.take_strings("absent").status(),
        file.take_floats("absent").status(), file.take_integers("absent").status()}) {
    expect_error(status, StatusCode::kNotFound, "'absent'", "missing");
  }
}

TEST(GgufAccess, WrongKindsAreCorruptEvenWithAFallback) {
  GgufTestWriter writer;
  writer.add("text", "x").add("flag", true).add("whole", uint32_t{1});
  writer.add("texts", std::vector<std::string>{"x"});
  GgufFile file = parse_valid(writer);
  const StatusCode corrupt = StatusCode::kCorrupt;
  expect_error(file.get_uint("text", 1).status(), corrupt, "'text'", "is a string, not");
  expect_error(file.get_uint("flag").status(), corrupt, "'flag'", "is a bool, not");
  expect_error(file.get_float("text", 1).status(), corrupt, "'text'", "is a string, not");
  expect_error(file.get_float("whole").status(), corrupt, "'whole'", "is an unsigned integer, not");
  expect_error(file.get_bool("whole", true).status(), corrupt, "'whole'", "not a bool");
  expect_error(file.get_string("flag", "").status(), corrupt, "'flag'", "not a string");
  expect_error(file.take_strings("text").status(), corrupt, "'text'", "not an array of strings");
  expect_error(file.take_floats("texts").status(), corrupt, "'texts'", "is an array of strings");
  expect_error(file.take_integers("texts").status(), corrupt, "'texts'", "not an array of int");
}

TEST(GgufAccess, ValuesOutOfRangeAreCorrupt) {
  GgufTestWriter writer;
  writer.add("negative", int32_t{-1}).add("nan", std::numeric_limits<float>::quiet_NaN());
  writer.add("infinite", std::numeric_limits<double>::infinity());
  writer.add("wide", std::vector<double>{1, 1e39}).add("huge", std::vector<uint64_t>{1ull << 63});
  GgufFile file = parse_valid(writer);
  const StatusCode corrupt = StatusCode::kCorrupt;
  expect_error(file.get_uint("negative").status(), corrupt, "'negative'", "zero or more");
  expect_error(file.get_float("nan", 1).status(), corrupt, "'nan'", "finite");
  expect_error(file.get_float("infinite").status(), corrupt, "'infinite'", "finite");
  expect_error(file.take_floats("wide").status(), corrupt, "'wide'", "32-bit float");
  expect_error(file.take_integers("huge").status(), corrupt, "'huge'", "64-bit integer");
}

TEST(GgufAccess, ArraysAreTakenOnce) {
  GgufTestWriter writer;
  writer.add("texts", std::vector<std::string>{"a", "b"}).add("f32", std::vector<float>{1.5f});
  writer.add("f64", std::vector<double>{2.5, FLT_MAX}).add("i", std::vector<int8_t>{-1});
  writer.add("u", std::vector<uint16_t>{9}).add("flags", std::vector<bool>{true, false});
  GgufFile file = parse_valid(writer);
  EXPECT_THAT(*file.take_strings("texts"), ElementsAre("a", "b"));
  EXPECT_THAT(*file.take_strings("texts"), IsEmpty());
  EXPECT_THAT(*file.take_floats("f32"), ElementsAre(1.5f));
  EXPECT_THAT(*file.take_floats("f32"), IsEmpty());
  EXPECT_THAT(*file.take_floats("f64"), ElementsAre(2.5f, FLT_MAX));
  EXPECT_THAT(*file.take_floats("f64"), IsEmpty());
  EXPECT_THAT(*file.take_integers("i"), ElementsAre(-1));
  EXPECT_THAT(*file.take_integers("u"), ElementsAre(9));
  EXPECT_THAT(*file.take_integers("u"), IsEmpty());
  EXPECT_THAT(*file.take_integers("flags"), ElementsAre(1, 0));
  EXPECT_THAT(*file.take_integers("flags"), IsEmpty());
}

TEST(GgufTensors, ShapesAndPlaces) {
  GgufTestWriter writer;
  const auto floats = tensor_bytes(std::vector<float>{1, 2, 3});
  writer.add_tensor("norm", TensorType::kF32, {3}, floats);
  writer.add_tensor("weight", TensorType::kQ4_K, {512, 3, 2, 1},
                    std::vector<std::byte>(12 * 144, std::byte{5}));
  const GgufFile file = parse_valid(writer);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.find_tensor("absent"), nullptr);
  const GgufTensor& norm = *file.find_tensor("norm");
  const GgufTensor& weight = *file.find_tensor("weight");
  EXPECT_EQ(norm.n_cols(), 3u);
  EXPECT_EQ(norm.n_rows(), 1u);
  EXPECT_EQ(norm.row_bytes(), 12u);
  EXPECT_EQ(weight.type, TensorType::kQ4_K);
  EXPECT_THAT(weight.shape, ElementsAre(512, 3, 2, 1));
  EXPECT_EQ(weight.n_rows(), 6u);
  EXPECT_EQ(weight.bytes, 12u * 144);
  EXPECT_EQ(weight.row_bytes(), 288u);
  std::vector<std::byte> read(norm.bytes);
  ASSERT_TRUE(file.file().read_at(norm.offset, read).ok());
  EXPECT_EQ(read, floats);
  EXPECT_EQ(weight.offset + weight.bytes, file.file_bytes());
}

TEST(GgufTensors, EveryTypeHasItsSize) {
  for (const TensorTypeInfo& info : kTensorTypes) {
    GgufTestWriter writer;
    writer.add_tensor("t", info.type, {info.block * 2, 3}, std::vector<std::byte>(info.bytes * 6));
    const GgufFile file = parse_valid(writer);
    ASSERT_EQ(file.tensors().size(), 1u);
    EXPECT_EQ(file.tensors()[0].type, info.type) << info.name;
    EXPECT_EQ(file.tensors()[0].row_bytes(), info.bytes * 2) << info.name;
  }
}

TEST(GgufTensors, AlignmentMovesTheData) {
  for (const uint32_t alignment : {8u, 32u, 4096u}) {
    GgufTestWriter writer;
    writer.set_alignment(alignment);
    writer.add_tensor("a", TensorType::kF32, {1}, tensor_bytes(std::vector<float>{1}));
    writer.add_tensor("b", TensorType::kF32, {1}, tensor_bytes(std::vector<float>{2}));
    const GgufFile file = parse_valid(writer);
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.tensors()[0].offset % alignment, 0u);
    EXPECT_EQ(file.tensors()[1].offset, file.tensors()[0].offset + alignment);
  }
}

TEST(GgufTensors, DataMayComeInAnyOrder) {
  GgufTestWriter writer;
  writer.add_tensor({"second", {8}, 0, std::vector<std::byte>(32), 32, {}});
  writer.add_tensor({"first", {8}, 0, std::vector<std::byte>(32), 0, {}});
  const GgufFile file = parse_valid(writer);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.find_tensor("second")->offset, file.find_tensor("first")->offset + 32);
}

TEST(GgufFile, VersionTwoAndFilesWithoutTensors) {
  GgufTestWriter writer;
  writer.version = 2;
  const GgufFile file = parse_valid(writer.add("a", uint8_t{1}));
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.path(), "model.gguf");
  EXPECT_TRUE(file.tensors().empty());
}

// A file that counts what is read of it.
class CountingFile : public MemoryFile {
 public:
  CountingFile(std::vector<std::byte> bytes, uint64_t& read)
      : MemoryFile(std::move(bytes)), read_(read) {}
  Status read_at(uint64_t offset, std::span<std::byte> out) override {
    read_ += out.size();
    return MemoryFile::read_at(offset, out);
  }

 private:
  uint64_t& read_;
};

TEST(GgufFile, DoesNotReadTheTensors) {
  constexpr uint64_t kBuffer = 64 << 10;
  GgufTestWriter writer;
  writer.add("text", std::string(200'000, 'x'));
  writer.add_tensor("t", TensorType::kF32, {1 << 20}, std::vector<std::byte>(4 << 20));
  uint64_t read = 0;
  const auto file = GgufFile::parse(std::make_unique<CountingFile>(writer.bytes(), read));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_GE(read, writer.header_bytes().size());
  EXPECT_LE(read, writer.header_bytes().size() + kBuffer);
}

class GgufOnDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    GgufTestWriter writer;
    writer.add("key", "value");
    writer.add_tensor("t", TensorType::kF32, {2}, tensor_bytes(std::vector<float>{1, 2}));
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(std::fwrite(writer.bytes().data(), 1, writer.bytes().size(), file),
              writer.bytes().size());
    ASSERT_EQ(std::fclose(file), 0);
  }
  void TearDown() override { std::remove(path_.c_str()); }

  const std::string path_ = ::testing::TempDir() + "tierkv_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".gguf";
};

TEST_F(GgufOnDisk, Opens) {
  const auto file = GgufFile::open(real_file_system(), path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(*file->get_string("key"), "value");
  EXPECT_EQ(file->path(), path_);
}

TEST_F(GgufOnDisk, AMissingFileIsNotFound) {
  const auto file = GgufFile::open(real_file_system(), path_ + ".absent");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(file.status().message(), HasSubstr(path_ + ".absent"));
}

TEST_F(GgufOnDisk, AFailingDiskIsAnIoError) {
  FaultPlan plan;
  plan.fail_read_at = 0;
  const auto disk = make_fault_file_system(real_file_system(), plan);
  const auto file = GgufFile::open(*disk, path_);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kIoError);
  EXPECT_THAT(file.status().message(), HasSubstr(path_));
}

}  // namespace
}  // namespace tierkv
