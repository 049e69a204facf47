// The expressions of Interpreter.
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/interpreter.h"

namespace tierkv::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  const DepthGuard guard(meter());
  meter().step();
  line_ = expr.line;
  return evaluate_node(expr);
}

Value Interpreter::evaluate_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.value;
    case ExprKind::kName:
      return name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return sequence(expr);
    case ExprKind::kDict:
      return dict(expr);
    case ExprKind::kAttribute:
      return get_attribute(meter(), evaluate(*expr.children[0]), expr.name);
    case ExprKind::kItem: {
      const Value object = evaluate(*expr.children[0]);
      return get_item(meter(), object, evaluate(*expr.children[1]));
    }
    case ExprKind::kSlice:
      return slice_of(expr);
    case ExprKind::kCall:
      return call(expr);
    case ExprKind::kFilter:
      return filter(expr);
    case ExprKind::kTest:
      return test(expr);
    case ExprKind::kNot:
      return !evaluate(*expr.children[0]).truthy();
    case ExprKind::kNegate:
      return negate(evaluate(*expr.children[0]));
    case ExprKind::kPlus:
      return plus(expr);
    case ExprKind::kArithmetic:
      return arithmetic_chain(expr);
    case ExprKind::kComparison:
      return comparison_chain(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return logical(expr);
    case ExprKind::kConcat:
      return concatenation(expr);
    case ExprKind::kConditional:
      return conditional(expr);
    case ExprKind::kBlockText:
      return std::exchange(block_text_, Value());
  }
  return Value();
}

Value Interpreter::name(const Expr& expr) {
  if (const Value* value = frame_->find(expr.name)) return *value;
  meter().allocate(expr.name.size());
  return Value::undefined("'" + expr.name + "' is undefined");
}

Value Interpreter::sequence(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& child : expr.children) items.push_back(evaluate(*child));
  return make_list(meter(), std::move(items), expr.kind == ExprKind::kTuple);
}

Value Interpreter::dict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i]);
    if (key.string() != nullptr) meter().allocate(key.string()->size());
    dict.set(key, evaluate(*expr.children[i + 1]));
  }
  return make_dict(meter(), std::move(dict));
}

Value Interpreter::slice_of(const Expr& expr) {
  const Value object = evaluate(*expr.children[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExprPtr& bound = expr.children[i + 1];
    bounds[i] = bound == nullptr ? Value(None{}) : evaluate(*bound);
  }
  return slice(meter(), object, bounds[0], bounds[1], bounds[2]);
}

// The arguments of a call, a filter or a test; the first child is what they are applied to.
CallArgs Interpreter::arguments(const Expr& expr) {
  CallArgs args;
  for (size_t i = 1; i < expr.children.size(); ++i) {
    args.positional.push_back(evaluate(*expr.children[i]));
  }
  for (const auto& [name, value] : expr.named) args.named.emplace_back(name, evaluate(*value));
  return args;
}

Value Interpreter::call(const Expr& expr, const Value* caller) {
  const Value callee = evaluate(*expr.children[0]);
  CallArgs args = arguments(expr);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  line_ = expr.line;
  callee.require_defined();
  if (callee.object() == nullptr) fail(format("a %s can't be called", callee.type_name()));
  return callee.object()->call(runtime_, args);
}

Value Interpreter::filter(const Expr& expr) {
  const Value input = evaluate(*expr.children[0]);
  const CallArgs args = arguments(expr);
  line_ = expr.line;
  return find_filter(expr.name)(runtime_, input, args);
}

Value Interpreter::test(const Expr& expr) {
  const Value input = evaluate(*expr.children[0]);
  const CallArgs args = arguments(expr);
  line_ = expr.line;
  return find_test(expr.name)(runtime_, input, args);
}

Value Interpreter::plus(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  return arithmetic(meter(), Op::kMultiply, value.number() ? Value(1) : Value(None{}), value);
}

Value Interpreter::arithmetic_chain(const Expr& expr) {
  Value total = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value operand = evaluate(*expr.children[i + 1]);
    line_ = expr.line;
    total = arithmetic(meter(), expr.ops[i], total, operand);
  }
  return total;
}

Value Interpreter::comparison_chain(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    line_ = expr.line;
    if (!compare(meter(), expr.ops[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

// As in Python the operand that decides is the value.
Value Interpreter::logical(const Expr& expr) {
  const bool decisive = expr.kind == ExprKind::kOr;
  Value value;
  for (const ExprPtr& child : expr.children) {
    value = evaluate(*child);
    if (value.truthy() == decisive) break;
  }
  return value;
}

Value Interpreter::concatenation(const Expr& expr) {
  std::string text;
  for (const ExprPtr& child : expr.children) text += to_text(meter(), evaluate(*child));
  return text;
}

Value Interpreter::conditional(const Expr& expr) {
  const bool holds = evaluate(*expr.children[1]).truthy();
  if (holds) return evaluate(*expr.children[0]);
  if (expr.children[2] != nullptr) return evaluate(*expr.children[2]);
  return Value::undefined("an inline if is false and has no else");
}

}  // namespace tierkv::jinja
