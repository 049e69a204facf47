// What stands between operators: literals, names, brackets, and what follows them.
#include <charconv>

#include "tokenizer/jinja/parser.h"

namespace tierkv::jinja {

ExprPtr Parser::primary() {
  switch (peek().kind) {
    case TokenKind::kName:
      return name_or_constant();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return number();
    case TokenKind::kString: {
      ExprPtr expr = node(ExprKind::kLiteral);
      std::string text;
      while (peek().kind == TokenKind::kString) text += take().text;
      expr->value = Value(std::move(text));
      return expr;
    }
    default:
      break;
  }
  if (at_symbol("(")) return parenthesised();
  if (at_symbol("[")) return list();
  if (at_symbol("{")) return dict();
  unexpected("a value");
}

ExprPtr Parser::name_or_constant() {
  ExprPtr expr = node(ExprKind::kLiteral);
  const std::string name = identifier();
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expr->value = Value(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    expr->value = Value(None{});
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name;
    if (macro_ != nullptr) {
      macro_->uses_varargs |= name == "varargs";
      macro_->uses_kwargs |= name == "kwargs";
      macro_->uses_caller |= name == "caller";
    }
  }
  return expr;
}

ExprPtr Parser::number() {
  ExprPtr expr = node(ExprKind::kLiteral);
  const Token token = take();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  std::errc error;
  if (token.kind == TokenKind::kInteger) {
    int64_t value = 0;
    error = std::from_chars(begin, end, value).ec;
    expr->value = Value(value);
  } else {
    double value = 0;
    error = std::from_chars(begin, end, value).ec;
    expr->value = Value(value);
  }
  if (error != std::errc()) fail(StatusCode::kUnsupported, "a number is too large", token.line);
  return expr;
}

ExprPtr Parser::parenthesised() {
  expect_symbol("(");
  if (accept_symbol(")")) return node(ExprKind::kTuple);
  ExprPtr expr = tuple();
  expect_symbol(")");
  return expr;
}

ExprPtr Parser::list() {
  ExprPtr expr = node(ExprKind::kList);
  expect_symbol("[");
  while (!at_symbol("]")) {
    expr->children.push_back(expression());
    if (!accept_symbol(",")) break;
  }
  expect_symbol("]");
  return finish(std::move(expr));
}

ExprPtr Parser::dict() {
  ExprPtr expr = node(ExprKind::kDict);
  expect_symbol("{");
  while (!at_symbol("}")) {
    expr->children.push_back(expression());
    expect_symbol(":");
    expr->children.push_back(expression());
    if (!accept_symbol(",")) break;
  }
  expect_symbol("}");
  return finish(std::move(expr));
}

// --- what follows an operand

ExprPtr Parser::postfix(ExprPtr expr) {
  while (true) {
    if (at_symbol(".")) {
      ExprPtr outer = node(ExprKind::kAttribute, std::move(expr));
      take();
      if (peek().kind == TokenKind::kInteger) {
        outer->kind = ExprKind::kItem;
        outer->children.push_back(number());
      } else {
        outer->name = peek().kind == TokenKind::kName ? take().text : identifier();
      }
      expr = finish(std::move(outer));
    } else if (at_symbol("[")) {
      expr = subscript(std::move(expr));
    } else if (at_symbol("(")) {
      expr = node(ExprKind::kCall, std::move(expr));
      arguments(*expr);
      expr = finish(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr object) {
  ExprPtr expr = node(ExprKind::kItem, std::move(object));
  expect_symbol("[");
  if (!at_symbol(":")) expr->children.push_back(expression());
  if (at_symbol(":")) {
    expr->kind = ExprKind::kSlice;
    expr->children.resize(2);  // an absent start is null
    for (int part = 0; part < 2 && accept_symbol(":"); ++part) {
      const bool absent = at_symbol(":") || at_symbol("]");
      expr->children.push_back(absent ? nullptr : expression());
    }
    expr->children.resize(4);
  }
  expect_symbol("]");
  return finish(std::move(expr));
}

ExprPtr Parser::filters_and_tests(ExprPtr expr) {
  while (true) {
    if (at_symbol("|")) {
      take();
      expr = filter(std::move(expr));
    } else if (at_name("is")) {
      expr = test(std::move(expr));
    } else if (at_symbol("(")) {
      expr = node(ExprKind::kCall, std::move(expr));
      arguments(*expr);
      expr = finish(std::move(expr));
    } else {
      return expr;
    }
  }
}

// The filters of a filter block or a set block: "a|b(c)".
ExprPtr Parser::filters(ExprPtr expr) {
  do {
    expr = filter(std::move(expr));
  } while (accept_symbol("|"));
  return expr;
}

ExprPtr Parser::filter(ExprPtr input) {
  ExprPtr expr = node(ExprKind::kFilter, std::move(input));
  expr->name = identifier();
  if (at_symbol("(")) arguments(*expr);
  return finish(std::move(expr));
}

ExprPtr Parser::test(ExprPtr input) {
  expect_name("is");
  const bool negated = accept_name("not");
  ExprPtr expr = node(ExprKind::kTest, std::move(input));
  if (peek().kind != TokenKind::kName) unexpected("the name of a test");
  expr->name = take().text;
  const TokenKind next = peek().kind;
  const bool operand = next == TokenKind::kString || next == TokenKind::kInteger ||
                       next == TokenKind::kFloat || at_symbol("[") || at_symbol("{");
  const bool keyword = at_name("else") || at_name("or") || at_name("and") || at_name("is") ||
                       at_name("if") || at_name("in") || at_name("not") || at_name("recursive");
  if (at_symbol("(")) {
    arguments(*expr);
  } else if (at_name("is")) {
    unexpected("one test, not a chain");
  } else if (operand || (next == TokenKind::kName && !keyword)) {
    expr->children.push_back(postfix(primary()));
  }
  expr = finish(std::move(expr));
  return negated ? finish(node(ExprKind::kNot, std::move(expr))) : std::move(expr);
}

void Parser::arguments(Expr& call) {
  expect_symbol("(");
  while (!at_symbol(")")) {
    const Token& next = peek(1);
    if (peek().kind == TokenKind::kName && next.kind == TokenKind::kSymbol && next.text == "=") {
      std::string name = identifier();
      take();
      call.named.emplace_back(std::move(name), expression());
    } else if (!call.named.empty()) {
      unexpected("a named argument, as those before it are");
    } else {
      call.children.push_back(expression());
    }
    if (!accept_symbol(",")) break;
  }
  expect_symbol(")");
}

}  // namespace tierkv::jinja
