// Small vocabularies and texts for the tokenizer's tests and its fuzz target.
#pragma once

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab.h"

namespace tierkv {

inline TokenId add_token(VocabData& data, std::string text, TokenKind kind = TokenKind::kNormal,
                         float score = 0) {
  data.tokens.push_back(std::move(text));
  data.kinds.push_back(kind);
  data.scores.push_back(score);
  return static_cast<TokenId>(data.tokens.size() - 1);
}

// All 256 bytes (ids 0 to 255, in order) and nothing else.
inline VocabData byte_level_vocab(std::string pre = "gpt-2") {
  VocabData data;
  data.model = "gpt2";
  data.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    add_token(data, byte_level_spelling(static_cast<unsigned char>(byte)));
  }
  return data;
}

// Adds the merge and the token it makes.
inline TokenId add_merge(VocabData& data, const std::string& left, const std::string& right) {
  data.merges.push_back(left + " " + right);
  return add_token(data, left + right);
}

// <unk>, <s>, </s> as Llama 2 has them, and the bytes: ids 3 to 258, in order.
inline VocabData spm_vocab() {
  VocabData data;
  data.model = "llama";
  add_token(data, "<unk>", TokenKind::kUnknown);
  add_token(data, "<s>", TokenKind::kControl);
  add_token(data, "</s>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    add_token(data, text, TokenKind::kByte);
  }
  return data;
}

// Valid UTF-8 of what makes trouble: all lengths, blanks, combining marks, joiners, controls.
inline std::string random_text(std::mt19937& random, int characters) {
  static constexpr char32_t kTroublesome[] = {
      0,      '\t',   '\n',    '\r',    ' ',     ' ',     '\'',     's',    'a',    'b',
      '1',    '<',    '>',     0x85,    0xa0,    0xad,    0xe9,     0x301,  0x5d0,  0x627,
      0x903,  0x200b, 0x200d,  0x202e,  0x3000,  0x4e2d,  0xac00,   0xfe0f, 0xfeff, 0xfffd,
      0xffff, 0x7f,   0x1f600, 0x1f3fd, 0x1f1e9, 0x20000, 0x10ffff,
  };
  std::string out;
  for (int i = 0; i < characters; ++i) {
    char32_t c = random() % 2 ? kTroublesome[random() % std::size(kTroublesome)]
                              : static_cast<char32_t>(random() % 0x110000);
    if (c >= 0xd800 && c < 0xe000) c = 'z';
    // U+2581 is SentencePiece's own spelling of a space: the one character that does not come back.
    if (c == 0x2581) c = 'z';
    append_utf8(c, out);
  }
  return out;
}

}  // namespace tierkv
