#include "tokenizer/chat_template.h"

#include <ctime>
#include <exception>
#include <new>
#include <utility>

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/parser.h"

namespace tierkv {

struct ChatTemplate::Impl {
  jinja::Limits limits;
  jinja::Block block;
};

namespace {

std::string located(const jinja::Error& error) {
  if (error.line == 0) return "chat template: " + error.message;
  return format("chat template, line %d: %s", error.line, error.message.c_str());
}

// The boundary behind which faults are exceptions.
template <typename Fn>
auto without_exceptions(Fn fn) -> Result<decltype(fn())> {
  try {
    return fn();
  } catch (const jinja::Error& error) {
    return Status(error.code, located(error));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("chat template: out of memory");
  } catch (const std::exception& error) {
    return internal_error(std::string("chat template: ") + error.what());
  }
}

jinja::Limits interpreter_limits(const ChatTemplateLimits& limits) {
  return {limits.max_steps, limits.max_depth, limits.max_output_bytes};
}

// The messages are the caller's: they don't count against the template's limits.
jinja::Value messages_value(const std::vector<ChatMessage>& messages) {
  jinja::Meter unlimited({INT64_MAX, 100, INT64_MAX / 8});
  std::vector<jinja::Value> items;
  for (const ChatMessage& message : messages) {
    jinja::Dict dict;
    dict.set("role", message.role);
    dict.set("content", message.content);
    items.push_back(jinja::make_dict(unlimited, std::move(dict)));
  }
  return jinja::make_list(unlimited, std::move(items));
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source, const ChatTemplateLimits& limits) {
  if (limits.max_source_bytes < 0 ||
      source.size() > static_cast<uint64_t>(limits.max_source_bytes)) {
    return resource_exhausted(format("the chat template has %zu bytes; %lld are allowed",
                                     source.size(),
                                     static_cast<long long>(limits.max_source_bytes)));
  }
  return without_exceptions([&] {
    const jinja::Limits inner = interpreter_limits(limits);
    return ChatTemplate(std::make_unique<Impl>(Impl{inner, jinja::parse(source, inner)}));
  });
}

Result<std::string> ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                         bool add_generation_prompt, const std::string& bos_token,
                                         const std::string& eos_token) const {
  return without_exceptions([&] {
    // tools and documents are there and none, as Hugging Face's apply_chat_template has them.
    const jinja::Variables variables = {
        {"messages", messages_value(messages)},
        {"tools", jinja::None{}},
        {"documents", jinja::None{}},
        {"add_generation_prompt", add_generation_prompt},
        {"bos_token", bos_token},
        {"eos_token", eos_token},
    };
    return jinja::render(impl_->block, variables, impl_->limits, local_now());
  });
}

}  // namespace tierkv
