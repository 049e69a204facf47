// Strings as Python sees them: sequences of code points. Text is UTF-8; a byte that belongs to no
// valid sequence counts as one code point of its own and is carried through unchanged.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tierkv::jinja {

// The code point at `s[at]`, and its length in bytes (1 for an invalid byte, whose value is
// kInvalid). `at` < s.size().
inline constexpr char32_t kInvalid = 0x110000;
struct CodePoint {
  char32_t value;
  size_t bytes;
};
CodePoint code_point_at(std::string_view s, size_t at);
void append_code_point(std::string& out, char32_t c);

size_t count_code_points(std::string_view s);
// One view per code point.
std::vector<std::string_view> split_code_points(std::string_view s);
// The byte offset of code point number `index`, or s.size().
size_t code_point_offset(std::string_view s, size_t index);

bool is_space(char32_t c);      // str.isspace()
bool is_printable(char32_t c);  // str.isprintable(), nearly
bool is_letter(char32_t c);     // str.isalpha(), nearly: past Latin-1 all but symbols
char32_t to_upper(char32_t c);  // Latin, Greek, Cyrillic and Armenian; others unchanged
char32_t to_lower(char32_t c);
std::string upper(std::string_view s);
std::string lower(std::string_view s);
std::string capitalize(std::string_view s);

// Without the code points of `set` at the ends; an empty `set` pointer means white space.
enum Side { kLeft = 1, kRight = 2, kBoth = 3 };
std::string_view strip(std::string_view s, Side side, const std::string_view* set = nullptr);

// str.replace: the first `limit` occurrences; an empty `from` stands between all code points.
std::string replace(std::string_view s, std::string_view from, std::string_view to, size_t limit);
// str.splitlines(), for the newlines that templates hold: \n, \r and \r\n.
std::vector<std::string_view> split_lines(std::string_view s);

std::string float_repr(double value);  // repr(float): the shortest text that reads back the same

}  // namespace tierkv::jinja
