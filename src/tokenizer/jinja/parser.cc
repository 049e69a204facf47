#include "tokenizer/jinja/parser.h"

#include <algorithm>
#include <utility>

namespace tierkv::jinja {

Block parse(std::string_view source, const Limits& limits) {
  return Parser(tokenize(source), limits).template_body();
}

// --- tokens

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

bool Parser::at(TokenKind kind, std::string_view text) const {
  return peek().kind == kind && peek().text == text;
}

bool Parser::accept_symbol(std::string_view text) {
  const bool there = at_symbol(text);
  if (there) take();
  return there;
}

bool Parser::accept_name(std::string_view text) {
  const bool there = at_name(text);
  if (there) take();
  return there;
}

void Parser::expect_symbol(std::string_view text) {
  if (!accept_symbol(text)) unexpected(format("'%s'", std::string(text).c_str()).c_str());
}

void Parser::expect_name(std::string_view text) {
  if (!accept_name(text)) unexpected(format("'%s'", std::string(text).c_str()).c_str());
}

std::string Parser::identifier() {
  constexpr std::string_view kReserved[] = {"and", "or", "not", "in", "is", "if", "else"};
  const bool reserved =
      std::find(std::begin(kReserved), std::end(kReserved), peek().text) != std::end(kReserved);
  if (peek().kind != TokenKind::kName || reserved) unexpected("a name");
  return take().text;
}

void Parser::close_block() {
  if (peek().kind != TokenKind::kCloseBlock) unexpected("the end of the tag");
  take();
}

void Parser::unexpected(const char* wanted) const {
  const Token& token = peek();
  std::string found = "'" + token.text.substr(0, 64) + "'";
  if (token.kind == TokenKind::kCloseBlock || token.kind == TokenKind::kCloseValue) {
    found = "the end of the tag";
  } else if (token.kind == TokenKind::kEnd) {
    found = "the end of the template";
  }
  fail(StatusCode::kCorrupt, format("expected %s, found %s", wanted, found.c_str()), token.line);
}

// --- blocks

Block Parser::template_body() { return block_until({}); }

// Statements up to a tag named in `ends`, whose name is then the next token (or, with no `ends`, up
// to the end of the template).
Block Parser::block_until(std::initializer_list<std::string_view> ends) {
  const DepthGuard guard(meter_);
  Block block;
  while (true) {
    const Token token = take();
    if (token.kind == TokenKind::kText) {
      block.push_back(Stmt{StmtKind::kText, token.line, token.text});
    } else if (token.kind == TokenKind::kOpenValue) {
      Stmt print{StmtKind::kPrint, token.line};
      print.value = tuple();
      if (peek().kind != TokenKind::kCloseValue) unexpected("the end of the tag");
      take();
      block.push_back(std::move(print));
    } else if (token.kind == TokenKind::kOpenBlock) {
      const bool name = peek().kind == TokenKind::kName;
      if (name && std::find(ends.begin(), ends.end(), peek().text) != ends.end()) return block;
      block.push_back(statement());
    } else {
      if (ends.size() > 0) unexpected(format("'%s'", std::data(ends)[0].data()).c_str());
      return block;
    }
  }
}

Block Parser::body_until(std::string_view end) {
  close_block();
  Block body = block_until({end});
  take();
  close_block();
  return body;
}

Stmt Parser::statement() {
  if (peek().kind != TokenKind::kName) unexpected("the name of a tag");
  const Token name = take();
  Stmt stmt{StmtKind::kText, name.line};
  if (name.text == "if") return if_statement(std::move(stmt));
  if (name.text == "for") return for_statement(std::move(stmt));
  if (name.text == "set") return set_statement(std::move(stmt));
  if (name.text == "with") return with_statement(std::move(stmt));
  if (name.text == "filter") return filter_statement(std::move(stmt));
  if (name.text == "macro") return macro_statement(std::move(stmt));
  if (name.text == "call") return call_statement(std::move(stmt));
  if (name.text == "generation") {
    stmt.kind = StmtKind::kGeneration;
    const int loops = std::exchange(loops_, 0);
    stmt.body = body_until("endgeneration");
    loops_ = loops;
    return stmt;
  }
  if (name.text == "break" || name.text == "continue") {
    stmt.kind = name.text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    return loop_control(std::move(stmt));
  }
  if (name.text.starts_with("end") || name.text.starts_with("el")) {
    fail(StatusCode::kCorrupt, "'" + name.text.substr(0, 64) + "' closes no open tag", name.line);
  }
  fail(StatusCode::kUnsupported, "the tag '" + name.text.substr(0, 64) + "' is not supported here",
       name.line);
}

Stmt Parser::loop_control(Stmt stmt) {
  if (loops_ == 0) fail(StatusCode::kCorrupt, "a break or continue is in no loop", stmt.line);
  close_block();
  return stmt;
}

Stmt Parser::if_statement(Stmt stmt) {
  stmt.kind = StmtKind::kIf;
  bool more = true;
  while (more) {
    ExprPtr condition = tuple(false);
    close_block();
    stmt.branches.push_back({std::move(condition), block_until({"endif", "elif", "else"})});
    more = accept_name("elif");
  }
  if (accept_name("else")) {
    close_block();
    stmt.branches.push_back({nullptr, block_until({"endif"})});
  }
  expect_name("endif");
  close_block();
  return stmt;
}

Stmt Parser::for_statement(Stmt stmt) {
  stmt.kind = StmtKind::kFor;
  stmt.target = target(false);
  expect_name("in");
  stmt.value = tuple(false);
  if (accept_name("if")) stmt.condition = expression();
  if (at_name("recursive")) {
    fail(StatusCode::kUnsupported, "recursive loops are not supported", peek().line);
  }
  close_block();
  ++loops_;
  stmt.body = block_until({"endfor", "else"});
  --loops_;
  if (accept_name("else")) {
    close_block();
    stmt.otherwise = block_until({"endfor"});
  }
  expect_name("endfor");
  close_block();
  return stmt;
}

Stmt Parser::set_statement(Stmt stmt) {
  stmt.target = target(true);
  if (accept_symbol("=")) {
    stmt.kind = StmtKind::kSet;
    stmt.value = tuple();
    close_block();
    return stmt;
  }
  stmt.kind = StmtKind::kSetBlock;
  stmt.value = node(ExprKind::kBlockText);
  if (accept_symbol("|")) stmt.value = filters(std::move(stmt.value));
  stmt.body = body_until("endset");
  return stmt;
}

Stmt Parser::with_statement(Stmt stmt) {
  stmt.kind = StmtKind::kWith;
  while (peek().kind != TokenKind::kCloseBlock) {
    if (!stmt.bindings.empty()) expect_symbol(",");
    ExprPtr name = target(false);
    expect_symbol("=");
    stmt.bindings.push_back({std::move(name), expression()});
  }
  stmt.body = body_until("endwith");
  return stmt;
}

Stmt Parser::filter_statement(Stmt stmt) {
  stmt.kind = StmtKind::kFilter;
  stmt.value = filters(node(ExprKind::kBlockText));
  stmt.body = body_until("endfilter");
  return stmt;
}

std::vector<Binding> Parser::signature() {
  std::vector<Binding> parameters;
  expect_symbol("(");
  while (!at_symbol(")")) {
    ExprPtr name = node(ExprKind::kName);
    name->name = identifier();
    ExprPtr otherwise = accept_symbol("=") ? expression() : nullptr;
    if (otherwise == nullptr && !parameters.empty() && parameters.back().value != nullptr) {
      unexpected("a default, as the parameters before have");
    }
    parameters.push_back({std::move(name), std::move(otherwise)});
    if (!accept_symbol(",")) break;
  }
  expect_symbol(")");
  return parameters;
}

void Parser::macro_body(Stmt& stmt, std::string_view end) {
  Stmt* const outer = std::exchange(macro_, &stmt);
  const int loops = std::exchange(loops_, 0);
  stmt.body = body_until(end);
  loops_ = loops;
  macro_ = outer;
}

Stmt Parser::macro_statement(Stmt stmt) {
  stmt.kind = StmtKind::kMacro;
  stmt.text = identifier();
  stmt.bindings = signature();
  macro_body(stmt, "endmacro");
  return stmt;
}

Stmt Parser::call_statement(Stmt stmt) {
  stmt.kind = StmtKind::kCall;
  if (at_symbol("(")) stmt.bindings = signature();
  stmt.value = expression();
  if (stmt.value->kind != ExprKind::kCall) unexpected("a call of a macro");
  stmt.text = "caller";
  macro_body(stmt, "endcall");
  return stmt;
}

}  // namespace tierkv::jinja
