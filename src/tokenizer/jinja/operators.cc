#include "tokenizer/jinja/operators.h"

#include <algorithm>
#include <utility>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

bool equal_lists(Meter& meter, const List& a, const List& b) {
  if (a.tuple != b.tuple || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(meter, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Meter& meter, const Dict& a, const Dict& b) {
  if (a.items().size() != b.items().size()) return false;
  for (const auto& [key, value] : a.items()) {
    if (key.string() != nullptr) meter.read(key.string()->size());
    const Value* other = b.find(key);
    if (other == nullptr || !equal(meter, value, *other)) return false;
  }
  return true;
}

}  // namespace

bool equal(Meter& meter, const Value& a, const Value& b) {
  const DepthGuard guard(meter);
  meter.step();
  if (a.integer() && b.integer()) return *a.integer() == *b.integer();
  if (a.number() && b.number()) return *a.number() == *b.number();
  if (a.is_undefined() || a.is_none()) {
    return a.is_undefined() ? b.is_undefined() : b.is_none();
  }
  if (a.same_object(b)) return true;
  if (a.string() != nullptr && b.string() != nullptr) {
    meter.read(std::min(a.string()->size(), b.string()->size()));
    return *a.string() == *b.string();
  }
  if (a.list() != nullptr && b.list() != nullptr) return equal_lists(meter, *a.list(), *b.list());
  if (a.dict() != nullptr && b.dict() != nullptr) return equal_dicts(meter, *a.dict(), *b.dict());
  return false;
}

bool less(Meter& meter, const Value& a, const Value& b) {
  const DepthGuard guard(meter);
  meter.step();
  a.require_defined();
  b.require_defined();
  if (a.integer() && b.integer()) return *a.integer() < *b.integer();
  if (a.number() && b.number()) return *a.number() < *b.number();
  if (a.string() != nullptr && b.string() != nullptr) {
    meter.read(std::min(a.string()->size(), b.string()->size()));
    return *a.string() < *b.string();
  }
  if (a.list() == nullptr || b.list() == nullptr || a.list()->tuple != b.list()->tuple) {
    fail(format("can't order a %s and a %s", a.type_name(), b.type_name()));
  }
  const auto &x = a.list()->items, &y = b.list()->items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(meter, x[i], y[i])) return less(meter, x[i], y[i]);
  }
  return x.size() < y.size();
}

bool contains(Meter& meter, const Value& container, const Value& item) {
  if (const std::string* s = container.string()) {
    if (item.string() == nullptr) fail(format("can't look for a %s in a str", item.type_name()));
    meter.search(s->size(), item.string()->size());
    return s->find(*item.string()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (item.string() != nullptr) meter.read(item.string()->size());
    const bool tuple = item.list() != nullptr && item.list()->tuple;  // never a key here
    return !tuple && dict->find(item) != nullptr;
  }
  const auto list = iterate(meter, container);
  return std::any_of(list->items.begin(), list->items.end(),
                     [&](const Value& element) { return equal(meter, element, item); });
}

bool compare(Meter& meter, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEqual:
      return equal(meter, a, b);
    case Op::kNotEqual:
      return !equal(meter, a, b);
    case Op::kLess:
      return less(meter, a, b);
    case Op::kGreater:
      return less(meter, b, a);
    case Op::kLessEqual:
      return less(meter, a, b) || equal(meter, a, b);
    case Op::kGreaterEqual:
      return less(meter, b, a) || equal(meter, a, b);
    case Op::kIn:
      return contains(meter, b, a);
    default:
      return !contains(meter, b, a);
  }
}

namespace {

constexpr size_t kLongestNameShown = 64;

Value missing(Meter& meter, const Value& object, std::string_view name) {
  meter.allocate(kLongestNameShown);
  return Value::undefined(format("a %s has no attribute '%s'", object.type_name(),
                                 std::string(name.substr(0, kLongestNameShown)).c_str()));
}

const Value* find_entry(Meter& meter, const Value& object, const Value& key) {
  if (object.dict() == nullptr || key.list() || key.dict() || key.object()) return nullptr;
  if (key.string() != nullptr) meter.read(key.string()->size());
  return object.dict()->find(key);
}

// The method or an object's attribute.
std::optional<Value> own_attribute(Meter& meter, const Value& object, const std::string& name) {
  if (object.object() != nullptr) return object.object()->attribute(name);
  Value method = find_method(meter, object, name);
  if (method.is_undefined()) return std::nullopt;
  return method;
}

std::optional<Value> element(Meter& meter, const Value& object, int64_t index) {
  if (const List* list = object.list()) {
    const auto n = static_cast<int64_t>(list->items.size());
    if (index < -n || index >= n) return std::nullopt;
    return list->items[static_cast<size_t>(index < 0 ? index + n : index)];
  }
  if (object.string() == nullptr) return std::nullopt;
  const std::string_view s = *object.string();
  meter.read(2 * s.size());
  const auto n = static_cast<int64_t>(count_code_points(s));
  if (index < -n || index >= n) return std::nullopt;
  const size_t at = code_point_offset(s, static_cast<size_t>(index < 0 ? index + n : index));
  return Value(s.substr(at, code_point_at(s, at).bytes));
}

}  // namespace

