// Functions that templates may call by name.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/operators.h"

namespace tierkv::jinja {

namespace {

using Function = Value (*)(Runtime&, const CallArgs&);

class FunctionObject : public Object {
 public:
  FunctionObject(const char* name, Function function) : name_(name), function_(function) {}
  std::string describe(Meter&) const override { return std::string("<function ") + name_ + ">"; }
  const char* type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const CallArgs& args) override { return function_(runtime, args); }

 private:
  const char* name_;
  Function function_;
};

constexpr int64_t kLongestRange = 100'000;  // the sandbox's limit in Python, too

Value range(Runtime& runtime, const CallArgs& args) {
  const auto bound = bind(args, "range", 1, {"start", "stop", "step"});
  int64_t start = 0, stop = expect_integer(*bound[0], "range's bound"), step = 1;
  if (bound[1] != nullptr) {
    start = stop;
    stop = expect_integer(*bound[1], "range's bound");
  }
  if (bound[2] != nullptr) step = expect_integer(*bound[2], "range's step");
  if (step == 0) fail("range's step can't be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kLongestRange) {
      fail(StatusCode::kResourceExhausted, "range() is longer than 100000");
    }
    runtime.meter.step();
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(runtime.meter, std::move(items));
}

// dict(), dict(mapping), dict(pairs), each with name=value on top.
Dict collect_entries(Runtime& runtime, const CallArgs& args, const char* function) {
  Dict dict;
  if (args.positional.size() > 1) fail(format("%s takes at most one argument", function));
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    const auto items = iterate(runtime.meter, source);
    for (const Value& item : items->items) {
      runtime.meter.step();
      if (source.dict() != nullptr) {
        dict.set(item, *source.dict()->find(item));
        continue;
      }
      const auto pair = iterate(runtime.meter, item);
      if (pair->items.size() != 2) fail(format("%s needs pairs", function));
      dict.set(pair->items[0], pair->items[1]);
    }
  }
  for (const auto& [name, value] : args.named) dict.set(Value(name), value);
  return dict;
}

Value dict(Runtime& runtime, const CallArgs& args) {
  return make_dict(runtime.meter, collect_entries(runtime, args, "dict"));
}

Value make_namespace(Runtime& runtime, const CallArgs& args) {
  constexpr uint64_t kNamespaceBytes = 256;
  runtime.meter.allocate(kNamespaceBytes);
  const Value entries = make_dict(runtime.meter, collect_entries(runtime, args, "namespace"));
  auto space = std::make_shared<Namespace>();
  for (const auto& [name, value] : entries.dict()->items()) {
    space->set(expect_string(name, "a namespace's name"), value);
  }
  runtime.namespaces.push_back(space);
  return Value(std::shared_ptr<Object>(std::move(space)));
}

Value raise_exception(Runtime&, const CallArgs& args) {
  const Value& message = *bind(args, "raise_exception", 1, {"message"})[0];
  const std::string text = message.string() != nullptr ? *message.string() : message.type_name();
  fail("the chat template refuses these messages: " + text);
}

constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};
constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};

// As strftime in the C locale; written out because that one's behaviour on a letter it doesn't
// know, and its locale, are the process's and not ours.
std::string date_part(char letter, const std::tm& now) {
  const char* month = kMonths[static_cast<size_t>(now.tm_mon) % 12];
  const char* day = kDays[static_cast<size_t>(now.tm_wday) % 7];
  const int hour12 = now.tm_hour % 12 == 0 ? 12 : now.tm_hour % 12;
  switch (letter) {
    case 'd':
      return format("%02d", now.tm_mday);
    case 'e':
      return format("%2d", now.tm_mday);
    case 'm':
      return format("%02d", now.tm_mon + 1);
    case 'Y':
      return format("%d", now.tm_year + 1900);
    case 'y':
      return format("%02d", now.tm_year % 100);
    case 'B':
      return month;
    case 'b':
      return std::string(month, 3);
    case 'A':
      return day;
    case 'a':
      return std::string(day, 3);
    case 'H':
      return format("%02d", now.tm_hour);
    case 'I':
      return format("%02d", hour12);
    case 'M':
      return format("%02d", now.tm_min);
    case 'S':
      return format("%02d", now.tm_sec);
    case 'p':
      return now.tm_hour < 12 ? "AM" : "PM";
    case 'j':
      return format("%03d", now.tm_yday + 1);
    case 'F':
      return date_part('Y', now) + "-" + date_part('m', now) + "-" + date_part('d', now);
    case 'T':
      return date_part('H', now) + ":" + date_part('M', now) + ":" + date_part('S', now);
    case '%':
      return "%";
    default:
      fail(StatusCode::kUnsupported, format("strftime_now doesn't know %%%c", letter));
  }
}

Value strftime_now(Runtime& runtime, const CallArgs& args) {
  const Value& pattern_value = *bind(args, "strftime_now", 1, {"format"})[0];
  const std::string& pattern = expect_string(pattern_value, "strftime_now's format");
  runtime.meter.allocate(8, pattern.size());
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size() && pattern[i + 1] == '-') {  // no padding
      const std::string part = i + 2 < pattern.size() ? date_part(pattern[i + 2], runtime.now) : "";
      out += part.substr(std::min(part.find_first_not_of("0 "), part.size()));
      i += 2;
    } else if (pattern[i] == '%' && i + 1 < pattern.size()) {
      out += date_part(pattern[++i], runtime.now);
    } else {
      out += pattern[i];
    }
  }
  return out;
}

}  // namespace

std::vector<std::pair<std::string, Value>> global_functions() {
  constexpr Named<Function> kFunctions[] = {
      {"range", range},
      {"dict", dict},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  std::vector<std::pair<std::string, Value>> out;
  for (const auto& [name, function] : kFunctions) {
    out.emplace_back(
        name, std::shared_ptr<Object>(std::make_shared<FunctionObject>(name.data(), function)));
  }
  return out;
}

}  // namespace tierkv::jinja
