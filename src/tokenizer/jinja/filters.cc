// Filters on single values: text, numbers, JSON. Those on sequences are in sequence_filters.cc.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

using Args = const CallArgs&;

Value trim(Runtime& runtime, const Value& input, Args args) {
  const Value* set = bind(args, "trim", 0, {"chars"})[0];
  const std::string s = to_text(runtime.meter, input);
  if (set == nullptr || set->is_none()) return strip(s, kBoth);
  const std::string_view characters = expect_string(*set, "trim's characters");
  runtime.meter.search(s.size(), 16 * characters.size());
  return strip(s, kBoth, &characters);
}

template <std::string (*convert)(std::string_view)>
Value convert_text(Runtime& runtime, const Value& input, Args args) {
  bind(args, "the filter", 0, {});
  const std::string s = to_text(runtime.meter, input);
  runtime.meter.allocate(s.size());
  return convert(s);
}

// Unlike str.title(): words begin after white space, a hyphen or an opening bracket only.
std::string title(std::string_view s) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = code_point_at(s, i);
    const std::string_view text = s.substr(i, c.bytes);
    out += inside ? lower(text) : upper(text);
    const bool bracket = c.value < 0x80 && std::string_view("-({[<").find(s[i]) != text.npos;
    inside = !is_space(c.value) && !bracket;
    i += c.bytes;
  }
  return out;
}

std::string escape(std::string_view s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value escape_filter(Runtime& runtime, const Value& input, Args args) {
  bind(args, "escape", 0, {});
  const std::string s = to_text(runtime.meter, input);
  runtime.meter.allocate(5, s.size());
  return escape(s);
}

Value to_string(Runtime& runtime, const Value& input, Args args) {
  bind(args, "string", 0, {});
  return to_text(runtime.meter, input);
}

Value replace_filter(Runtime& runtime, const Value& input, Args args) {
  const Value self = to_text(runtime.meter, input);
  const auto bound = bind(args, "replace", 2, {"old", "new", "count"});
  CallArgs texts;
  for (int i : {0, 1}) texts.positional.push_back(to_text(runtime.meter, *bound[i]));
  if (bound[2] != nullptr && !bound[2]->is_none()) texts.positional.push_back(*bound[2]);
  return find_string_method("replace")(runtime, self, texts);
}

Value indent(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "indent", 0, {"width", "first", "blank"});
  const std::string s = to_text(runtime.meter, input) + "\n";  // so that an empty end is a line
  std::string margin(4, ' ');
  if (bound[0] != nullptr) {
    const Value& width = *bound[0];
    const Value spaces = width.string() != nullptr
                             ? width
                             : arithmetic(runtime.meter, Op::kMultiply, Value(" "), width);
    margin = *spaces.string();
  }
  const bool first = bound[1] != nullptr && bound[1]->truthy();
  const bool blank = bound[2] != nullptr && bound[2]->truthy();
  const auto lines = split_lines(s);
  runtime.meter.allocate(margin.size() + 1, lines.size());
  std::string out = first ? margin : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 && (blank || !lines[i].empty())) out += margin;
    out += lines[i];
  }
  return out;
}

Value wordcount(Runtime& runtime, const Value& input, Args args) {
  bind(args, "wordcount", 0, {});
  const std::string s = to_text(runtime.meter, input);
  int64_t n = 0;
  bool inside = false;
  for (size_t i = 0; i < s.size(); i += code_point_at(s, i).bytes) {
    const char32_t c = code_point_at(s, i).value;
    const bool word = is_letter(c) || (c >= '0' && c <= '9') || c == '_';
    n += word && !inside;
    inside = word;
  }
  return n;
}

// --- numbers

Value absolute(Runtime&, const Value& input, Args args) {
  bind(args, "abs", 0, {});
  input.require_defined();
  if (const double* d = input.floating()) return std::fabs(*d);
  const int64_t i = expect_integer(input, "abs's input");
  return i < 0 ? negate(Value(i)) : Value(i);
}

// Without the white space and the plus that from_chars doesn't take.
std::string_view number_text(std::string_view s) {
  s = strip(s, kBoth);
  if (s.starts_with('+') && !s.starts_with("+-")) s.remove_prefix(1);
  return s;
}

