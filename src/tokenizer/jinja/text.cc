#include "tokenizer/jinja/text.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace tierkv::jinja {

CodePoint code_point_at(std::string_view s, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + length > s.size()) return {kInvalid, 1};
  char32_t c = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {kInvalid, 1};
    c = c << 6 | (byte(i) & 0x3fu);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xd800 && c < 0xe000;
  if (c < kLeast[length] || c > 0x10ffff || surrogate) return {kInvalid, 1};
  return {c, length};
}

void append_code_point(std::string& out, char32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    tail(12), tail(6), tail(0);
  }
}

size_t count_code_points(std::string_view s) {
  size_t n = 0;
  for (size_t i = 0; i < s.size(); i += code_point_at(s, i).bytes) ++n;
  return n;
}

std::vector<std::string_view> split_code_points(std::string_view s) {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < s.size(); i += out.back().size()) {
    out.push_back(s.substr(i, code_point_at(s, i).bytes));
  }
  return out;
}

size_t code_point_offset(std::string_view s, size_t index) {
  size_t i = 0;
  for (; index > 0 && i < s.size(); --index) i += code_point_at(s, i).bytes;
  return i;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7f;
  const bool format = c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
                      (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
  const bool private_use = (c >= 0xe000 && c <= 0xf8ff) || c >= 0xf0000;
  return c > 0xa0 && !is_space(c) && !format && !private_use;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const bool symbol = c == 0xd7 || c == 0xf7 || (c >= 0x2000 && c <= 0x2bff) ||
                      (c >= 0x3000 && c <= 0x3004) || (c >= 0x3008 && c <= 0x3020) ||
                      (c >= 0xe000 && c <= 0xf8ff) || (c >= 0x1f000 && c <= 0x1faff);
  return c != kInvalid && c > 0xbf && !symbol && !is_space(c);
}

namespace {

bool within(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// Blocks where capitals and small letters alternate; 0: none, 1: capitals are odd, 2: even.
int alternation(char32_t c) {
  if (within(c, 0x139, 0x148) || within(c, 0x179, 0x17e)) return 1;
  if (c == 0x130 || c == 0x131) return 0;
  if (within(c, 0x100, 0x137) || within(c, 0x14a, 0x177)) return 2;
  if (within(c, 0x460, 0x481) || within(c, 0x48a, 0x4bf) || within(c, 0x4d0, 0x52f)) return 2;
  return 0;
}

// The distance from a small letter down to its capital, in blocks that keep one.
struct Shift {
  char32_t first, last;  // small letters
  char32_t distance;
};
constexpr Shift kShifts[] = {
    {'a', 'z', 32},     {0xe0, 0xf6, 32},   {0xf8, 0xfe, 32},   {0x3ac, 0x3ac, 38},
    {0x3ad, 0x3af, 37}, {0x3b1, 0x3c1, 32}, {0x3c3, 0x3cb, 32}, {0x3cc, 0x3cc, 64},
    {0x3cd, 0x3ce, 63}, {0x430, 0x44f, 32}, {0x450, 0x45f, 80}, {0x561, 0x586, 48},
};

}  // namespace

char32_t to_upper(char32_t c) {
  for (const Shift& s : kShifts) {
    if (within(c, s.first, s.last)) return c - s.distance;
  }
  if (c == 0xff) return 0x178;
  if (c == 0x3c2) return 0x3a3;  // final sigma
  const int capitals = alternation(c);
  return capitals != 0 && c % 2 != static_cast<char32_t>(capitals % 2) ? c - 1 : c;
}

char32_t to_lower(char32_t c) {
  for (const Shift& s : kShifts) {
    if (within(c, s.first - s.distance, s.last - s.distance)) return c + s.distance;
  }
  if (c == 0x178) return 0xff;
  const int capitals = alternation(c);
  return capitals != 0 && c % 2 == static_cast<char32_t>(capitals % 2) ? c + 1 : c;
}

namespace {

template <typename Map>
std::string map_code_points(std::string_view s, Map map) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = code_point_at(s, i);
    if (c.value == kInvalid) {
      out += s[i];
    } else {
      append_code_point(out, map(c.value));
    }
    i += c.bytes;
  }
  return out;
}

}  // namespace

std::string upper(std::string_view s) {
  const std::string out = map_code_points(s, to_upper);
  return replace(out, "\u00df", "SS", out.size());
}

std::string lower(std::string_view s) { return map_code_points(s, to_lower); }

std::string capitalize(std::string_view s) {
  const size_t first = code_point_offset(s, 1);
  return upper(s.substr(0, first)) + lower(s.substr(first));
}

namespace {

bool strippable(std::string_view c, const std::string_view* set) {
  if (set == nullptr) return is_space(code_point_at(c, 0).value);
  for (size_t i = 0; i < set->size();) {
    const size_t bytes = code_point_at(*set, i).bytes;
    if (set->substr(i, bytes) == c) return true;
    i += bytes;
  }
  return false;
}

// The last code point of a text that isn't empty.
std::string_view last_code_point(std::string_view s) {
  for (size_t bytes = 2; bytes <= 4 && bytes <= s.size(); ++bytes) {
    if (code_point_at(s, s.size() - bytes).bytes == bytes) return s.substr(s.size() - bytes);
  }
  return s.substr(s.size() - 1);
}

}  // namespace

std::string_view strip(std::string_view s, Side side, const std::string_view* set) {
  while ((side & kLeft) && !s.empty()) {
    const std::string_view c = s.substr(0, code_point_at(s, 0).bytes);
    if (!strippable(c, set)) break;
    s.remove_prefix(c.size());
  }
  while ((side & kRight) && !s.empty()) {
    const std::string_view c = last_code_point(s);
    if (!strippable(c, set)) break;
    s.remove_suffix(c.size());
  }
  return s;
}

std::string replace(std::string_view s, std::string_view from, std::string_view to, size_t limit) {
  std::string out;
  size_t at = 0;
  while (limit-- > 0) {
    const size_t hit = s.find(from, at);
    if (hit == std::string_view::npos) break;
    out.append(s.substr(at, hit - at)).append(to);
    at = hit + from.size();
    if (!from.empty()) continue;
    if (at == s.size()) break;
    const size_t bytes = code_point_at(s, at).bytes;
    out.append(s.substr(at, bytes));
    at += bytes;
  }
  return out.append(s.substr(at));
}

std::vector<std::string_view> split_lines(std::string_view s) {
  std::vector<std::string_view> lines;
  while (!s.empty()) {
    const size_t end = s.find_first_of("\r\n");
    lines.push_back(s.substr(0, end));
    if (end == std::string_view::npos) break;
    s.remove_prefix(end + (s.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  return lines;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  const auto scientific =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific);
  const std::string_view view(text, static_cast<size_t>(scientific.ptr - text));
  const int exponent = std::atoi(std::string(view.substr(view.find('e') + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(view);
  const auto fixed = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed);
  std::string out(text, fixed.ptr);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

}  // namespace tierkv::jinja
