// The filters, tests, methods and functions that templates may call, each in a table of its own.
#pragma once

#include <initializer_list>

#include "tokenizer/jinja/value.h"

namespace tierkv::jinja {

using Filter = Value (*)(Runtime&, const Value& input, const CallArgs& args);
using Method = Value (*)(Runtime&, const Value& self, const CallArgs& args);
using Test = bool (*)(Runtime&, const Value& input, const CallArgs& args);

// find_filter and find_test fail (kUnsupported) on a name that isn't known.
Filter find_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);  // of those on sequences; null if it isn't one
Test find_test(std::string_view name);
// null where there is none.
Method find_string_method(std::string_view name);
// The method of a string, list, tuple or dict, bound to it; undefined where there is none.
Value find_method(Meter& meter, const Value& self, std::string_view name);
// range, dict, namespace, raise_exception, strftime_now: all by name.
std::vector<std::pair<std::string, Value>> global_functions();

// A call's arguments in the order of the parameters' names, as Python binds them. Absent ones are
// null; missing required ones, unknown names and too many arguments fail.
std::vector<const Value*> bind(const CallArgs& args, const char* function, size_t required,
                               std::initializer_list<const char*> names);

// Conversions of arguments, which fail on other types.
const std::string& expect_string(const Value& value, const char* what);
int64_t expect_integer(const Value& value, const char* what);

// One entry of a table of builtins.
template <typename Fn>
struct Named {
  std::string_view name;
  Fn fn;
};
template <typename Fn, size_t n>
Fn find_named(const Named<Fn> (&table)[n], std::string_view name) {
  for (const Named<Fn>& entry : table) {
    if (entry.name == name) return entry.fn;
  }
  return nullptr;
}

}  // namespace tierkv::jinja
