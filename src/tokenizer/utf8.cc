#include "tokenizer/utf8.h"

namespace tierkv {
namespace {

// What a lead byte announces. The second byte's range is narrower than 80..bf after e0, ed, f0 and
// f4 (RFC 3629, section 4), which is what keeps out overlong forms, surrogates and U+110000 and up.
struct Lead {
  int length;  // 0: never a lead byte
  unsigned char second_low = 0x80, second_high = 0xbf;
};

Lead classify(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xc2) return {0};
  if (byte < 0xe0) return {2};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  using Kind = Utf8Step::Kind;
  const auto byte = [&](int i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = classify(byte(0));
  if (lead.length == 0) return {Kind::kInvalid, 1};
  if (lead.length == 1) return {Kind::kCharacter, 1, byte(0)};
  char32_t code_point = byte(0) & (0x7fu >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Kind::kIncomplete, i};
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xbf;
    if (byte(i) < low || byte(i) > high) return {Kind::kInvalid, i};
    code_point = code_point << 6 | (byte(i) & 0x3fu);
  }
  return {Kind::kCharacter, lead.length, code_point};
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) return at;
    at += step.length;
  }
  return kUtf8Valid;
}

Status check_utf8(std::string_view text) {
  const size_t at = find_invalid_utf8(text);
  if (at == kUtf8Valid) return {};
  return invalid_argument(format(
      "the text is not valid UTF-8: byte 0x%02x at offset %zu is not part of a character; convert "
      "the text to UTF-8 first",
      static_cast<unsigned char>(text[at]), at));
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3f)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xc0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace tierkv
