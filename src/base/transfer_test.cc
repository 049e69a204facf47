#include "base/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

namespace tierkv {
namespace {

using ::testing::HasSubstr;

const std::string kName = "a file";

struct Blocks {
  std::vector<std::byte> bytes = std::vector<std::byte>(4 * 4096);
  Transfer transfer(IoKind kind, uint64_t offset = 8192) { return {kind, kName, offset, bytes}; }
};

TEST(Transfer, AllAtOnce) {
  Blocks blocks;
  Transfer t = blocks.transfer(IoKind::kRead);
  EXPECT_EQ(t.offset(), 8192u);
  EXPECT_EQ(t.rest().size(), 16384u);
  EXPECT_TRUE(t.advance(16384));
  EXPECT_TRUE(t.status().ok());
}

TEST(Transfer, ShortCallsGoOnAtABlock) {
  Blocks blocks;
  for (const IoKind kind : {IoKind::kRead, IoKind::kWrite}) {
    Transfer t = blocks.transfer(kind);
    EXPECT_FALSE(t.advance(5000));
    EXPECT_EQ(t.offset(), 8192u + 4096);
    EXPECT_EQ(t.rest().data(), blocks.bytes.data() + 4096);
    EXPECT_FALSE(t.advance(8192));
    EXPECT_EQ(t.rest().size(), 4096u);
    EXPECT_TRUE(t.advance(4096));
    EXPECT_TRUE(t.status().ok());
  }
}

TEST(Transfer, OtherwiseShortCallsGoOnAtAByte) {
  Blocks blocks;
  Transfer t = blocks.transfer(IoKind::kRead, 100);
  EXPECT_FALSE(t.advance(5000));
  EXPECT_EQ(t.offset(), 5100u);
  EXPECT_TRUE(t.advance(16384 - 5000));
}

TEST(Transfer, InterruptedCallsAreRepeatedButNotForEver) {
  Blocks blocks;
  for (const int error : {EINTR, EAGAIN}) {
    Transfer t = blocks.transfer(IoKind::kWrite);
    EXPECT_FALSE(t.advance(-error));
    EXPECT_EQ(t.rest().size(), 16384u);
    EXPECT_TRUE(t.advance(16384));
    Transfer stuck = blocks.transfer(IoKind::kWrite);
    int calls = 0;
    while (!stuck.advance(-error)) ASSERT_LT(++calls, 10000);
    EXPECT_EQ(stuck.status().code(), StatusCode::kIoError);
    EXPECT_THAT(stuck.status().message(), HasSubstr("a file"));
  }
}

TEST(Transfer, TheEndOfTheFileIsATruncation) {
  Blocks blocks;
  for (const int64_t last : {0, 100, 4095}) {  // less than a block is nothing to go on with
    Transfer t = blocks.transfer(IoKind::kRead);
    EXPECT_FALSE(t.advance(4096));
    EXPECT_TRUE(t.advance(last));
    EXPECT_EQ(t.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(t.status().message(), HasSubstr("truncated: 12288 bytes missing at offset 12288"));
  }
}

TEST(Transfer, ErrorsHaveTheirCodes) {
  struct Case {
    int error;
    StatusCode code;
  };
  for (const Case& c :
       {Case{EIO, StatusCode::kIoError}, Case{ENOSPC, StatusCode::kResourceExhausted},
        Case{EDQUOT, StatusCode::kResourceExhausted}, Case{EROFS, StatusCode::kIoError}}) {
    Blocks blocks;
    Transfer t = blocks.transfer(IoKind::kWrite);
    EXPECT_TRUE(t.advance(-c.error));
    EXPECT_EQ(t.status().code(), c.code);
    EXPECT_THAT(t.status().message(), HasSubstr("writing a file"));
  }
  Blocks blocks;
  Transfer t = blocks.transfer(IoKind::kWrite);
  EXPECT_TRUE(t.advance(0));
  EXPECT_EQ(t.status().code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace tierkv