// The whole of `s` as a float.
std::optional<double> parse_float(std::string_view s) {
  s = number_text(s);
  double value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_integer(std::string_view s, int base) {
  s = number_text(s);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, base);
  if (s.empty() || error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return value;
}

Value to_integer(Runtime& runtime, const Value& input, Args args) {
  const auto bound = bind(args, "int", 0, {"default", "base"});
  input.require_defined();
  const int64_t base = bound[1] == nullptr ? 10 : expect_integer(*bound[1], "int's base");
  if (base < 2 || base > 36) fail("int's base must be from 2 to 36");
  if (input.integer()) return *input.integer();
  std::optional<double> value = input.number();
  if (const std::string* s = input.string()) {
    runtime.meter.read(s->size());
    if (const auto exact = parse_integer(*s, static_cast<int>(base))) return *exact;
    value = parse_float(*s);
  }
  if (value && std::fabs(*value) < 0x1p63) return static_cast<int64_t>(*value);
  return bound[0] == nullptr ? Value(0) : *bound[0];
}

Value to_float(Runtime& runtime, const Value& input, Args args) {
  const Value* otherwise = bind(args, "float", 0, {"default"})[0];
  input.require_defined();
  std::optional<double> value = input.number();
  if (const std::string* s = input.string()) {
    runtime.meter.read(s->size());
    value = parse_float(*s);
  }
  if (value) return *value;
  return otherwise == nullptr ? Value(0.0) : *otherwise;
}

// To the nearest decimal, ties by the exact binary value (and then to even), as Python's round().
double round_to(double value, int precision) {
  char text[400];
  std::snprintf(text, sizeof(text), "%.*f", precision, value);
  return std::strtod(text, nullptr);
}

Value round_filter(Runtime&, const Value& input, Args args) {
  const auto bound = bind(args, "round", 0, {"precision", "method"});
  const int64_t precision =
      bound[0] == nullptr ? 0 : expect_integer(*bound[0], "round's precision");
  const std::string method =
      bound[1] == nullptr ? "common" : expect_string(*bound[1], "round's method");
  input.require_defined();
  if (!input.number()) fail(format("can't round a %s", input.type_name()));
  if (precision < 0 || precision > 17) fail("round's precision must be from 0 to 17");
  const double value = *input.number(), scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(value * scale) / scale;
  if (method == "floor") return std::floor(value * scale) / scale;
  if (method != "common") fail("round's method must be common, ceil or floor");
  if (input.integer()) return *input.integer();
  return std::isfinite(value) ? round_to(value, static_cast<int>(precision)) : value;
}

// --- any value

Value default_value(Runtime&, const Value& input, Args args) {
  const auto bound = bind(args, "default", 0, {"default_value", "boolean"});
  const bool by_truth = bound[1] != nullptr && bound[1]->truthy();
  if (!input.is_undefined() && (!by_truth || input.truthy())) return input;
  return bound[0] == nullptr ? Value("") : *bound[0];
}

Value unchanged(Runtime&, const Value& input, Args args) {
  bind(args, "safe", 0, {});
  return input;
}

JsonStyle json_style(Runtime& runtime, Args args) {
  const auto bound = bind(args, "tojson", 0, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound[0] != nullptr && bound[0]->truthy();
  style.sort_keys = bound[3] != nullptr && bound[3]->truthy();
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    const Value indent = bound[1]->string() != nullptr
                             ? *bound[1]
                             : arithmetic(runtime.meter, Op::kMultiply, Value(" "), *bound[1]);
    style.indent = expect_string(indent, "tojson's indent");
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const auto pair = iterate(runtime.meter, *bound[2]);
    if (pair->items.size() != 2) fail("tojson's separators must be two");
    style.item_separator = expect_string(pair->items[0], "tojson's separator");
    style.key_separator = expect_string(pair->items[1], "tojson's separator");
  }
  return style;
}

Value tojson(Runtime& runtime, const Value& input, Args args) {
  return to_json(runtime.meter, input, json_style(runtime, args));
}

constexpr Named<Filter> kFilters[] = {
    {"trim", trim},
    {"upper", convert_text<upper>},
    {"lower", convert_text<lower>},
    {"title", convert_text<title>},
    {"capitalize", convert_text<capitalize>},
    {"escape", escape_filter},
    {"e", escape_filter},
    {"string", to_string},
    {"replace", replace_filter},
    {"indent", indent},
    {"wordcount", wordcount},
    {"abs", absolute},
    {"int", to_integer},
    {"float", to_float},
    {"round", round_filter},
    {"default", default_value},
    {"d", default_value},
    {"safe", unchanged},
    {"tojson", tojson},
};

}  // namespace

Filter find_filter(std::string_view name) {
  if (const Filter filter = find_named(kFilters, name)) return filter;
  if (const Filter filter = find_sequence_filter(name)) return filter;
  fail(StatusCode::kUnsupported, "no filter is called '" + std::string(name.substr(0, 64)) + "'");
}

}  // namespace tierkv::jinja
