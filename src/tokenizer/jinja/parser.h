// Source -> tree. Errors (kCorrupt for what is no Jinja, kUnsupported for tags we don't have) carry
// their line.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/lexer.h"

namespace tierkv::jinja {

Block parse(std::string_view source, const Limits& limits);

// Recursive descent in the order of Jinja's own ranks; parser.cc has the tags,
// expression_parser.cc the operators, operand_parser.cc what stands between them.
class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits)
      : tokens_(std::move(tokens)), meter_(limits) {}

  Block template_body();

 private:
  // Tokens.
  const Token& peek(size_t ahead = 0) const;
  Token take() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool at(TokenKind kind, std::string_view text) const;
  bool at_symbol(std::string_view text) const { return at(TokenKind::kSymbol, text); }
  bool at_name(std::string_view text) const { return at(TokenKind::kName, text); }
  bool accept_symbol(std::string_view text);
  bool accept_name(std::string_view text);
  void expect_symbol(std::string_view text);
  void expect_name(std::string_view text);
  std::string identifier();
  void close_block();
  [[noreturn]] void unexpected(const char* wanted) const;

  // Tags.
  Block block_until(std::initializer_list<std::string_view> ends);
  Block body_until(std::string_view end);
  Stmt statement();
  Stmt if_statement(Stmt stmt);
  Stmt for_statement(Stmt stmt);
  Stmt set_statement(Stmt stmt);
  Stmt with_statement(Stmt stmt);
  Stmt filter_statement(Stmt stmt);
  Stmt macro_statement(Stmt stmt);
  Stmt call_statement(Stmt stmt);
  Stmt loop_control(Stmt stmt);
  std::vector<Binding> signature();
  void macro_body(Stmt& stmt, std::string_view end);

  // Expressions.
  ExprPtr node(ExprKind kind) const;
  ExprPtr node(ExprKind kind, ExprPtr child) const;
  ExprPtr finish(ExprPtr expr) const;  // measures its depth
  ExprPtr target(bool attributes);
  ExprPtr target_item(bool attributes);
  ExprPtr tuple(bool conditional = true);  // a, b, c
  ExprPtr expression();
  ExprPtr or_expression();
  ExprPtr and_expression();
  ExprPtr not_expression();
  ExprPtr comparison();
  bool accept_comparison(Op* op);
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool filters = true);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr number();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr parenthesised();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr filters_and_tests(ExprPtr expr);
  ExprPtr filters(ExprPtr expr);
  ExprPtr subscript(ExprPtr object);
  ExprPtr filter(ExprPtr input);
  ExprPtr test(ExprPtr input);
  void arguments(Expr& call);

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  mutable Meter meter_;    // for its depth
  int loops_ = 0;          // that a break could leave
  Stmt* macro_ = nullptr;  // the innermost around
};

}  // namespace tierkv::jinja