Value get_attribute(Meter& meter, const Value& object, const std::string& name) {
  object.require_defined();
  if (const auto own = own_attribute(meter, object, name)) return *own;
  const Value* entry = object.dict() != nullptr ? find_entry(meter, object, Value(name)) : nullptr;
  return entry != nullptr ? *entry : missing(meter, object, name);
}

Value get_item(Meter& meter, const Value& object, const Value& key) {
  object.require_defined();
  if (const Value* entry = find_entry(meter, object, key)) return *entry;
  if (key.integer()) {
    if (const auto found = element(meter, object, *key.integer())) return *found;
    return missing(meter, object, std::to_string(*key.integer()));
  }
  if (key.string() == nullptr) return missing(meter, object, key.type_name());
  const auto own = own_attribute(meter, object, *key.string());
  return own ? *own : missing(meter, object, *key.string());
}

namespace {

std::optional<int64_t> bound(const Value& value) {
  value.require_defined();
  if (value.is_none() || value.integer()) return value.integer();
  fail(format("a slice's bound can't be a %s", value.type_name()));
}

// Which indices Python's slice takes of `n` elements: `count` of them from `first` on.
struct Range {
  int64_t first, step, count;
};

Range resolve_slice(int64_t n, const Value& start, const Value& stop, const Value& step_value) {
  const int64_t step = bound(step_value).value_or(1);
  if (step == 0) fail("a slice's step can't be zero");
  const int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? n - 1 : n;
  const auto clamp = [&](std::optional<int64_t> index, int64_t otherwise) {
    if (!index) return otherwise;
    return std::clamp(*index < 0 ? *index + n : *index, lowest, highest);
  };
  const int64_t first = clamp(bound(start), step < 0 ? highest : lowest);
  const int64_t last = clamp(bound(stop), step < 0 ? lowest : highest);
  const int64_t span = step < 0 ? first - last : last - first;
  if (span <= 0) return {first, step, 0};
  // The magnitude as unsigned, for the least integer has no positive one.
  const uint64_t stride = step < 0 ? 0 - static_cast<uint64_t>(step) : static_cast<uint64_t>(step);
  return {first, step, static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride + 1)};
}

Value slice_string(Meter& meter, std::string_view s, const Value& start, const Value& stop,
                   const Value& step) {
  meter.read(3 * s.size());
  const Range range = resolve_slice(static_cast<int64_t>(count_code_points(s)), start, stop, step);
  if (range.count == 0) return "";
  if (range.step == 1) {
    s.remove_prefix(code_point_offset(s, static_cast<size_t>(range.first)));
    s = s.substr(0, code_point_offset(s, static_cast<size_t>(range.count)));
    meter.allocate(s.size());
    return s;
  }
  meter.allocate(sizeof(std::string_view), s.size());
  const auto points = split_code_points(s);
  std::string out;
  for (int64_t i = 0; i < range.count; ++i) {
    out += points[static_cast<size_t>(range.first + i * range.step)];
  }
  return out;
}

}  // namespace

Value slice(Meter& meter, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  object.require_defined();
  if (object.string() != nullptr) {
    return slice_string(meter, *object.string(), start, stop, step);
  }
  const List* list = object.list();
  if (list == nullptr) fail(format("a %s can't be sliced", object.type_name()));
  const Range range = resolve_slice(static_cast<int64_t>(list->items.size()), start, stop, step);
  meter.step(static_cast<uint64_t>(range.count) / 16);
  std::vector<Value> items;
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(list->items[static_cast<size_t>(range.first + i * range.step)]);
  }
  return make_list(meter, std::move(items), list->tuple);
}

std::shared_ptr<const List> iterate(Meter& meter, const Value& value) {
  if (value.list() != nullptr) return value.shared_list();
  std::vector<Value> items;
  if (const std::string* s = value.string()) {
    constexpr uint64_t kStringBytes = 64;
    meter.allocate(kStringBytes, s->size());
    for (const std::string_view c : split_code_points(*s)) items.emplace_back(c);
  } else if (const Dict* dict = value.dict()) {
    for (const auto& entry : dict->items()) items.push_back(entry.first);
  } else if (!value.is_undefined()) {
    fail(format("a %s can't be iterated over", value.type_name()));
  }
  return make_list(meter, std::move(items)).shared_list();
}

std::optional<int64_t> length_of(Meter& meter, const Value& value) {
  if (const std::string* s = value.string()) {
    meter.read(s->size());
    return static_cast<int64_t>(count_code_points(*s));
  }
  if (const List* l = value.list()) return static_cast<int64_t>(l->items.size());
  if (const Dict* d = value.dict()) return static_cast<int64_t>(d->items().size());
  if (value.is_undefined()) return 0;
  return std::nullopt;
}

}  // namespace tierkv::jinja
