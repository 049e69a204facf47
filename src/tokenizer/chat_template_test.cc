// The oracle is Jinja2: tools/make_template_golden.py wrote what it makes of the templates in
// tests/data/chat_templates.json. The rest holds what Jinja2 doesn't have: limits, and lines in
// errors.
#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#ifndef TIERKV_SOURCE_DIR
#define TIERKV_SOURCE_DIR "."
#endif

namespace tierkv {
namespace {

using ::testing::HasSubstr;

Result<std::string> render(const std::string& source, const std::vector<ChatMessage>& messages = {},
                           const ChatTemplateLimits& limits = {}) {
  TIERKV_ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::parse(source, limits));
  return chat_template.render(messages, true, "<s>", "</s>");
}

StatusCode code_of(const std::string& source, const ChatTemplateLimits& limits = {}) {
  return render(source, {}, limits).status().code();
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// --- against Jinja2

std::vector<ChatMessage> messages_of(const nlohmann::json& list) {
  std::vector<ChatMessage> messages;
  for (const auto& message : list) messages.push_back({message["role"], message["content"]});
  return messages;
}

// The golden file has "<<%d %b %Y>>" where a template asked for the date.
std::string with_date(std::string text) {
  const std::time_t now = std::time(nullptr);
  std::tm today{};
  localtime_r(&now, &today);
  for (size_t at = text.find("<<"); at != std::string::npos; at = text.find("<<", at)) {
    const size_t end = text.find(">>", at);
    char date[64];
    const size_t n =
        std::strftime(date, sizeof(date), text.substr(at + 2, end - at - 2).c_str(), &today);
    text.replace(at, end + 2 - at, date, n);
  }
  return text;
}

TEST(ChatTemplate, RendersWhatJinjaRenders) {
  std::ifstream file(TIERKV_SOURCE_DIR "/tests/data/chat_templates.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 300u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>() + "\n" + c["template"].get<std::string>());
    Result<std::string> text = internal_error("not rendered");
    auto parsed = ChatTemplate::parse(c["template"]);
    if (parsed.ok()) {
      text = parsed->render(messages_of(c["messages"]), c["add_generation_prompt"], c["bos"],
                            c["eos"]);
    }
    if (c.contains("error")) {
      EXPECT_FALSE(text.ok()) << *text;
      continue;
    }
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(text.ok() ? *text : "", with_date(c["expected"]));
  }
}

TEST(ChatTemplate, CanBeMovedAndRenderedAgain) {
  auto parsed =
      ChatTemplate::parse("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}");
  ASSERT_TRUE(parsed.ok());
  const ChatTemplate moved = std::move(*parsed);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*moved.render({}, false, "", ""), "1");
}

TEST(ChatTemplate, KnowsTheDate) {
  const char* letters = "dmYyBbAaHIMpjF";
  for (const char* letter = letters; *letter != '\0'; ++letter) {
    const std::string pattern = std::string("%") + *letter;
    const std::string before = with_date("<<" + pattern + ">>");
    const std::string text = *render("{{ strftime_now('" + pattern + "') }}");
    EXPECT_THAT((std::vector{before, with_date("<<" + pattern + ">>")}), testing::Contains(text));
  }
  EXPECT_EQ(*render("{{ strftime_now('a%%b') }}"), "a%b");
  EXPECT_EQ(code_of("{{ strftime_now('%Q') }}"), StatusCode::kUnsupported);
}

// --- errors

TEST(ChatTemplate, NamesTheLineOfAnError) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\n\n{{ missing.x }}", "line 3: 'missing' is undefined"},
      {"a\n{% if true %}\n{{ 1 +\n'a' }}\n{% endif %}", "line 3: can't compute int + str"},
      {"{# c\n\n #}\n{{ 1 | nosuch }}", "line 4: no filter is called 'nosuch'"},
      {"a\r\nb\r\n{% nosuch %}", "line 3: the tag 'nosuch'"},
      {"a\n{{ 1 }\n}", "line 2: '}' closes nothing"},
      {"a\n\n{% for x in y %}\nb\n", "line 4: expected 'endfor', found the end of the template"},
      {"{% macro m(a) %}\n{{ a.b.c }}\n{% endmacro %}\n\n{{ m(1) }}", "line 2: a int has no"},
      {"{%- raw -%}\n\n{%- endraw -%}\n\n{{ x() }}", "line 5: 'x' is undefined"},
  };
  for (const auto& [source, message] : cases) {
    EXPECT_THAT(render(source).status().message(), HasSubstr(message)) << source;
  }
}

