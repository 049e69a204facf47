#include "tokenizer/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "tokenizer/jinja/meter.h"
#include "tokenizer/jinja/string_literal.h"
#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// \r\n and \r become \n, and one newline at the end goes.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && source.substr(i, 2) == "\r\n") continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) text();
    emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void corrupt(std::string message) const {
    fail(StatusCode::kCorrupt, std::move(message), line_);
  }

  void emit(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
  }

  std::string_view take(size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  size_t space_length(std::string_view s) const { return s.size() - strip(s, kLeft).size(); }
  bool at_line_start() const {
    return rest_.size() == source_.size() || source_[source_.size() - rest_.size() - 1] == '\n';
  }

  // --- outside tags

  static size_t find_tag(std::string_view s) {
    for (size_t at = s.find('{'); at != std::string_view::npos; at = s.find('{', at + 1)) {
      const char next = at + 1 < s.size() ? s[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return s.size();
  }

  // The text before a tag, as the tag leaves it. `sign` is what follows the tag's opening bracket.
  std::string_view trimmed(std::string_view text, char sign, bool strips_line) const {
    if (sign == '-') return strip(text, kRight);
    if (sign == '+' || !strips_line) return text;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !at_line_start()) return text;
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    return strip(text.substr(line), kLeft).empty() ? text.substr(0, line) : text;
  }

  void emit_text(std::string_view text, size_t whole_length) {
    if (!text.empty()) emit(TokenKind::kText, text);
    take(whole_length);
  }

  static char sign_at(std::string_view s, size_t at) {
    const char c = at < s.size() ? s[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void text() {
    const size_t length = find_tag(rest_);
    if (length == rest_.size()) return emit_text(rest_, length);
    const char kind = rest_[length + 1], sign = sign_at(rest_, length + 2);
    emit_text(trimmed(rest_.substr(0, length), sign, kind != '{'), length);
    const size_t opening = sign != '\0' ? 3 : 2;
    if (kind == '#') return comment(opening);
    if (kind == '%' && raw_length(opening) > 0) return raw(opening);
    emit(kind == '%' ? TokenKind::kOpenBlock : TokenKind::kOpenValue, "");
    take(opening);
    tag(kind == '%');
  }

  void comment(size_t opening) {
    const size_t end = rest_.find("#}", opening);
    if (end == std::string_view::npos) corrupt("a comment has no end");
    const char sign = end > opening ? sign_at(rest_, end - 1) : '\0';
    take(end + 2);
    after_block(sign);
  }

  // What a block's or a comment's closing bracket does to the text behind it.
  void after_block(char sign) {
    if (sign == '-') take(space_length(rest_));
    if (sign == '\0' && rest_.starts_with('\n')) take(1);
  }

  // The length of "{% NAME %}" with any signs, if the tag at rest_ is that; else 0. Its last sign
  // is left in `close_sign`.
  static size_t bare_tag(std::string_view s, size_t opening, std::string_view name,
                         char* close_sign) {
    std::string_view left = strip(s.substr(opening), kLeft);
    if (!left.starts_with(name)) return 0;
    left = strip(left.substr(name.size()), kLeft);
    *close_sign = sign_at(left, 0);
    if (*close_sign != '\0') left.remove_prefix(1);
    return left.starts_with("%}") ? s.size() - left.size() + 2 : 0;
  }

  size_t raw_length(size_t opening) const {
    char sign = '\0';
    const size_t length = bare_tag(rest_, opening, "raw", &sign);
    return sign == '+' ? 0 : length;
  }

  void raw(size_t opening) {
    char sign = '\0';
    const size_t length = bare_tag(rest_, opening, "raw", &sign);
    take(length);
    if (sign == '-') take(space_length(rest_));
    for (size_t at = rest_.find("{%"); at != std::string_view::npos;
         at = rest_.find("{%", at + 1)) {
      const std::string_view end = rest_.substr(at);
      const char open_sign = sign_at(end, 2);
      const size_t end_length = bare_tag(end, open_sign != '\0' ? 3 : 2, "endraw", &sign);
      if (end_length == 0) continue;
      emit_text(trimmed(rest_.substr(0, at), open_sign, true), at);
      take(end_length);
      return after_block(sign);
    }
    corrupt("a raw block has no end");
  }

  // --- inside tags

  void tag(bool block) {
    brackets_.clear();
    while (true) {
      take(space_length(rest_));
      if (rest_.empty()) corrupt("a tag has no end");
      if (brackets_.empty() && close_tag(block)) return;
      const char c = rest_[0];
      if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        name();
      } else if (c == '"' || c == '\'') {
        string();
      } else {
        symbol();
      }
    }
  }

  bool close_tag(bool block) {
    char sign = sign_at(rest_, 0);
    if (!block && sign == '+') return false;
    const std::string_view closing = rest_.substr(sign != '\0' ? 1 : 0);
    if (!closing.starts_with(block ? "%}" : "}}")) return false;
    emit(block ? TokenKind::kCloseBlock : TokenKind::kCloseValue, "");
    take(sign != '\0' ? 3 : 2);
    if (block || sign == '-') after_block(sign);
    return true;
  }

  void name() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name_part);
    const auto length = static_cast<size_t>(end - rest_.begin());
    emit(TokenKind::kName, rest_.substr(0, length));
    take(length);
  }

  // Digits with single underscores between them.
  static size_t digits_length(std::string_view s) {
    size_t n = 0;
    while (n < s.size() && (is_digit(s[n]) || (n > 0 && s[n] == '_' && s[n - 1] != '_'))) ++n;
    return n > 0 && s[n - 1] == '_' ? n - 1 : n;
  }

  size_t exponent_length(std::string_view s) const {
    if (s.empty() || (s[0] | 0x20) != 'e') return 0;
    const size_t sign = s.size() > 1 && (s[1] == '+' || s[1] == '-') ? 1 : 0;
    const size_t digits = digits_length(s.substr(1 + sign));
    return digits == 0 ? 0 : 1 + sign + digits;
  }

  void number() {
    size_t length = digits_length(rest_);
    const size_t whole = length;
    const std::string_view after = rest_.substr(length);
    if (after.starts_with('.')) {
      const size_t fraction = digits_length(after.substr(1));
      if (fraction > 0) length += 1 + fraction;
    }
    length += exponent_length(rest_.substr(length));
    std::string text(take(length));
    std::erase(text, '_');
    if (length == whole && text.size() > 1 && text[0] == '0') corrupt("a number begins with 0");
    emit(length == whole ? TokenKind::kInteger : TokenKind::kFloat, text);
  }

  void string() {
    const size_t length = string_literal_length(rest_);
    if (length == 0) corrupt("a string has no end");
    emit(TokenKind::kString, unescape(rest_.substr(1, length - 2)));
    take(length);
  }

  void symbol() {
    constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingles = "+-*/%~[](){}<>=.:|,";
    const std::string_view two = rest_.substr(0, 2);
    const bool pair = std::find(std::begin(kPairs), std::end(kPairs), two) != std::end(kPairs);
    if (!pair && kSingles.find(rest_[0]) == std::string_view::npos) {
      corrupt("unexpected character " + quoted(rest_));
    }
    const std::string_view text = rest_.substr(0, pair ? 2 : 1);
    balance(text[0]);
    emit(TokenKind::kSymbol, text);
    take(text.size());
  }

  static std::string quoted(std::string_view s) {
    const CodePoint c = code_point_at(s, 0);
    if (c.value != kInvalid && c.value >= 0x20)
      return "'" + std::string(s.substr(0, c.bytes)) + "'";
    return format("0x%02x", static_cast<unsigned char>(s[0]));
  }

  // Inside brackets "}}" closes two dicts, not the tag.
  void balance(char c) {
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty() || brackets_.back() != c) {
      corrupt(std::string("'") + c + "' closes nothing that is open");
    }
    brackets_.pop_back();
  }

  const std::string source_;
  std::string_view rest_;  // of source_
  int line_ = 1;
  std::string brackets_;  // the closing ones still due, in the tag at hand
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalized(source)).run(); }

}  // namespace tierkv::jinja
