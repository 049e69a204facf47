// UTF-8, strictly as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tierkv {

struct Utf8Step {
  enum class Kind {
    kCharacter,   // `length` bytes are one character
    kInvalid,     // `length` bytes can't begin any character (the longest such prefix, at least 1)
    kIncomplete,  // the text ends inside a character that could still become valid
  };
  Kind kind;
  int length;  // 1 to 4
  char32_t code_point = 0;
};

// Looks at the first bytes of `text`, which must not be empty.
Utf8Step utf8_step(std::string_view text);

// How many bytes the character takes that begins with `lead`, a lead byte of valid UTF-8.
inline int utf8_length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

constexpr size_t kUtf8Valid = SIZE_MAX;
// The offset of the first byte that is not part of a whole character, or kUtf8Valid.
size_t find_invalid_utf8(std::string_view text);
// kInvalidArgument that names that offset.
Status check_utf8(std::string_view text);

// `code_point` must be a Unicode scalar value.
void append_utf8(char32_t code_point, std::string& out);

}  // namespace tierkv
