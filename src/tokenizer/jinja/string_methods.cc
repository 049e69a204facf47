// Methods of strings.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

using Args = const CallArgs&;

Value text(Runtime& runtime, std::string_view s) {
  runtime.meter.allocate(s.size());
  return s;
}

template <Side side>
Value strip_method(Runtime& runtime, const Value& self, Args args) {
  const Value* set = bind(args, "strip", 0, {"chars"})[0];
  if (set == nullptr || set->is_none()) return text(runtime, strip(*self.string(), side));
  const std::string_view characters = expect_string(*set, "strip's characters");
  runtime.meter.search(self.string()->size(), 16 * characters.size());
  return text(runtime, strip(*self.string(), side, &characters));
}

template <std::string (*convert)(std::string_view)>
Value convert_method(Runtime& runtime, const Value& self, Args args) {
  bind(args, "the method", 0, {});
  return text(runtime, convert(*self.string()));
}

// Capitals at the start of every run of letters.
std::string title(std::string_view s) {
  std::string out;
  bool inside = false;
  for (const std::string_view c : split_code_points(s)) {
    out += inside ? lower(c) : upper(c);
    inside = is_letter(code_point_at(c, 0).value);
  }
  return out;
}

template <bool at_end>
Value has_affix(Runtime& runtime, const Value& self, Args args) {
  const auto bound = bind(args, at_end ? "endswith" : "startswith", 1, {"affix"});
  const auto matches = [&](const Value& affix) {
    const std::string& part = expect_string(affix, "startswith's or endswith's argument");
    runtime.meter.read(part.size());
    return at_end ? self.string()->ends_with(part) : self.string()->starts_with(part);
  };
  const List* several = bound[0]->list();
  if (several == nullptr || !several->tuple) return matches(*bound[0]);
  return std::any_of(several->items.begin(), several->items.end(), matches);
}

template <bool at_end>
Value remove_affix(Runtime& runtime, const Value& self, Args args) {
  const Value& affix = *bind(args, at_end ? "removesuffix" : "removeprefix", 1, {"affix"})[0];
  const std::string& part = expect_string(affix, "the affix");
  std::string_view s = *self.string();
  if (at_end && s.ends_with(part)) s.remove_suffix(part.size());
  if (!at_end && s.starts_with(part)) s.remove_prefix(part.size());
  return text(runtime, s);
}

Value make_strings(Runtime& runtime, const std::vector<std::string_view>& parts) {
  constexpr uint64_t kStringBytes = 64;
  runtime.meter.allocate(kStringBytes, parts.size());
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(text(runtime, part));
  return make_list(runtime.meter, std::move(items));
}

std::vector<std::string_view> words_of(std::string_view s) {
  std::vector<std::string_view> words;
  for (s = strip(s, kLeft); !s.empty(); s = strip(s, kLeft)) {
    size_t end = 0;
    while (end < s.size() && !is_space(code_point_at(s, end).value)) {
      end += code_point_at(s, end).bytes;
    }
    words.push_back(s.substr(0, end));
    s.remove_prefix(end);
  }
  return words;
}

// Past `limit` cuts the rest stays one piece, with the white space inside it and at its far end.
std::vector<std::string_view> split_words(std::string_view s, uint64_t limit, bool from_end) {
  std::vector<std::string_view> words = words_of(s);
  if (words.size() <= limit) return words;
  const auto cut = static_cast<ptrdiff_t>(limit);
  if (from_end) {
    const std::string_view last = *(words.end() - cut - 1);
    words.erase(words.begin(), words.end() - cut);
    words.insert(words.begin(), s.substr(0, static_cast<size_t>(last.end() - s.begin())));
  } else {
    const auto start = static_cast<size_t>(words[limit].begin() - s.begin());
    words.erase(words.begin() + cut, words.end());
    words.push_back(s.substr(start));
  }
  return words;
}

