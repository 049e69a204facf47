// A template's source as tokens. White space around tags is settled here, as Hugging Face sets
// Jinja up: trim_blocks (the newline after a block tag goes), lstrip_blocks (so do the blanks
// before one that begins its line), and one newline at the end of the template is dropped. "-" and
// "+" inside a tag's ends say otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tierkv::jinja {

enum class TokenKind {
  kText,  // outside tags, and inside raw blocks
  kOpenBlock,
  kCloseBlock,  // {% %}
  kOpenValue,
  kCloseValue,  // {{ }}
  kName,
  kString,
  kInteger,
  kFloat,
  kSymbol,  // operators and brackets
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;          // 1-based
  std::string text;  // a string's is unescaped, a number's has no underscores
};

// Ends with one kEnd. Faults are thrown as Error (kCorrupt) with their line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tierkv::jinja
