// Numbers as Python's: / is always a float, // and % round down, int and float mix. Integers are 64
// bits wide and refuse to overflow.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/operators.h"

namespace tierkv::jinja {

namespace {

[[noreturn]] void fail_overflow() { fail("an integer passes 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1 && a == INT64_MIN) fail_overflow();
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
}

Value integer_arithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kFloorDivide:
      return floor_divide(a, b);
    case Op::kModulo:
      return floor_modulo(a, b);
    default:
      return integer_power(a, b);
  }
  if (overflow) fail_overflow();
  return result;
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  return quotient - std::floor(quotient) > 0.5 ? std::floor(quotient) + 1 : std::floor(quotient);
}

double float_power(double a, double b) {
  if (a == 0 && b < 0) fail("zero can't be raised to a negative power");
  if (a < 0 && b != std::floor(b)) fail("a negative number has no such power");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("a power is too large");
  return result;
}

Value float_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kPower:
      return float_power(a, b);
    default:
      break;
  }
  if (b == 0) fail("division by zero");
  if (op == Op::kDivide) return a / b;
  return op == Op::kModulo ? float_modulo(a, b) : float_floor_divide(a, b);
}

std::optional<Value> concatenate(Meter& meter, const Value& a, const Value& b) {
  if (a.string() != nullptr && b.string() != nullptr) {
    meter.allocate(a.string()->size() + b.string()->size());
    return Value(*a.string() + *b.string());
  }
  if (a.list() == nullptr || b.list() == nullptr || a.list()->tuple != b.list()->tuple) {
    return std::nullopt;
  }
  meter.allocate(sizeof(Value), a.list()->items.size() + b.list()->items.size());
  std::vector<Value> items = a.list()->items;
  items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
  return make_list(meter, std::move(items), a.list()->tuple);
}

std::optional<Value> repeat(Meter& meter, const Value& sequence, const Value& times) {
  if (!times.integer()) return std::nullopt;
  const auto count = static_cast<uint64_t>(std::max<int64_t>(*times.integer(), 0));
  if (const std::string* s = sequence.string()) {
    meter.allocate(s->size(), count);
    std::string out;
    if (s->empty()) return Value(out);
    out.reserve(s->size() * count);
    for (uint64_t i = 0; i < count; ++i) out += *s;
    return Value(std::move(out));
  }
  const List* list = sequence.list();
  if (list == nullptr) return std::nullopt;
  meter.allocate(list->items.size() * sizeof(Value), count);
  std::vector<Value> items;
  for (uint64_t i = 0; i < count && !list->items.empty(); ++i) {
    items.insert(items.end(), list->items.begin(), list->items.end());
  }
  return make_list(meter, std::move(items), list->tuple);
}

const char* spelling(Op op) {
  constexpr const char* kSpellings[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSpellings[static_cast<int>(op)];
}

}  // namespace

Value arithmetic(Meter& meter, Op op, const Value& a, const Value& b) {
  a.require_defined();
  b.require_defined();
  const bool integers = a.integer() && b.integer();
  const bool negative_power = op == Op::kPower && integers && *b.integer() < 0;
  if (integers && op != Op::kDivide && !negative_power) {
    return integer_arithmetic(op, *a.integer(), *b.integer());
  }
  if (a.number() && b.number()) return float_arithmetic(op, *a.number(), *b.number());
  std::optional<Value> result;
  if (op == Op::kAdd) result = concatenate(meter, a, b);
  if (op == Op::kMultiply) result = a.integer() ? repeat(meter, b, a) : repeat(meter, a, b);
  if (result) return *result;
  fail(format("can't compute %s %s %s", a.type_name(), spelling(op), b.type_name()));
}

Value negate(const Value& a) {
  a.require_defined();
  if (const auto i = a.integer()) return integer_arithmetic(Op::kSubtract, 0, *i);
  if (const double* d = a.floating()) return -*d;
  fail(format("can't negate a %s", a.type_name()));
}

}  // namespace tierkv::jinja
