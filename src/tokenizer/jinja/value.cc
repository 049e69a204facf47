#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <bit>

#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

// Equal for keys that Python finds equal (1, 1.0 and True), different otherwise.
std::string hash_key(const Value& key) {
  if (const std::string* s = key.string()) return "s" + *s;
  if (key.is_none()) return "none";
  if (key.is_undefined()) return "undefined";
  if (const auto i = key.integer()) return "n" + std::to_string(*i);
  if (const double* d = key.floating()) {
    const bool whole =
        *d >= -0x1p53 && *d <= 0x1p53 && *d == static_cast<double>(static_cast<int64_t>(*d));
    return "n" + (whole ? std::to_string(static_cast<int64_t>(*d)) : float_repr(*d));
  }
  fail(std::string("a dict's key can't be a ") + key.type_name());
}

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

std::optional<int64_t> Value::integer() const {
  if (const auto* i = std::get_if<int64_t>(&data_)) return *i;
  if (const bool* b = boolean()) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* d = floating()) return *d;
  if (const auto i = integer()) return static_cast<double>(*i);
  return std::nullopt;
}

bool Value::truthy() const {
  if (const double* d = floating()) return *d != 0;
  if (const auto i = integer()) return *i != 0;
  if (const std::string* s = string()) return !s->empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return !d->items().empty();
  return object() != nullptr;
}

int Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth();
  return object() != nullptr ? object()->depth() : 0;
}

const char* Value::type_name() const {
  return std::visit(Overloaded{[](const Undefined&) { return "Undefined"; },
                               [](None) { return "NoneType"; }, [](bool) { return "bool"; },
                               [](int64_t) { return "int"; }, [](double) { return "float"; },
                               [](const std::shared_ptr<const std::string>&) { return "str"; },
                               [](const ListPointer& l) { return l->tuple ? "tuple" : "list"; },
                               [](const std::shared_ptr<const Dict>&) { return "dict"; },
                               [](const std::shared_ptr<Object>& o) { return o->type_name(); }},
                    data_);
}

std::string Value::why_undefined() const {
  const auto* undefined = std::get_if<Undefined>(&data_);
  if (undefined == nullptr) return "";
  return undefined->why == nullptr ? "a value is undefined" : *undefined->why;
}

void Value::require_defined() const {
  if (is_undefined()) fail(why_undefined());
}

bool Value::same_object(const Value& other) const {
  const auto same = [](const auto* a, const auto* b) { return a != nullptr && a == b; };
  return same(string(), other.string()) || same(list(), other.list()) ||
         same(dict(), other.dict()) || same(object(), other.object());
}

Value make_list(Meter& meter, std::vector<Value> items, bool tuple) {
  meter.allocate(sizeof(Value), items.size());
  auto list = std::make_shared<List>();
  list->tuple = tuple;
  for (const Value& item : items) list->depth = std::max(list->depth, item.depth() + 1);
  meter.check_depth(list->depth);
  list->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(list)));
}

const Value* Dict::find(const Value& key) const {
  const auto it = index_.find(hash_key(key));
  return it == index_.end() ? nullptr : &items_[it->second].second;
}

void Dict::set(const Value& key, Value value) {
  depth_ = std::max(depth_, value.depth() + 1);
  const auto [it, added] = index_.emplace(hash_key(key), items_.size());
  if (added) {
    items_.emplace_back(key, std::move(value));
  } else {
    items_[it->second].second = std::move(value);
  }
}

Value make_dict(Meter& meter, Dict dict) {
  constexpr size_t kEntryBytes = 160;  // the pair, and its place in the index
  meter.allocate(kEntryBytes, dict.items().size());
  meter.check_depth(dict.depth());
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

Value Object::call(Runtime&, const CallArgs&) {
  fail(std::string("a ") + type_name() + " can't be called");
}

std::string Namespace::describe(Meter&) const { return "<Namespace>"; }

std::optional<Value> Namespace::attribute(const std::string& name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) return std::nullopt;
  return it->second;
}

}  // namespace tierkv::jinja
