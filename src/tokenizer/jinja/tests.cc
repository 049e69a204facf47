// What may stand after "is".
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

using Args = const CallArgs&;

const Value& operand(Args args) { return *bind(args, "the test", 1, {"other"})[0]; }

template <Op op>
bool compares(Runtime& runtime, const Value& value, Args args) {
  return compare(runtime.meter, op, value, operand(args));
}

int64_t remainder(Runtime& runtime, const Value& value, const Value& divisor) {
  const Value rest = arithmetic(runtime.meter, Op::kModulo, value, divisor);
  return rest.integer() ? *rest.integer() : (*rest.number() == 0 ? 0 : 2);
}

bool is_mapping(Runtime&, const Value& v, Args) { return v.dict() != nullptr; }
bool is_defined(Runtime&, const Value& v, Args) { return !v.is_undefined(); }
bool is_undefined(Runtime&, const Value& v, Args) { return v.is_undefined(); }
bool is_none(Runtime&, const Value& v, Args) { return v.is_none(); }
bool is_boolean(Runtime&, const Value& v, Args) { return v.boolean() != nullptr; }
bool is_true(Runtime&, const Value& v, Args) { return v.boolean() != nullptr && *v.boolean(); }
bool is_false(Runtime&, const Value& v, Args) { return v.boolean() != nullptr && !*v.boolean(); }
bool is_integer(Runtime&, const Value& v, Args) {
  return v.integer().has_value() && v.boolean() == nullptr;
}
bool is_float(Runtime&, const Value& v, Args) { return v.floating() != nullptr; }
bool is_number(Runtime&, const Value& v, Args) { return v.number().has_value(); }
bool is_string(Runtime&, const Value& v, Args) { return v.string() != nullptr; }
bool is_callable(Runtime&, const Value& v, Args) {
  return v.is_undefined() || (v.object() != nullptr && v.object()->callable());
}
bool is_sequence(Runtime&, const Value& v, Args) {  // Python's undefined has a length, too
  return v.string() || v.list() || v.dict() || v.is_undefined();
}
bool is_odd(Runtime& r, const Value& v, Args) { return remainder(r, v, 2) == 1; }
bool is_even(Runtime& r, const Value& v, Args) { return remainder(r, v, 2) == 0; }
bool is_divisible(Runtime& r, const Value& v, Args args) {
  return remainder(r, v, operand(args)) == 0;
}

// All cased letters in one case, and at least one of them.
bool in_case(Runtime& runtime, const Value& v, std::string (*convert)(std::string_view)) {
  if (v.string() == nullptr) return false;
  runtime.meter.allocate(2 * v.string()->size());
  return convert(*v.string()) == *v.string() && upper(*v.string()) != lower(*v.string());
}
bool is_upper(Runtime& r, const Value& v, Args) { return in_case(r, v, upper); }
bool is_lower(Runtime& r, const Value& v, Args) { return in_case(r, v, lower); }

bool is_same_as(Runtime&, const Value& v, Args args) {
  const Value& other = operand(args);
  if (v.integer() && other.integer() && (v.boolean() == nullptr) == (other.boolean() == nullptr)) {
    return *v.integer() == *other.integer();
  }
  return v.same_object(other) || (v.is_none() && other.is_none());
}

template <auto find>
bool names_builtin(Runtime&, const Value& v, Args) {
  if (v.string() == nullptr) return false;
  try {
    find(*v.string());
    return true;
  } catch (const Error&) {
    return false;
  }
}

constexpr Named<Test> kTests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"string", is_string},
    {"mapping", is_mapping},
    {"iterable", is_sequence},
    {"sequence", is_sequence},
    {"boolean", is_boolean},
    {"true", is_true},
    {"false", is_false},
    {"integer", is_integer},
    {"float", is_float},
    {"number", is_number},
    {"callable", is_callable},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"upper", is_upper},
    {"lower", is_lower},
    {"sameas", is_same_as},
    {"in", compares<Op::kIn>},
    {"filter", names_builtin<find_filter>},
    {"test", names_builtin<find_test>},
    {"eq", compares<Op::kEqual>},
    {"equalto", compares<Op::kEqual>},
    {"==", compares<Op::kEqual>},
    {"ne", compares<Op::kNotEqual>},
    {"!=", compares<Op::kNotEqual>},
    {"lt", compares<Op::kLess>},
    {"lessthan", compares<Op::kLess>},
    {"<", compares<Op::kLess>},
    {"le", compares<Op::kLessEqual>},
    {"<=", compares<Op::kLessEqual>},
    {"gt", compares<Op::kGreater>},
    {"greaterthan", compares<Op::kGreater>},
    {">", compares<Op::kGreater>},
    {"ge", compares<Op::kGreaterEqual>},
    {">=", compares<Op::kGreaterEqual>},
};

}  // namespace

Test find_test(std::string_view name) {
  if (const Test test = find_named(kTests, name)) return test;
  fail(StatusCode::kUnsupported, "no test is called '" + std::string(name.substr(0, 64)) + "'");
}

}  // namespace tierkv::jinja
