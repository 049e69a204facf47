#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tierkv {
namespace {

using Kind = Utf8Step::Kind;

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c == 0xd800) c = 0xe000;  // surrogates are no scalar values
    std::string text;
    append_utf8(c, text);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Kind::kCharacter) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, static_cast<int>(text.size()));
    ASSERT_EQ(utf8_length(static_cast<unsigned char>(text[0])), step.length);
  }
}

// Of all sequences of three bytes, a full check by decoding the definition: a sequence is valid if
// and only if it is what append_utf8 writes for some scalar value.
TEST(Utf8, RefusesEveryOtherSequence) {
  const auto spelt_by_a_scalar = [](std::string_view text, size_t length) {
    const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]) & 0x3fu; };
    char32_t c = static_cast<unsigned char>(text[0]);
    if (length == 2) c = (c & 0x1f) << 6 | at(1);
    if (length == 3) c = (c & 0x0f) << 12 | at(1) << 6 | at(2);
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return false;
    std::string again;
    append_utf8(c, again);
    return again == text.substr(0, length);
  };
  for (uint32_t bits = 0; bits < 1u << 24; bits += 3) {
    const char bytes[] = {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8),
                          static_cast<char>(bits)};
    const std::string_view text(bytes, 3);
    bool valid = false;
    for (size_t length = 1; length <= 3; ++length) valid |= spelt_by_a_scalar(text, length);
    ASSERT_EQ(utf8_step(text).kind == Kind::kCharacter, valid) << std::hex << bits;
  }
}

TEST(Utf8, NamesTheOffsetOfTheFirstWrongByte) {
  EXPECT_EQ(find_invalid_utf8(""), kUtf8Valid);
  EXPECT_EQ(find_invalid_utf8("caf\xc3\xa9"), kUtf8Valid);
  EXPECT_EQ(find_invalid_utf8("caf\xc3"), 3u);
  EXPECT_EQ(find_invalid_utf8("\xc3\xa9\xff"), 2u);
  EXPECT_EQ(find_invalid_utf8("ab\xed\xa0\x80"), 2u) << "a surrogate";
  EXPECT_EQ(find_invalid_utf8("ab\xc0\x80"), 2u) << "overlong";
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u) << "past U+10FFFF";
  EXPECT_NE(check_utf8("abc\xff").message().find("offset 3"), std::string::npos);
}

std::string stream(std::string_view first, std::string_view second) {
  Utf8Stream s;
  std::string out = s.push(first);
  EXPECT_EQ(find_invalid_utf8(out), kUtf8Valid);
  const std::string more = s.push(second);
  EXPECT_EQ(find_invalid_utf8(more), kUtf8Valid);
  return out + more + s.flush();
}

TEST(Utf8Stream, GivesWholeCharactersWhereverTheBytesAreSplit) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\n";
  for (size_t i = 0; i <= text.size(); ++i) {
    EXPECT_EQ(stream(text.substr(0, i), text.substr(i)), text) << i;
  }
}

TEST(Utf8Stream, GivesACharacterAsSoonAsItIsWhole) {
  Utf8Stream s;
  EXPECT_EQ(s.push("\xf0"), "");
  EXPECT_EQ(s.push("\x9f\x98"), "");
  EXPECT_EQ(s.push("\x80!"), "\xf0\x9f\x98\x80!");
  EXPECT_EQ(s.flush(), "");
}

// The maximal-subpart practice of the Unicode Standard, chapter 3.9, its own example (table 3-8).
TEST(Utf8Stream, ReplacesWhatCanNotBecomeACharacter) {
  const std::string bytes = "\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64";
  const std::string r = "\xef\xbf\xbd";
  for (size_t i = 0; i <= bytes.size(); ++i) {
    EXPECT_EQ(stream(bytes.substr(0, i), bytes.substr(i)),
              "a" + r + r + r + "b" + r + "c" + r + r + "d")
        << i;
  }
  Utf8Stream cut;
  EXPECT_EQ(cut.push("x\xe2\x82"), "x");
  EXPECT_EQ(cut.flush(), r);
  EXPECT_EQ(cut.flush(), "") << "flush leaves nothing behind";
}

TEST(Utf8Stream, AnySplitOfRandomBytesGivesTheSame) {
  std::mt19937 random(7);
  const unsigned char interesting[] = {0x41, 0x80, 0xbf, 0xc2, 0xe0, 0xa0, 0xed,
                                       0x9f, 0xf0, 0x90, 0xf4, 0x8f, 0xff};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += static_cast<char>(interesting[random() % 13]);
    const std::string whole = stream(bytes, "");
    for (size_t i = 1; i <= bytes.size(); ++i) {
      ASSERT_EQ(stream(bytes.substr(0, i), bytes.substr(i)), whole);
    }
  }
}

}  // namespace
}  // namespace tierkv
