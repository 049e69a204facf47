// Stores that outlive the process: what open() takes, and what it says of files that are not ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/memory_file.h"
#include "kv/flash_format.h"
#include "kv/flash_store.h"
#include "kv/flash_test_util.h"

namespace tierkv {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPayload = 9000;
const FlashLayout kLayout = {42, {kPayload, 0, kPayload}, 8};

// A file that stays when the store has gone.
class SharedFile : public File {
 public:
  explicit SharedFile(File& inner) : inner_(inner) {}
  Status read_at(uint64_t offset, std::span<std::byte> out) override {
    return inner_.read_at(offset, out);
  }
  Status write_at(uint64_t offset, std::span<const std::byte> data) override {
    return inner_.write_at(offset, data);
  }
  Result<uint64_t> size() override { return inner_.size(); }
  void drop_cache(uint64_t, uint64_t) override {}
  const std::string& name() const override { return inner_.name(); }

 private:
  File& inner_;
};

class FlashOpen : public ::testing::Test {
 protected:
  std::unique_ptr<File> share() { return std::make_unique<SharedFile>(file_); }
  void write_one() {
    auto store = FlashStore::create(share(), kLayout);
    ASSERT_TRUE(store.ok()) << store.status().message();
    fill_payload(buffer_.all(), kPayload, 2, 5);
    ASSERT_TRUE((*store)->wait((*store)->start_write(2, 5, buffer_.all())).ok());
  }
  Status open_as(const FlashLayout& layout) { return FlashStore::open(share(), layout).status(); }

  MemoryFile file_{{}, "a session"};
  AlignedBuffer buffer_{extent_buffer_bytes(kPayload)};
};

TEST_F(FlashOpen, WhatWasWrittenIsThereAndTheRestIsNot) {
  write_one();
  const auto layout = FlashStore::read_layout(file_);
  ASSERT_TRUE(layout.ok());
  auto store = FlashStore::open(share(), *layout);
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_TRUE((*store)->wait((*store)->start_read(2, 5, buffer_.all())).ok());
  EXPECT_TRUE(payload_matches(buffer_.all(), kPayload, 2, 5));
  EXPECT_EQ((*store)->wait((*store)->start_read(0, 5, buffer_.all())).code(), StatusCode::kCorrupt);
  fill_payload(buffer_.all(), kPayload, 0, 5);
  ASSERT_TRUE((*store)->wait((*store)->start_write(0, 5, buffer_.all())).ok());
  EXPECT_TRUE((*store)->wait((*store)->start_read(0, 5, buffer_.all())).ok());
}

TEST_F(FlashOpen, AnotherLayoutIsNamed) {
  write_one();
  struct Case {
    FlashLayout layout;
    const char* says;
  };
  for (const Case& c : {Case{{43, {kPayload, 0, kPayload}, 8}, "another model"},
                        Case{{42, {kPayload, 0}, 8}, "3 layers, not 2"},
                        Case{{42, {kPayload, 4096, kPayload}, 8}, "layer 1 has 0 bytes"},
                        Case{{42, {kPayload, 0, kPayload}, 9}, "8 extents of a layer, not 9"}}) {
    const Status status = open_as(c.layout);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(c.says));
    EXPECT_THAT(status.message(), HasSubstr("a session"));
  }
}

TEST_F(FlashOpen, FilesThatAreNoStore) {
  EXPECT_EQ(open_as(kLayout).code(), StatusCode::kCorrupt) << "empty";
  ASSERT_TRUE(file_.write_at(0, std::vector<std::byte>(5000)).ok());
  EXPECT_EQ(open_as(kLayout).code(), StatusCode::kCorrupt) << "zeros";
  write_one();
  std::byte byte{99};
  ASSERT_TRUE(file_.write_at(41, {&byte, 1}).ok());  // in the sizes
  EXPECT_EQ(open_as(kLayout).code(), StatusCode::kCorrupt);
  write_one();
  ASSERT_TRUE(file_.write_at(8, {&byte, 1}).ok());  // the version
  EXPECT_EQ(open_as(kLayout).code(), StatusCode::kUnsupported);
}

TEST_F(FlashOpen, AnAbsurdLayoutIsRefusedBeforeAnythingIsWritten) {
  EXPECT_EQ(FlashStore::create(share(), {1, {}, 1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*file_.size(), 0u);
}

}  // namespace
}  // namespace tierkv
