#include "runtime/chat_prompt.h"

#include <algorithm>

namespace tierkv {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// True when some of `text` would become a control token if parsed.
Result<bool> has_special(const Tokenizer& tokenizer, std::string_view text) {
  TIERKV_ASSIGN_OR_RETURN(const auto plain, tokenizer.encode(text, {false, false}));
  TIERKV_ASSIGN_OR_RETURN(const auto parsed, tokenizer.encode(text, {false, true}));
  return plain != parsed;
}

Status append(const Tokenizer& tokenizer, std::string_view text, bool parse_special,
              std::vector<TokenId>* out) {
  if (text.empty()) return {};
  TIERKV_ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(text, {false, parse_special}));
  out->insert(out->end(), ids.begin(), ids.end());
  return {};
}

// Template text around the messages' contents. In the common case no content holds the text of a
// control token, and everything is tokenised in one piece, as the model was trained; otherwise such
// contents are cut out and tokenised as plain text.
Result<std::vector<TokenId>> encode_rendered(const Tokenizer& tokenizer, std::string_view rendered,
                                             const std::vector<ChatMessage>& messages) {
  std::vector<TokenId> ids;
  for (const ChatMessage& message : messages) {
    TIERKV_ASSIGN_OR_RETURN(const bool special, has_special(tokenizer, message.content));
    if (!special) continue;
    const std::string_view content = trimmed(message.content);
    const size_t at = rendered.find(content);
    if (at == std::string_view::npos) {
      return invalid_argument(
          "a message holds the text of a control token, and the chat template changes the message "
          "so "
          "that it can't be kept apart; take that text out");
    }
    TIERKV_RETURN_IF_ERROR(append(tokenizer, rendered.substr(0, at), true, &ids));
    TIERKV_RETURN_IF_ERROR(append(tokenizer, content, false, &ids));
    rendered.remove_prefix(at + content.size());
  }
  TIERKV_RETURN_IF_ERROR(append(tokenizer, rendered, true, &ids));
  return ids;
}

}  // namespace

Result<std::vector<TokenId>> encode_chat(const Engine& engine,
                                         const std::vector<ChatMessage>& messages) {
  const Tokenizer& tokenizer = engine.tokenizer();
  TIERKV_ASSIGN_OR_RETURN(const std::string rendered, apply_chat_template(engine, messages));
  TIERKV_ASSIGN_OR_RETURN(std::vector<TokenId> ids, encode_rendered(tokenizer, rendered, messages));
  if (tokenizer.adds_bos() && (ids.empty() || ids[0] != tokenizer.bos())) {
    ids.insert(ids.begin(), tokenizer.bos());
  }
  return ids;
}

Result<std::vector<TokenId>> encode_next_turn(const Engine& engine, std::vector<ChatMessage> before,
                                              const std::string& answer, const std::string& user) {
  TIERKV_ASSIGN_OR_RETURN(std::string read, apply_chat_template(engine, before));
  read += answer;
  before.push_back({"assistant", answer});
  before.push_back({"user", user});
  TIERKV_ASSIGN_OR_RETURN(const std::string whole, apply_chat_template(engine, before));
  if (!whole.starts_with(read)) {
    return unsupported("the chat template rewrites earlier turns");
  }
  return encode_rendered(engine.tokenizer(), std::string_view(whole).substr(read.size()),
                         {{"user", user}});
}

Result<std::vector<TokenId>> encode_next_turn(const Engine& engine, const std::string& user) {
  return encode_next_turn(engine, {{"user", "Hello."}}, "Hello.", user);
}

}  // namespace tierkv