TEST(ChatTemplate, RaiseExceptionIsAnInvalidArgument) {
  const Status status = render("\n{{ raise_exception('roles must alternate') }}").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("roles must alternate"));
  EXPECT_THAT(status.message(), HasSubstr("line 2"));
}

TEST(ChatTemplate, TellsFaultsApart) {
  EXPECT_EQ(code_of("{% if %}"), StatusCode::kCorrupt);
  EXPECT_EQ(code_of("{{ 'a' | wordwrap }}"), StatusCode::kUnsupported);
  EXPECT_EQ(code_of("{% include 'x' %}"), StatusCode::kUnsupported);
  EXPECT_EQ(code_of("{{ 9223372036854775807 + 1 }}"), StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, IntegersRefuseToOverflow) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 3037000500 * 3037000500 }}", "{{ 2 ** 63 }}", "{{ 99 ** 99999999 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1) | abs }}", "{{ 9223372036854775808 }}"}) {
    EXPECT_FALSE(render(source).ok()) << source;
  }
  EXPECT_EQ(*render("{{ 2 ** 62 }} {{ (-9223372036854775807 - 1) % -1 }} {{ 1 ** 999999999999 }}"),
            "4611686018427387904 0 1");
  EXPECT_EQ(
      *render("{{ [1, 2, 3][9223372036854775807:] }}{{ [1, 2][::-9223372036854775807 - 1] }}"),
      "[][2]");
}

TEST(ChatTemplate, CarriesInvalidUtf8Through) {
  const std::string bytes = "\xff\xe2\x82 a\xc0";
  EXPECT_EQ(*render("{{ messages[0].content | upper }}{{ messages[0].content | length }}",
                    {{"user", bytes}}),
            "\xff\xe2\x82 A\xc0"
            "6");
  EXPECT_EQ(*render("{{ messages[0].content[-1] }}", {{"user", bytes}}), "\xc0");
}

// --- limits

TEST(ChatTemplate, LimitsTheSource) {
  ChatTemplateLimits limits;
  limits.max_source_bytes = 10;
  EXPECT_EQ(code_of("0123456789", limits), StatusCode::kOk);
  EXPECT_EQ(code_of("0123456789a", limits), StatusCode::kResourceExhausted);
}

TEST(ChatTemplate, LimitsSteps) {
  const std::string loop = "{% for i in range(1000) %}{{ i }}{% endfor %}";
  ChatTemplateLimits limits;
  limits.max_steps = 1000;
  EXPECT_EQ(code_of(loop, limits), StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of(loop), StatusCode::kOk);
  const std::string outer = "{% for a in range(99999) %}", end = "{% endfor %}";
  EXPECT_EQ(code_of(outer + outer + outer + end + end + end), StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of("{{ range(10000000000) | list | length }}"), StatusCode::kResourceExhausted);
  const std::string sums =
      "{% for i in range(90000) %}{% set x = range(90000) | sum %}{% endfor %}";
  EXPECT_EQ(code_of(sums), StatusCode::kResourceExhausted);
}

TEST(ChatTemplate, LimitsOutput) {
  ChatTemplateLimits limits;
  limits.max_output_bytes = 100;
  EXPECT_EQ(code_of("{{ 'a' * 100 }}", limits), StatusCode::kOk);
  EXPECT_EQ(code_of("{{ 'a' * 60 }}{{ 'a' * 41 }}", limits), StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of("{% for i in range(101) %}x{% endfor %}", limits),
            StatusCode::kResourceExhausted);
}

TEST(ChatTemplate, LimitsWhatValuesTake) {
  ChatTemplateLimits limits;
  limits.max_output_bytes = 4 << 20;
  const std::string doubled =
      "{% set x = 'aaaaaaaaaaaaaaaa' %}" + repeated("{% set x = x + x %}", 60);
  const std::string nested = "{% set x = [1] %}" + repeated("{% set x = [x, x] %}", 60);
  const std::string grown =
      "{% set ns = namespace(x='a') %}{% for i in range(90000) %}{% set ns.x = ns.x ~ i %}{% "
      "endfor %}";
  for (const std::string& source :
       {std::string("{{ 'a' * 10 ** 9 }}"), std::string("{{ 'ab' * 9223372036854775807 }}"),
        std::string("{{ [1, 2] * 10 ** 12 }}"),
        std::string("{{ 'ab' | replace('', 'a' * 10 ** 8) }}"),
        std::string("{{ ('a\\n' * 10 ** 5) | indent(10 ** 5) }}"), doubled, grown,
        nested + "{{ x }}", nested + "{{ x | tojson | length }}",
        nested + "{{ [x] | tojson(indent=' ' * 1000) }}",
        nested + "{% set y = [1] %}" + repeated("{% set y = [y, y] %}", 60) + "{{ x == y }}"}) {
    EXPECT_EQ(code_of(source, limits), StatusCode::kResourceExhausted) << source.substr(0, 200);
  }
}

