// Values as text: str() and repr() as Python has them, and json.dumps() as the tojson filter.
#pragma once

#include <string>

#include "tokenizer/jinja/value.h"

namespace tierkv::jinja {

std::string to_text(Meter& meter, const Value& value);  // str(value)
std::string to_repr(Meter& meter, const Value& value);  // repr(value)

struct JsonStyle {
  bool ascii = false;      // \uXXXX for all that isn't ASCII
  bool sort_keys = false;  //
  bool pretty = false;     // one element a line, each level indented by `indent`
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Meter& meter, const Value& value, const JsonStyle& style);

}  // namespace tierkv::jinja
