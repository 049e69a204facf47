// Filters on sequences. Where Jinja gives a generator these give a list.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

using Args = const CallArgs&;

Value length(Runtime& runtime, const Value& input, Args args) {
  bind(args, "length", 0, {});
  if (const auto n = length_of(runtime.meter, input)) return *n;
  fail(format("a %s has no length", input.type_name()));
}

Value first(Runtime& runtime, const Value& input, Args args) {
  bind(args, "first", 0, {});
  const auto list = iterate(runtime.meter, input);
  return list->items.empty() ? Value::undefined("an empty sequence has no first item")
                             : list->items.front();
}

Value last(Runtime& runtime, const Value& input, Args args) {
  bind(args, "last", 0, {});
  const auto list = iterate(runtime.meter, input);
  return list->items.empty() ? Value::undefined("an empty sequence has no last item")
                             : list->items.back();
}

Value to_list(Runtime& runtime, const Value& input, Args args) {
  bind(args, "list", 0, {});
  return make_list(runtime.meter, iterate(runtime.meter, input)->items);
}

Value reverse(Runtime& runtime, const Value& input, Args args) {
  bind(args, "reverse", 0, {});
  if (input.string() != nullptr) return slice(runtime.meter, input, None{}, None{}, -1);
  std::vector<Value> items = iterate(runtime.meter, input)->items;
  std::reverse(items.begin(), items.end());
  return make_list(runtime.meter, std::move(items));
}

Value items(Runtime& runtime, const Value& input, Args args) {
  bind(args, "items", 0, {});
  if (input.is_undefined()) return make_list(runtime.meter, {});
  if (input.dict() == nullptr) fail(format("items needs a dict, not a %s", input.type_name()));
  return find_method(runtime.meter, input, "items").object()->call(runtime, args);
}

// "a.b.0" -> the item of the item of the item.
Value by_path(Meter& meter, Value value, const Value& path) {
  if (path.string() == nullptr) return get_item(meter, value, path);
  std::string_view rest = *path.string();
  while (true) {
    meter.step();
    const std::string_view part = rest.substr(0, rest.find('.'));
    const bool number =
        !part.empty() && part.size() < 18 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::string key(part);
    value = get_item(meter, value, number ? Value(std::stoll(key)) : Value(key));
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

Value by_optional_path(Meter& meter, const Value& value, const Value* path) {
  return path == nullptr || path->is_none() ? value : by_path(meter, value, *path);
}

Value join(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "join", 0, {"d", "attribute"});
  const std::string separator = bound[0] == nullptr ? "" : to_text(runtime.meter, *bound[0]);
  const auto list = iterate(runtime.meter, input);
  std::string out;
  for (size_t i = 0; i < list->items.size(); ++i) {
    runtime.meter.step();
    runtime.meter.allocate(separator.size());
    if (i > 0) out += separator;
    out += to_text(runtime.meter, by_optional_path(runtime.meter, list->items[i], bound[1]));
  }
  return out;
}

Value sum(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "sum", 0, {"attribute", "start"});
  const auto list = iterate(runtime.meter, input);
  Value total = bound[1] == nullptr ? Value(0) : *bound[1];
  for (const Value& item : list->items) {
    runtime.meter.step();
    total =
        arithmetic(runtime.meter, Op::kAdd, total, by_optional_path(runtime.meter, item, bound[0]));
  }
  return total;
}

// --- order

Value folded(Meter& meter, const Value& value, bool case_sensitive) {
  if (case_sensitive || value.string() == nullptr) return value;
  meter.allocate(value.string()->size());
  return lower(*value.string());
}

struct Keyed {
  Value key, item;
};

std::vector<Keyed> with_keys(Meter& meter, const Value& input, const Value* path,
                             const Value* case_sensitive) {
  const bool sensitive = case_sensitive != nullptr && case_sensitive->truthy();
  const auto list = iterate(meter, input);
  meter.allocate(sizeof(Keyed), list->items.size());
  std::vector<Keyed> out;
  for (const Value& item : list->items) {
    out.push_back({folded(meter, by_optional_path(meter, item, path), sensitive), item});
  }
  return out;
}

std::vector<Value> without_keys(std::vector<Keyed> keyed) {
  std::vector<Value> out;
  for (Keyed& k : keyed) out.push_back(std::move(k.item));
  return out;
}

void sort_by_key(Meter& meter, std::vector<Keyed>& keyed, bool descending) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return descending ? less(meter, b.key, a.key) : less(meter, a.key, b.key);
  });
}

Value sort(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "sort", 0, {"reverse", "case_sensitive", "attribute"});
  auto keyed = with_keys(runtime.meter, input, bound[2], bound[1]);
  sort_by_key(runtime.meter, keyed, bound[0] != nullptr && bound[0]->truthy());
  return make_list(runtime.meter, without_keys(std::move(keyed)));
}

