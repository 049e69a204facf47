#include "tokenizer/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/text.h"

namespace tierkv::jinja {

namespace {

// Pays for what is appended, so that values that share parts can't blow up.
class Writer {
 public:
  explicit Writer(Meter& meter) : meter_(meter) {}

  void append(std::string_view text) {
    meter_.step();
    meter_.allocate(text.size());
    out_ += text;
  }
  Meter& meter() { return meter_; }
  std::string take() { return std::move(out_); }

 private:
  Meter& meter_;
  std::string out_;
};

std::string scalar_text(const Value& value) {
  if (const bool* b = value.boolean()) return *b ? "True" : "False";
  if (const auto i = value.integer()) return std::to_string(*i);
  if (const double* d = value.floating()) return float_repr(*d);
  return value.is_none() ? "None" : "";
}

std::string escaped_for_repr(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
  }
  if (c < 0x100) return format("\\x%02x", static_cast<unsigned>(c));
  return format(c < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<unsigned>(c));
}

std::string string_repr(std::string_view s) {
  const bool has_single = s.find('\'') != std::string_view::npos;
  const char quote = has_single && s.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = code_point_at(s, i);
    if (c.value == static_cast<unsigned char>(quote)) {
      out += '\\', out += quote;
    } else if (c.value == kInvalid || (is_printable(c.value) && c.value != '\\')) {
      out += s.substr(i, c.bytes);
    } else {
      out += escaped_for_repr(c.value);
    }
    i += c.bytes;
  }
  return out += quote;
}

void write_repr(Writer& out, const Value& value);

void write_list(Writer& out, const List& list) {
  out.append(list.tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    write_repr(out, list.items[i]);
  }
  if (list.tuple && list.items.size() == 1) out.append(",");
  out.append(list.tuple ? ")" : "]");
}

void write_dict(Writer& out, const Dict& dict) {
  out.append("{");
  const char* separator = "";
  for (const auto& [key, value] : dict.items()) {
    out.append(separator);
    write_repr(out, key);
    out.append(": ");
    write_repr(out, value);
    separator = ", ";
  }
  out.append("}");
}

void write_repr(Writer& out, const Value& value) {
  const DepthGuard guard(out.meter());
  if (const std::string* s = value.string()) return out.append(string_repr(*s));
  if (const List* l = value.list()) return write_list(out, *l);
  if (const Dict* d = value.dict()) return write_dict(out, *d);
  if (const Object* o = value.object()) return out.append(o->describe(out.meter()));
  out.append(value.is_undefined() ? "Undefined" : scalar_text(value));
}

std::string json_string(std::string_view s, bool ascii) {
  std::string out = "\"";
  const auto escape = [&](char32_t unit) { out += format("\\u%04x", static_cast<unsigned>(unit)); };
  constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = code_point_at(s, i);
    const size_t special = c.value < 0x80 ? kSpecial.find(s[i]) : std::string_view::npos;
    if (special != std::string_view::npos) {
      out += '\\', out += kLetters[special];
    } else if (c.value >= 0x20 && (!ascii || c.value < 0x7f || c.value == kInvalid)) {
      out += s.substr(i, c.bytes);
    } else if (c.value < 0x10000) {
      escape(c.value);
    } else {
      escape(0xd800 + ((c.value - 0x10000) >> 10));
      escape(0xdc00 + ((c.value - 0x10000) & 0x3ff));
    }
    i += c.bytes;
  }
  return out += '"';
}

class JsonWriter {
 public:
  JsonWriter(Meter& meter, const JsonStyle& style) : out_(meter), style_(style) {}

  void write(const Value& value) {
    const DepthGuard guard(out_.meter());
    if (const std::string* s = value.string()) return out_.append(json_string(*s, style_.ascii));
    if (const List* l = value.list()) return write_list(*l);
    if (const Dict* d = value.dict()) return write_dict(*d);
    out_.append(scalar(value));
  }
  std::string take() { return out_.take(); }

 private:
  static std::string scalar(const Value& value) {
    if (const bool* b = value.boolean()) return *b ? "true" : "false";
    if (const double* d = value.floating(); d != nullptr && !std::isfinite(*d)) {
      return std::isnan(*d) ? "NaN" : *d < 0 ? "-Infinity" : "Infinity";
    }
    if (value.number()) return scalar_text(value);
    if (value.is_none()) return "null";
    fail(std::string("tojson can't write a ") + value.type_name());
  }

  void write_list(const List& list) {
    if (list.items.empty()) return out_.append("[]");
    open("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      separate(i == 0);
      write(list.items[i]);
    }
    close("]");
  }

  static std::string key_text(const Value& key) {
    return key.string() != nullptr ? *key.string() : scalar(key);
  }

  void write_dict(const Dict& dict) {
    if (dict.items().empty()) return out_.append("{}");
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : dict.items()) entries.emplace_back(key_text(key), &value);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    open("{");
    for (const auto& [key, value] : entries) {
      separate(&key == &entries.front().first);
      out_.append(json_string(key, style_.ascii));
      out_.append(style_.key_separator);
      write(*value);
    }
    close("}");
  }

  void open(std::string_view bracket) {
    out_.append(bracket);
    ++level_;
  }
  void close(std::string_view bracket) {
    --level_;
    break_line();
    out_.append(bracket);
  }
  void separate(bool first) {
    if (!first) out_.append(style_.item_separator);
    break_line();
  }
  void break_line() {
    if (!style_.pretty) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(style_.indent);
  }

  Writer out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

std::string to_repr(Meter& meter, const Value& value) {
  Writer out(meter);
  write_repr(out, value);
  return out.take();
}

std::string to_text(Meter& meter, const Value& value) {
  if (const std::string* s = value.string()) {
    meter.allocate(s->size());
    return *s;
  }
  return value.is_undefined() ? "" : to_repr(meter, value);
}

std::string to_json(Meter& meter, const Value& value, const JsonStyle& style) {
  JsonWriter out(meter, style);
  out.write(value);
  return out.take();
}

}  // namespace tierkv::jinja