TEST(ChatTemplate, LimitsWorkOnLongStrings) {
  const std::string long_strings = "{% set a = 'a' * 2000000 %}{% set b = 'a' * 1000000 + 'b' %}";
  for (const char* use : {"{{ b in a }}", "{{ a.find(b) }}", "{{ a.split(b) }}",
                          "{{ a.replace(b, '') }}", "{{ a.strip(b) }}"}) {
    EXPECT_EQ(code_of(long_strings + use), StatusCode::kResourceExhausted) << use;
  }
}

TEST(ChatTemplate, LimitsDepth) {
  const int n = 50'000;
  const std::pair<std::string, std::string> nested[] = {
      {"(", ")"},       {"[", "]"},    {"{1:", "}"},     {"-", ""},           {"not ", ""},
      {"a(", ")"},      {"a(b=", ")"}, {"a[", "]"},      {"a[:", "]"},        {"1 if (", ")"},
      {"'a' ~ (", ")"}, {"a|b(", ")"}, {"a is b(", ")"}, {"1 if 1 else ", ""}};
  for (const auto& [open, close] : nested) {
    const std::string source = "{{ " + repeated(open, n) + "1" + repeated(close, n) + " }}";
    EXPECT_EQ(code_of(source), StatusCode::kResourceExhausted) << open;
    EXPECT_FALSE(render("{{ " + repeated(open, n)).ok()) << open;
  }
  for (const char* piece : {".a", "[0]", "()", "|upper", " is eq 1", " if 1"}) {
    EXPECT_EQ(code_of("{{ a" + repeated(piece, n) + " }}"), StatusCode::kResourceExhausted)
        << piece;
  }
  for (const char* tag : {"{% if 1 %}", "{% for a in b %}", "{% set a %}", "{% filter upper %}",
                          "{% macro a() %}", "{% call a() %}", "{% with %}", "{% generation %}"}) {
    EXPECT_EQ(code_of(repeated(tag, n)), StatusCode::kResourceExhausted) << tag;
  }
  const std::string targets = repeated("(", n) + "a" + repeated(")", n);
  EXPECT_EQ(code_of("{% for " + targets + " in b %}"), StatusCode::kResourceExhausted);
}

TEST(ChatTemplate, LongChainsAreNotDeep) {
  const int n = 2000;
  EXPECT_EQ(*render("{{ 0" + repeated(" + 1", n) + " }}"), "2000");
  EXPECT_EQ(render("{{ 'a'" + repeated(" ~ 'b'", n) + " }}")->size(), n + 1u);
  EXPECT_EQ(*render("{{ 0" + repeated(" or 0", n) + " }}"), "0");
  EXPECT_EQ(*render("{{ 1" + repeated(" < 2 > 1", n) + " }}"), "True");
  EXPECT_EQ(*render("{% if 0 %}" + repeated("{% elif 0 %}", n) + "{% else %}x{% endif %}"), "x");
}

TEST(ChatTemplate, LimitsDepthWhileRunning) {
  EXPECT_EQ(code_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of("{% set ns = namespace(x=0) %}{% for i in range(9999) %}{% set ns.x = [ns.x] "
                    "%}{% endfor %}"),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(
      code_of(
          "{% set ns = namespace(x={}) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x.get} %}"
          "{% endfor %}"),
      StatusCode::kResourceExhausted);
  ChatTemplateLimits limits;
  limits.max_depth = 12;
  EXPECT_EQ(code_of("{{ ((1)) }}", limits), StatusCode::kOk);
  EXPECT_EQ(code_of("{{ ((((((((((((1)))))))))))) }}", limits), StatusCode::kResourceExhausted);
}

TEST(ChatTemplate, CirclesLeaveNothingBehind) {  // the leak checker is the judge
  EXPECT_TRUE(render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set "
                     "a.l = [a, b] %}")
                  .ok());
  EXPECT_TRUE(
      render(
          "{% set ns = namespace() %}{% macro outer(x) %}{% macro inner() %}{{ x }}{% endmacro %}"
          "{% set ns.inner = inner %}{% set y = inner %}{{ inner() }}{% endmacro %}"
          "{{ outer(namespace(m=outer)) }}{{ ns.inner() }}")
          .ok());
  EXPECT_TRUE(render("{% set ns = namespace(m=0) %}{% for i in range(5000) %}{% set old = ns.m %}"
                     "{% macro m() %}{{ old }}{% endmacro %}{% set ns.m = m %}{% endfor %}")
                  .ok());
}

}  // namespace
}  // namespace tierkv