std::vector<std::string_view> split_at(std::string_view s, std::string_view separator,
                                       uint64_t limit, bool from_end) {
  std::vector<std::string_view> parts;
  while (parts.size() < limit) {
    const size_t hit = from_end ? s.rfind(separator) : s.find(separator);
    if (hit == std::string_view::npos) break;
    const size_t after = hit + separator.size();
    parts.push_back(from_end ? s.substr(after) : s.substr(0, hit));
    s = from_end ? s.substr(0, hit) : s.substr(after);
  }
  parts.push_back(s);
  if (from_end) std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_end>
Value split_method(Runtime& runtime, const Value& self, Args args) {
  const auto bound = bind(args, "split", 0, {"sep", "maxsplit"});
  const int64_t most = bound[1] == nullptr ? -1 : expect_integer(*bound[1], "split's maxsplit");
  const uint64_t limit = most < 0 ? UINT64_MAX : static_cast<uint64_t>(most);
  std::vector<std::string_view> parts;
  runtime.meter.allocate(sizeof(std::string_view), self.string()->size());
  if (bound[0] == nullptr || bound[0]->is_none()) {
    parts = split_words(*self.string(), limit, from_end);
  } else {
    const std::string& separator = expect_string(*bound[0], "split's separator");
    if (separator.empty()) fail("split's separator is empty");
    runtime.meter.search(self.string()->size(), separator.size());
    parts = split_at(*self.string(), separator, limit, from_end);
  }
  return make_strings(runtime, parts);
}

Value splitlines(Runtime& runtime, const Value& self, Args args) {
  bind(args, "splitlines", 0, {});
  return make_strings(runtime, split_lines(*self.string()));
}

Value replace_method(Runtime& runtime, const Value& self, Args args) {
  const auto bound = bind(args, "replace", 2, {"old", "new", "count"});
  const std::string& from = expect_string(*bound[0], "replace's first argument");
  const std::string& to = expect_string(*bound[1], "replace's second argument");
  const int64_t limit = bound[2] == nullptr ? -1 : expect_integer(*bound[2], "replace's count");
  runtime.meter.search(self.string()->size(), from.size());
  runtime.meter.allocate(to.size() + 1,
                         self.string()->size() / std::max<size_t>(from.size(), 1) + 1);
  return text(runtime, replace(*self.string(), from, to, static_cast<size_t>(limit)));
}

template <bool from_end>
Value find_method_of_string(Runtime& runtime, const Value& self, Args args) {
  const Value& part_value = *bind(args, "find", 1, {"sub"})[0];
  const std::string& part = expect_string(part_value, "find's argument");
  const std::string_view s = *self.string();
  runtime.meter.search(s.size(), part.size());
  const size_t hit = from_end ? s.rfind(part) : s.find(part);
  if (hit == std::string_view::npos) return -1;
  return static_cast<int64_t>(count_code_points(s.substr(0, hit)));
}

Value count_in_string(Runtime& runtime, const Value& self, Args args) {
  const Value& part_value = *bind(args, "count", 1, {"sub"})[0];
  const std::string& part = expect_string(part_value, "count's argument");
  const std::string_view s = *self.string();
  runtime.meter.search(s.size(), part.size());
  if (part.empty()) return static_cast<int64_t>(count_code_points(s) + 1);
  int64_t n = 0;
  for (size_t at = s.find(part); at != s.npos; at = s.find(part, at + part.size())) ++n;
  return n;
}

Value join_method(Runtime& runtime, const Value& self, Args args) {
  const Value& parts = *bind(args, "join", 1, {"parts"})[0];
  const auto list = iterate(runtime.meter, parts);
  std::string out;
  for (size_t i = 0; i < list->items.size(); ++i) {
    const std::string& piece = expect_string(list->items[i], "join's element");
    runtime.meter.step();
    runtime.meter.allocate(piece.size() + self.string()->size());
    out.append(i == 0 ? "" : *self.string()).append(piece);
  }
  return out;
}

template <bool (*test)(char32_t)>
Value all_are(Runtime& runtime, const Value& self, Args args) {
  bind(args, "the method", 0, {});
  const std::string_view s = *self.string();
  runtime.meter.read(s.size());
  bool all = !s.empty();
  for (size_t i = 0; i < s.size() && all; i += code_point_at(s, i).bytes) {
    all = test(code_point_at(s, i).value);
  }
  return all;
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit(c); }

template <const char* test>
Value by_test(Runtime& runtime, const Value& self, Args args) {
  return find_test(test)(runtime, self, args);
}
constexpr char kUpper[] = "upper", kLower[] = "lower";

constexpr Named<Method> kStringMethods[] = {
    {"strip", strip_method<kBoth>},
    {"lstrip", strip_method<kLeft>},
    {"rstrip", strip_method<kRight>},
    {"upper", convert_method<upper>},
    {"lower", convert_method<lower>},
    {"title", convert_method<title>},
    {"capitalize", convert_method<capitalize>},
    {"startswith", has_affix<false>},
    {"endswith", has_affix<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"replace", replace_method},
    {"find", find_method_of_string<false>},
    {"rfind", find_method_of_string<true>},
    {"count", count_in_string},
    {"join", join_method},
    {"isdigit", all_are<is_digit>},
    {"isalpha", all_are<is_letter>},
    {"isalnum", all_are<is_letter_or_digit>},
    {"isspace", all_are<is_space>},
    {"isupper", by_test<kUpper>},
    {"islower", by_test<kLower>},
};

}  // namespace

Method find_string_method(std::string_view name) { return find_named(kStringMethods, name); }

}  // namespace tierkv::jinja