Value dictsort(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "dictsort", 0, {"case_sensitive", "by", "reverse"});
  const bool by_value = bound[1] != nullptr && expect_string(*bound[1], "dictsort's by") == "value";
  if (input.dict() == nullptr) fail(format("dictsort needs a dict, not a %s", input.type_name()));
  const Value pairs = items(runtime, input, {});
  const Value column(by_value ? 1 : 0);
  auto keyed = with_keys(runtime.meter, pairs, &column, bound[0]);
  sort_by_key(runtime.meter, keyed, bound[2] != nullptr && bound[2]->truthy());
  return make_list(runtime.meter, without_keys(std::move(keyed)));
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, largest ? "max" : "min", 0, {"case_sensitive", "attribute"});
  const auto keyed = with_keys(runtime.meter, input, bound[1], bound[0]);
  if (keyed.empty()) return Value::undefined("an empty sequence has no least or largest item");
  const Keyed* best = &keyed.front();
  for (const Keyed& k : keyed) {
    const bool better =
        largest ? less(runtime.meter, best->key, k.key) : less(runtime.meter, k.key, best->key);
    if (better) best = &k;
  }
  return best->item;
}

Value unique(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "unique", 0, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> out;
  for (Keyed& k : with_keys(runtime.meter, input, bound[1], bound[0])) {
    constexpr uint64_t kEntryBytes = 160;
    runtime.meter.allocate(kEntryBytes + (k.key.string() != nullptr ? k.key.string()->size() : 0));
    if (seen.find(k.key) != nullptr) continue;
    seen.set(k.key, true);
    out.push_back(std::move(k.item));
  }
  return make_list(runtime.meter, std::move(out));
}

Value batch(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "batch", 1, {"linecount", "fill_with"});
  const int64_t size = expect_integer(*bound[0], "batch's size");
  if (size < 1) fail("batch's size must be at least 1");
  std::vector<Value> out, row;
  const auto finish_row = [&] { out.push_back(make_list(runtime.meter, std::exchange(row, {}))); };
  const auto list = iterate(runtime.meter, input);
  for (const Value& item : list->items) {
    if (static_cast<int64_t>(row.size()) == size) finish_row();
    row.push_back(item);
  }
  if (!row.empty() && bound[1] != nullptr && !bound[1]->is_none()) {
    runtime.meter.allocate(sizeof(Value), static_cast<uint64_t>(size));
    row.resize(static_cast<size_t>(size), *bound[1]);
  }
  if (!row.empty()) finish_row();
  return make_list(runtime.meter, std::move(out));
}

// --- map and select

// Jinja asks for the input's truth first, so that none and false go through as nothing.
std::shared_ptr<const List> iterate_if_true(Meter& meter, const Value& input) {
  return iterate(meter, input.truthy() ? input : Value());
}

// The arguments after the first, which names what to apply.
CallArgs rest_of(Args args) {
  CallArgs rest = args;
  rest.positional.erase(rest.positional.begin());
  return rest;
}

Value map_attribute(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "map", 1, {"attribute", "default"});
  const auto list = iterate_if_true(runtime.meter, input);
  std::vector<Value> out;
  for (const Value& item : list->items) {
    Value value = by_path(runtime.meter, item, *bound[0]);
    out.push_back(value.is_undefined() && bound[1] != nullptr ? *bound[1] : std::move(value));
  }
  return make_list(runtime.meter, std::move(out));
}

Value map(Runtime& runtime, const Value& input, Args args) {
  if (args.positional.empty()) return map_attribute(runtime, input, args);
  const Filter filter = find_filter(expect_string(args.positional[0], "map's filter"));
  const CallArgs rest = rest_of(args);
  const auto list = iterate_if_true(runtime.meter, input);
  const DepthGuard guard(runtime.meter);
  std::vector<Value> out;
  for (const Value& item : list->items) {
    runtime.meter.step();
    out.push_back(filter(runtime, item, rest));
  }
  return make_list(runtime.meter, std::move(out));
}

// select, reject, selectattr, rejectattr: those items of which a test (or else their truth) holds.
template <bool by_attribute, bool wanted>
Value filtered(Runtime& runtime, const Value& input, CallArgs args) {
  Value path;
  if (by_attribute) {
    if (args.positional.empty()) fail("selectattr and rejectattr need an attribute");
    path = args.positional[0];
    args = rest_of(args);
  }
  Test test = nullptr;
  if (!args.positional.empty()) {
    test = find_test(expect_string(args.positional[0], "the test's name"));
    args = rest_of(args);
  }
  const auto list = iterate_if_true(runtime.meter, input);
  std::vector<Value> out;
  for (const Value& item : list->items) {
    runtime.meter.step();
    const Value tested = by_attribute ? by_path(runtime.meter, item, path) : item;
    const bool holds = test == nullptr ? tested.truthy() : test(runtime, tested, args);
    if (holds == wanted) out.push_back(item);
  }
  return make_list(runtime.meter, std::move(out));
}

template <bool by_attribute, bool wanted>
Value filter_items(Runtime& runtime, const Value& input, Args args) {
  return filtered<by_attribute, wanted>(runtime, input, args);
}

constexpr Named<Filter> kFilters[] = {
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"list", to_list},
    {"reverse", reverse},
    {"items", items},
    {"join", join},
    {"sum", sum},
    {"sort", sort},
    {"dictsort", dictsort},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"unique", unique},
    {"batch", batch},
    {"map", map},
    {"select", filter_items<false, true>},
    {"reject", filter_items<false, false>},
    {"selectattr", filter_items<true, true>},
    {"rejectattr", filter_items<true, false>},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) { return find_named(kFilters, name); }

}  // namespace tierkv::jinja
