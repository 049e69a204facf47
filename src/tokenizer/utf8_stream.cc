// Utf8Stream (tokenizer.h): a token may end inside a character, and the screen must not see half.
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace tierkv {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  out.reserve(pending_.size());
  size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    out.append(step.kind == Utf8Step::Kind::kCharacter ? rest.substr(0, step.length)
                                                       : kReplacement);
    at += step.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::flush() {
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return incomplete ? std::string(kReplacement) : std::string();
}

}  // namespace tierkv
