#include <algorithm>
#include <charconv>

#include "tokenizer/jinja/parser.h"

namespace tierkv::jinja {

ExprPtr Parser::node(ExprKind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = peek().line;
  return expr;
}

ExprPtr Parser::node(ExprKind kind, ExprPtr child) const {
  ExprPtr expr = node(kind);
  expr->children.push_back(std::move(child));
  return expr;
}

ExprPtr Parser::finish(ExprPtr expr) const {
  const auto include = [&](const ExprPtr& child) {
    if (child != nullptr) expr->depth = std::max(expr->depth, child->depth + 1);
  };
  for (const ExprPtr& child : expr->children) include(child);
  for (const auto& [name, child] : expr->named) include(child);
  meter_.check_depth(expr->depth);
  return expr;
}

// --- what is assigned to

ExprPtr Parser::target_item(bool attributes) {
  const DepthGuard guard(meter_);
  if (accept_symbol("(")) {
    ExprPtr inner = target(attributes);
    expect_symbol(")");
    return inner;
  }
  ExprPtr expr = node(ExprKind::kName);
  expr->name = identifier();
  if (!attributes || !accept_symbol(".")) return expr;
  ExprPtr attribute = node(ExprKind::kAttribute, std::move(expr));
  attribute->name = identifier();
  return finish(std::move(attribute));
}

ExprPtr Parser::target(bool attributes) {
  ExprPtr first = target_item(attributes);
  if (!at_symbol(",")) return first;
  ExprPtr tuple = node(ExprKind::kTuple, std::move(first));
  while (accept_symbol(",") && (peek().kind == TokenKind::kName || at_symbol("("))) {
    if (at_name("in")) break;
    tuple->children.push_back(target_item(attributes));
  }
  return finish(std::move(tuple));
}

// --- operators, from the loosest to the tightest

ExprPtr Parser::tuple(bool conditional) {
  const auto item = [&] { return conditional ? expression() : or_expression(); };
  const auto at_end = [&] {
    return peek().kind == TokenKind::kCloseBlock || peek().kind == TokenKind::kCloseValue ||
           at_symbol(")");
  };
  ExprPtr first = item();
  if (!at_symbol(",")) return first;
  ExprPtr expr = node(ExprKind::kTuple, std::move(first));
  while (accept_symbol(",") && !at_end()) expr->children.push_back(item());
  return finish(std::move(expr));
}

ExprPtr Parser::expression() {
  const DepthGuard guard(meter_);
  ExprPtr expr = or_expression();
  while (accept_name("if")) {
    ExprPtr conditional = node(ExprKind::kConditional, std::move(expr));
    conditional->children.push_back(or_expression());
    conditional->children.push_back(accept_name("else") ? expression() : nullptr);
    expr = finish(std::move(conditional));
  }
  return expr;
}

ExprPtr Parser::or_expression() {
  ExprPtr first = and_expression();
  if (!at_name("or")) return first;
  ExprPtr expr = node(ExprKind::kOr, std::move(first));
  while (accept_name("or")) expr->children.push_back(and_expression());
  return finish(std::move(expr));
}

ExprPtr Parser::and_expression() {
  ExprPtr first = not_expression();
  if (!at_name("and")) return first;
  ExprPtr expr = node(ExprKind::kAnd, std::move(first));
  while (accept_name("and")) expr->children.push_back(not_expression());
  return finish(std::move(expr));
}

ExprPtr Parser::not_expression() {
  if (!at_name("not")) return comparison();
  const DepthGuard guard(meter_);
  ExprPtr expr = node(ExprKind::kNot);
  take();
  expr->children.push_back(not_expression());
  return finish(std::move(expr));
}

bool Parser::accept_comparison(Op* op) {
  struct Spelled {
    std::string_view text;
    Op op;
  };
  constexpr Spelled kSymbols[] = {{"==", Op::kEqual},  {"!=", Op::kNotEqual},
                                  {"<", Op::kLess},    {"<=", Op::kLessEqual},
                                  {">", Op::kGreater}, {">=", Op::kGreaterEqual}};
  for (const Spelled& symbol : kSymbols) {
    *op = symbol.op;
    if (accept_symbol(symbol.text)) return true;
  }
  *op = Op::kIn;
  if (accept_name("in")) return true;
  *op = Op::kNotIn;
  const Token& next = peek(1);
  if (!at_name("not") || next.kind != TokenKind::kName || next.text != "in") return false;
  take(), take();
  return true;
}

ExprPtr Parser::comparison() {
  ExprPtr first = sum();
  Op op;
  if (!accept_comparison(&op)) return first;
  ExprPtr expr = node(ExprKind::kComparison, std::move(first));
  do {
    expr->ops.push_back(op);
    expr->children.push_back(sum());
  } while (accept_comparison(&op));
  return finish(std::move(expr));
}

ExprPtr Parser::sum() {
  ExprPtr first = concatenation();
  if (!at_symbol("+") && !at_symbol("-")) return first;
  ExprPtr expr = node(ExprKind::kArithmetic, std::move(first));
  while (at_symbol("+") || at_symbol("-")) {
    expr->ops.push_back(take().text == "+" ? Op::kAdd : Op::kSubtract);
    expr->children.push_back(concatenation());
  }
  return finish(std::move(expr));
}

ExprPtr Parser::concatenation() {
  ExprPtr first = product();
  if (!at_symbol("~")) return first;
  ExprPtr expr = node(ExprKind::kConcat, std::move(first));
  while (accept_symbol("~")) expr->children.push_back(product());
  return finish(std::move(expr));
}

ExprPtr Parser::product() {
  const auto accept = [&](Op* op) {
    *op = at_symbol("*")    ? Op::kMultiply
          : at_symbol("/")  ? Op::kDivide
          : at_symbol("//") ? Op::kFloorDivide
                            : Op::kModulo;
    return accept_symbol("*") || accept_symbol("/") || accept_symbol("//") || accept_symbol("%");
  };
  ExprPtr first = power();
  Op op;
  if (!accept(&op)) return first;
  ExprPtr expr = node(ExprKind::kArithmetic, std::move(first));
  do {
    expr->ops.push_back(op);
    expr->children.push_back(power());
  } while (accept(&op));
  return finish(std::move(expr));
}

// Jinja's ** takes from the left, and a sign binds tighter than it.
ExprPtr Parser::power() {
  ExprPtr first = unary();
  if (!at_symbol("**")) return first;
  ExprPtr expr = node(ExprKind::kArithmetic, std::move(first));
  while (accept_symbol("**")) {
    expr->ops.push_back(Op::kPower);
    expr->children.push_back(unary());
  }
  return finish(std::move(expr));
}

ExprPtr Parser::unary(bool filters) {
  const DepthGuard guard(meter_);
  ExprPtr expr;
  if (at_symbol("-") || at_symbol("+")) {
    expr = node(at_symbol("-") ? ExprKind::kNegate : ExprKind::kPlus);
    take();
    expr->children.push_back(unary(false));
    expr = finish(std::move(expr));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return filters ? filters_and_tests(std::move(expr)) : std::move(expr);
}

// --- operands

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
