// The first bytes choose a small vocabulary, the rest is a text. Whatever they are: valid UTF-8
// comes back from decode(encode(text)), other text is refused, and no control token is made from
// text that was not to be parsed for them.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <string>

#include "tokenizer/test_vocab.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab_tokenizer.h"

namespace tierkv {
namespace {

constexpr const char* kPreTokenizers[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
constexpr std::string_view kSpmSpace = "\xe2\x96\x81";  // U+2581
constexpr TokenKind kExtraKinds[] = {TokenKind::kNormal, TokenKind::kControl,
                                     TokenKind::kUserDefined, TokenKind::kUnused};

void require(bool promise) {
  if (!promise) std::abort();
}

void add_extra_tokens(FuzzedDataProvider& input, VocabData& data) {
  for (int n = input.ConsumeIntegralInRange(0, 12); n > 0; --n) {
    const float score = static_cast<float>(input.ConsumeIntegralInRange(-4, 4));
    const TokenKind kind = input.PickValueInArray(kExtraKinds);
    add_token(data, input.ConsumeRandomLengthString(8), kind, score);
  }
}

void add_merges(FuzzedDataProvider& input, VocabData& data) {
  const auto word = [&] {
    return data.tokens[input.ConsumeIntegralInRange<size_t>(0, data.tokens.size() - 1)];
  };
  for (int n = input.ConsumeIntegralInRange(0, 12); n > 0; --n) {
    const std::string left = word(), right = word();
    if (left.empty() || right.empty() || left.find(' ', 1) != left.npos) continue;
    add_merge(data, left, right);
  }
}

VocabData make_vocab(FuzzedDataProvider& input) {
  const bool bpe = input.ConsumeBool();
  VocabData data = bpe ? byte_level_vocab(input.PickValueInArray(kPreTokenizers)) : spm_vocab();
  data.add_space_prefix = input.ConsumeBool();
  add_extra_tokens(input, data);
  if (bpe) add_merges(input, data);
  return data;
}

std::string as_decoded(const VocabData& data, std::string text) {
  if (data.model != "llama") return text;
  for (size_t at; (at = text.find(kSpmSpace)) != text.npos;) text.replace(at, 3, " ");
  return text;
}

void check_round_trip(const VocabData& data, const Tokenizer& tokenizer, const std::string& text) {
  const auto plain = tokenizer.encode(text, {.add_special = false});
  if (find_invalid_utf8(text) != kUtf8Valid) {
    require(plain.status().code() == StatusCode::kInvalidArgument);
    return;
  }
  require(plain.ok());
  require(tokenizer.decode(*plain) == as_decoded(data, text));
  for (const TokenId id : *plain) require(data.kinds[id] != TokenKind::kControl);
  const auto parsed = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  require(parsed.ok());
  require(tokenizer.decode(*parsed, true) == as_decoded(data, text));
}

void check_stream(const std::string& bytes, size_t cut) {
  Utf8Stream whole, halves;
  const std::string expected = whole.push(bytes) + whole.flush();
  std::string out = halves.push(std::string_view(bytes).substr(0, cut));
  out += halves.push(std::string_view(bytes).substr(cut));
  out += halves.flush();
  require(out == expected && find_invalid_utf8(out) == kUtf8Valid);
  if (find_invalid_utf8(bytes) == kUtf8Valid) require(out == bytes);
}

}  // namespace
}  // namespace tierkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider input(bytes, size);
  const tierkv::VocabData data = tierkv::make_vocab(input);
  const auto tokenizer = tierkv::make_tokenizer(data);
  tierkv::require(tokenizer.ok());
  const std::string text = input.ConsumeRemainingBytesAsString();
  tierkv::check_round_trip(data, **tokenizer, text);
  tierkv::check_stream(text, text.size() / 2);
  return 0;
}
