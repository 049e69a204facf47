// Python's operators on values: arithmetic, comparison, membership, subscripts, iteration.
#pragma once

#include "tokenizer/jinja/value.h"

namespace tierkv::jinja {

enum class Op {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,  // arithmetic
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,  // comparison
};

Value arithmetic(Meter& meter, Op op, const Value& a, const Value& b);
Value negate(const Value& a);

bool compare(Meter& meter, Op op, const Value& a, const Value& b);
bool equal(Meter& meter, const Value& a, const Value& b);
bool less(Meter& meter, const Value& a, const Value& b);
bool contains(Meter& meter, const Value& container, const Value& item);

// object.name: methods come before a dict's entries. object[key]: entries before methods. What
// isn't there is undefined; anything asked of an undefined value fails.
Value get_attribute(Meter& meter, const Value& object, const std::string& name);
Value get_item(Meter& meter, const Value& object, const Value& key);
// object[start:stop:step]; a bound that is none is one left out.
Value slice(Meter& meter, const Value& object, const Value& start, const Value& stop,
            const Value& step);

// What a for loop sees: a list's items, a dict's keys, a string's code points; of undefined,
// nothing.
std::shared_ptr<const List> iterate(Meter& meter, const Value& value);
std::optional<int64_t> length_of(Meter& meter, const Value& value);

}  // namespace tierkv::jinja
