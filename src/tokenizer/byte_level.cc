#include "tokenizer/byte_level.h"

#include <array>

#include "tokenizer/utf8.h"

namespace tierkv {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

constexpr int kUnprintable = 68;
constexpr char32_t kFirstStandIn = 0x100;

// Unprintable bytes in order: the byte that U+0100 + i spells.
constexpr auto kStandIns = [] {
  std::array<unsigned char, kUnprintable> bytes{};
  int n = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!is_printable(byte)) bytes[n++] = static_cast<unsigned char>(byte);
  }
  return bytes;
}();

}  // namespace

std::string byte_level_spelling(unsigned char byte) {
  char32_t code_point = byte;
  if (!is_printable(byte)) {
    code_point = kFirstStandIn;
    while (kStandIns[code_point - kFirstStandIn] != byte) ++code_point;
  }
  std::string out;
  append_utf8(code_point, out);
  return out;
}

std::string byte_level_decode(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const char32_t c = step.code_point;
    if (step.kind == Utf8Step::Kind::kCharacter && c < 0x100 && is_printable(c)) {
      out.push_back(static_cast<char>(c));
    } else if (c >= kFirstStandIn && c < kFirstStandIn + kUnprintable) {
      out.push_back(static_cast<char>(kStandIns[c - kFirstStandIn]));
    } else {
      out.append(text.substr(at, step.length));
    }
    at += step.length;
  }
  return out;
}

}  // namespace tierkv
