// A model's chat template (a Jinja template from tokenizer.chat_template), rendered by an
// interpreter of the subset that chat templates use, with limits on steps, depth and output.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace tierkv {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatTemplateLimits {
  int64_t max_steps = 2'000'000;  // evaluated nodes
  int max_depth = 100;            // nesting of expressions, blocks and macro calls
  int64_t max_output_bytes = 64 << 20;
  int64_t max_source_bytes = 1 << 20;
};

class ChatTemplate {
 public:
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Errors name the template's line.
  static Result<ChatTemplate> parse(std::string source, const ChatTemplateLimits& limits = {});

  // raise_exception(...) in the template is kInvalidArgument with its text.
  Result<std::string> render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                             const std::string& bos_token, const std::string& eos_token) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierkv
