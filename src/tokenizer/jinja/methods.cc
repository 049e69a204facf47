// Methods of lists and dicts, and their binding to an object. Those that would change their object
// are refused, as Jinja's immutable sandbox refuses them.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/operators.h"

namespace tierkv::jinja {

namespace {

using Args = const CallArgs&;

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string_view name, Method method)
      : self_(std::move(self)), name_(name), method_(method) {}
  std::string describe(Meter&) const override {
    return "<method " + name_ + " of " + self_.type_name() + ">";
  }
  const char* type_name() const override { return "method"; }
  bool callable() const override { return true; }
  int depth() const override { return self_.depth() + 1; }
  Value call(Runtime& runtime, Args args) override { return method_(runtime, self_, args); }

 private:
  Value self_;
  std::string name_;
  Method method_;
};

Value refuse_change(Runtime&, const Value& self, Args) {
  fail(format("a template may not change a %s", self.type_name()));
}

Value index_in_list(Runtime& runtime, const Value& self, Args args) {
  const Value& item = *bind(args, "index", 1, {"item"})[0];
  const auto& items = self.list()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(runtime.meter, items[i], item)) return static_cast<int64_t>(i);
  }
  fail("index() of an item that isn't in the list");
}

Value count_in_list(Runtime& runtime, const Value& self, Args args) {
  const Value& item = *bind(args, "count", 1, {"item"})[0];
  const auto& items = self.list()->items;
  return static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& other) {
    return equal(runtime.meter, other, item);
  }));
}

Value copy(Runtime&, const Value& self, Args args) {
  bind(args, "copy", 0, {});
  return self;
}

constexpr Named<Method> kListMethods[] = {
    {"index", index_in_list},   {"count", count_in_list},  {"copy", copy},
    {"append", refuse_change},  {"extend", refuse_change}, {"insert", refuse_change},
    {"pop", refuse_change},     {"remove", refuse_change}, {"clear", refuse_change},
    {"reverse", refuse_change}, {"sort", refuse_change},
};

Value get(Runtime& runtime, const Value& self, Args args) {
  const auto bound = bind(args, "get", 1, {"key", "default"});
  if (contains(runtime.meter, self, *bound[0])) return *self.dict()->find(*bound[0]);
  return bound[1] == nullptr ? Value(None{}) : *bound[1];
}

Value items(Runtime& runtime, const Value& self, Args args) {
  bind(args, "items", 0, {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict()->items()) {
    out.push_back(make_list(runtime.meter, {key, value}, true));
  }
  return make_list(runtime.meter, std::move(out));
}

Value keys(Runtime& runtime, const Value& self, Args args) {
  bind(args, "keys", 0, {});
  return Value(iterate(runtime.meter, self));
}

Value values(Runtime& runtime, const Value& self, Args args) {
  bind(args, "values", 0, {});
  std::vector<Value> out;
  for (const auto& entry : self.dict()->items()) out.push_back(entry.second);
  return make_list(runtime.meter, std::move(out));
}

constexpr Named<Method> kDictMethods[] = {
    {"get", get},
    {"items", items},
    {"keys", keys},
    {"values", values},
    {"copy", copy},
    {"update", refuse_change},
    {"pop", refuse_change},
    {"popitem", refuse_change},
    {"clear", refuse_change},
    {"setdefault", refuse_change},
};

}  // namespace

Value find_method(Meter& meter, const Value& self, std::string_view name) {
  Method method = nullptr;
  if (self.string() != nullptr) method = find_string_method(name);
  if (self.list() != nullptr) method = find_named(kListMethods, name);
  if (self.dict() != nullptr) method = find_named(kDictMethods, name);
  if (method == nullptr) return Value();
  meter.check_depth(self.depth() + 1);
  return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(self, name, method)));
}

}  // namespace tierkv::jinja
