#include "tokenizer/jinja/string_literal.h"

#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

// Reads at most `most` digits of `base` at the front of `s`.
size_t read_digits(std::string_view s, size_t most, unsigned base, char32_t* value) {
  size_t n = 0;
  *value = 0;
  for (; n < most && n < s.size(); ++n) {
    const char c = s[n];
    const char letter = static_cast<char>(c | 0x20);
    unsigned digit = base;
    if (c >= '0' && c <= '9') digit = static_cast<unsigned>(c - '0');
    if (letter >= 'a' && letter <= 'f') digit = static_cast<unsigned>(letter - 'a') + 10;
    if (digit >= base) break;
    *value = *value * base + digit;
  }
  return n;
}

// The escape at the front of `s`, which begins behind the backslash. Returns its length; 0:
// unknown.
size_t read_escape(std::string_view s, std::string& out) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
  const size_t simple = kLetters.find(s[0]);
  if (simple != std::string_view::npos) {
    out += kValues[simple];
    return 1;
  }
  if (s[0] == '\n') return 1;
  char32_t value = 0;
  if (const size_t octal = read_digits(s, 3, 8, &value); octal > 0) {
    append_code_point(out, value);
    return octal;
  }
  const size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
  if (digits == 0 || read_digits(s.substr(1), digits, 16, &value) < digits) return 0;
  append_code_point(out, value);
  return 1 + digits;
}

}  // namespace

size_t string_literal_length(std::string_view s) {
  for (size_t i = 1; i < s.size(); ++i) {
    if (s[i] == s[0]) return i + 1;
    if (s[i] == '\\') ++i;
  }
  return 0;
}

std::string unescape(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const size_t length = s[i] == '\\' && i + 1 < s.size() ? read_escape(s.substr(i + 1), out) : 0;
    if (length == 0) out += s[i];
    i += 1 + length;
  }
  return out;
}

}  // namespace tierkv::jinja
