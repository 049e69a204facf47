// A conversation as tokens: the model's chat template, tokenised so that what people write is text
// and only what the template adds can be control tokens.
#pragma once

#include <string>
#include <vector>

#include "runtime/engine.h"

namespace tierkv {

// The whole conversation, ready for the assistant to answer. BOS comes once, as the model wants it.
Result<std::vector<TokenId>> encode_chat(const Engine& engine,
                                         const std::vector<ChatMessage>& messages);

// What follows the assistant's answer `answer` to the conversation `before`, once `user` is said
// next: end of turn, the new message, and the start of the next answer. kUnsupported when the
// template rewrites earlier turns, so that the conversation must be read again from its start.
Result<std::vector<TokenId>> encode_next_turn(const Engine& engine, std::vector<ChatMessage> before,
                                              const std::string& answer, const std::string& user);

// The same when the conversation is known as tokens only: what follows any answer.
Result<std::vector<TokenId>> encode_next_turn(const Engine& engine, const std::string& user);

}  // namespace tierkv
