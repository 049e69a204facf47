#include "tokenizer/jinja/builtins.h"

#include <algorithm>
#include <cstring>

namespace tierkv::jinja {

std::vector<const Value*> bind(const CallArgs& args, const char* function, size_t required,
                               std::initializer_list<const char*> names) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (args.positional.size() > names.size()) {
    fail(format("%s takes at most %zu arguments, not %zu", function, names.size(),
                args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) fail(format("%s has no argument '%s'", function, name.c_str()));
    const Value*& slot = bound[static_cast<size_t>(it - names.begin())];
    if (slot != nullptr) fail(format("%s got '%s' twice", function, name.c_str()));
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) fail(format("%s needs '%s'", function, names.begin()[i]));
  }
  return bound;
}

const std::string& expect_string(const Value& value, const char* what) {
  value.require_defined();
  if (value.string() == nullptr)
    fail(format("%s must be a str, not a %s", what, value.type_name()));
  return *value.string();
}

int64_t expect_integer(const Value& value, const char* what) {
  value.require_defined();
  if (!value.integer()) fail(format("%s must be an int, not a %s", what, value.type_name()));
  return *value.integer();
}

}  // namespace tierkv::jinja
