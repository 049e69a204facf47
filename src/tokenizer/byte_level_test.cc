#include "tokenizer/byte_level.h"

#include <gtest/gtest.h>

#include <set>

#include "tokenizer/utf8.h"

namespace tierkv {
namespace {

TEST(ByteLevel, EveryByteHasItsOwnSpellingAndComesBack) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelt = byte_level_spelling(static_cast<unsigned char>(byte));
    EXPECT_EQ(find_invalid_utf8(spelt), kUtf8Valid);
    EXPECT_TRUE(seen.insert(spelt).second) << byte;
    EXPECT_EQ(byte_level_decode(spelt), std::string(1, static_cast<char>(byte)));
  }
}

TEST(ByteLevel, SpellsAsGpt2Does) {
  EXPECT_EQ(byte_level_spelling('a'), "a");
  EXPECT_EQ(byte_level_spelling(' '), "\u0120");
  EXPECT_EQ(byte_level_spelling('\n'), "\u010a");
  EXPECT_EQ(byte_level_spelling(0), "\u0100");
  EXPECT_EQ(byte_level_spelling(0x7f), "\u0121");
  EXPECT_EQ(byte_level_spelling(0xa0), "\u0142");
  EXPECT_EQ(byte_level_spelling(0xad), "\u0143");
  EXPECT_EQ(byte_level_spelling(0xff), "\u00ff");
}

TEST(ByteLevel, OtherCharactersStandForThemselves) {
  EXPECT_EQ(byte_level_decode("\u4e2d\u0120x"), "\u4e2d x");
  EXPECT_EQ(byte_level_decode("\xff\xc3"), "\xff\xc3");
}

}  // namespace
}  // namespace tierkv
