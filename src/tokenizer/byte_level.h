// GPT-2's byte alphabet: every byte is spelt as one printable character, so that a vocabulary is
// readable text. Printable Latin-1 stands for itself; the other 68 bytes are U+0100, U+0101, ... in
// order (a space is U+0120). From the encoder of OpenAI's GPT-2 release.
#pragma once

#include <string>
#include <string_view>

namespace tierkv {

// The character that spells `byte`, as UTF-8.
std::string byte_level_spelling(unsigned char byte);

// The bytes that `text` spells. Characters outside the alphabet stand for themselves.
std::string byte_level_decode(std::string_view text);

}  // namespace tierkv
