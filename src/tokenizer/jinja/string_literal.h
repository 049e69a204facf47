// String literals inside tags, with Python's escapes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tierkv::jinja {

// The length with both quotes of the literal that `s` begins with; 0 when it has no end.
size_t string_literal_length(std::string_view s);

// The text of a literal, given without its quotes. An escape that Python doesn't know stays as it
// is.
std::string unescape(std::string_view s);

}  // namespace tierkv::jinja
