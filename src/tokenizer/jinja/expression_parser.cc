// Targets of assignments, and operators with their ranks.
#include <algorithm>

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

}  // namespace tierkv::jinja
