// The values of a template: Python's, as far as Jinja templates meet them. Values are shared and
// immutable, except for namespaces and loops, which are objects. Lists and dicts know how deep they
// nest, so that none can be made that recursion could not walk.
#pragma once

#include <concepts>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja/meter.h"

namespace tierkv::jinja {

class Dict;
class Object;
struct List;

// Prints as nothing; most other uses fail with `why`, a sentence such as "'x' is undefined".
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

class Value {
 public:
  Value() = default;  // undefined
  Value(None) : data_(None{}) {}
  Value(std::same_as<bool> auto b) : data_(b) {}
  Value(std::integral auto i) requires(!std::same_as<decltype(i), bool>)
      : data_(static_cast<int64_t>(i)) {}
  Value(std::same_as<double> auto d) : data_(d) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  static Value undefined(std::string why);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const double* floating() const { return std::get_if<double>(&data_); }
  const std::string* string() const { return get<const std::string>(); }
  const List* list() const { return get<const List>(); }  // a list or a tuple
  const Dict* dict() const { return get<const Dict>(); }
  Object* object() const { return get<Object>(); }
  std::shared_ptr<const List> shared_list() const { return std::get<ListPointer>(data_); }

  std::optional<int64_t> integer() const;  // of an int or a bool
  std::optional<double> number() const;    // of an int, a bool or a float
  bool truthy() const;
  int depth() const;              // 0 for scalars, 1 + its deepest element for a container
  const char* type_name() const;  // Python's
  // Why an undefined value is so; "" for others.
  std::string why_undefined() const;
  // Fails when undefined.
  void require_defined() const;
  bool same_object(const Value& other) const;  // shares storage: certainly equal

 private:
  using ListPointer = std::shared_ptr<const List>;
  template <typename T>
  T* get() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               ListPointer, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
};
Value make_list(Meter& meter, std::vector<Value> items, bool tuple = false);

// In order of insertion. Keys are strings, numbers, booleans, none or undefined.
class Dict {
 public:
  const Value* find(const Value& key) const;
  void set(const Value& key, Value value);
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  int depth() const { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string, size_t> index_;  // by hash_key() of the key
  int depth_ = 1;
};
Value make_dict(Meter& meter, Dict dict);

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Namespace;

// What a render has in hand while it runs, for everything that is called from a template.
struct Runtime {
  Meter meter;
  std::tm now;  // for strftime_now
  // All that were made: they may hold each other in circles, which the end of the render breaks.
  std::vector<std::shared_ptr<Namespace>> namespaces;
};

// Whatever else: functions, macros, bound methods, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string describe(Meter& meter) const = 0;  // how it prints
  virtual const char* type_name() const = 0;
  virtual std::optional<Value> attribute(const std::string&) const { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Runtime&, const CallArgs&);
  virtual int depth() const { return 0; }
};

class Namespace : public Object {
 public:
  std::string describe(Meter& meter) const override;
  const char* type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(const std::string& name) const override;
  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  void clear() { values_.clear(); }

 private:
  std::unordered_map<std::string, Value> values_;
};

}  // namespace tierkv::jinja
