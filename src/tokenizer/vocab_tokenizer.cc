#include "tokenizer/vocab_tokenizer.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace tierkv {
namespace {

// Tokens that end an answer by their spelling: files often name only one of several as EOS.
constexpr std::string_view kEndOfGeneration[] = {
    "<|eot_id|>",         "<|im_end|>", "<|end|>",          "<end_of_turn>",
    "<|endoftext|>",      "<|eom_id|>", "<|end_of_text|>",  "<eos>",
    "<end_of_utterance>", "<turn|>",    "<|tool_response>",
};
// In some vocabularies (Gemma's) this is HTML's strike-through: it counts as a control token only.
constexpr std::string_view kEndOfSequence = "</s>";

Status set_id(std::optional<TokenId> given, TokenId fallback, const Vocab& vocab, const char* name,
              TokenId& out) {
  if (given && !vocab.contains(*given)) {
    return corrupt(format("the %s token is %d, but the vocabulary has %lld tokens", name, *given,
                          static_cast<long long>(vocab.size())));
  }
  out = given.value_or(vocab.contains(fallback) ? fallback : kNoToken);
  return {};
}

}  // namespace

Status VocabTokenizer::init(const VocabData& data, Vocab vocab, const Defaults& defaults) {
  vocab_ = std::move(vocab);
  vocab_size_ = vocab_.size();
  TIERKV_RETURN_IF_ERROR(init_ids(data, defaults));
  add_bos_ = data.add_bos.value_or(defaults.add_bos) && bos_ != kNoToken;
  add_eos_ = data.add_eos.value_or(false) && eos_ != kNoToken;
  add_space_prefix_ = data.add_space_prefix.value_or(defaults.add_space_prefix);
  init_end_of_generation(data);
  specials_.emplace(vocab_);
  return {};
}

Status VocabTokenizer::init_ids(const VocabData& data, const Defaults& defaults) {
  TIERKV_RETURN_IF_ERROR(set_id(data.bos, defaults.bos, vocab_, "BOS", bos_));
  TIERKV_RETURN_IF_ERROR(set_id(data.eos, defaults.eos, vocab_, "EOS", eos_));
  TIERKV_RETURN_IF_ERROR(set_id(data.unk, defaults.unk, vocab_, "unknown", unk_));
  TokenId ignored;
  TIERKV_RETURN_IF_ERROR(set_id(data.eot, kNoToken, vocab_, "end-of-turn", ignored));
  return set_id(data.eom, kNoToken, vocab_, "end-of-message", ignored);
}

void VocabTokenizer::init_end_of_generation(const VocabData& data) {
  std::vector<TokenId>& ids = end_of_generation_;
  const auto add = [&](TokenId id) {
    if (id != kNoToken) ids.push_back(id);
  };
  add(eos_);
  add(data.eot.value_or(kNoToken));
  add(data.eom.value_or(kNoToken));
  for (const std::string_view text : kEndOfGeneration) {
    const TokenId id = vocab_.find(text);
    if (id == kNoToken) continue;
    add(id);
    vocab_.set_kind(id, TokenKind::kControl);  // some files call it an ordinary token
  }
  const TokenId id = vocab_.find(kEndOfSequence);
  if (id != kNoToken && vocab_.kind(id) == TokenKind::kControl) add(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

Result<std::vector<TokenId>> VocabTokenizer::encode(std::string_view text,
                                                    const EncodeOptions& options) const {
  // Positions in the worked text are 32 bits; spaces may become three bytes.
  if (text.size() > INT32_MAX / 3) {
    return invalid_argument(
        format("a text of %zu bytes is too long to encode at once; cut it", text.size()));
  }
  TIERKV_RETURN_IF_ERROR(check_utf8(text));
  std::vector<TokenId> out;
  out.reserve(text.size() / 3 + 2);
  if (options.add_special && add_bos_) out.push_back(bos_);
  TIERKV_RETURN_IF_ERROR(encode_parts(text, options.parse_special, out));
  if (options.add_special && add_eos_) out.push_back(eos_);
  return out;
}

Status VocabTokenizer::encode_parts(std::string_view text, bool parse_special,
                                    std::vector<TokenId>& out) const {
  for (const TextPart& part : specials_->split(text, parse_special)) {
    if (part.id != kNoToken) {
      out.push_back(part.id);
    } else if (add_space_prefix_) {  // at the start of the text and after special tokens
      TIERKV_RETURN_IF_ERROR(encode_plain(std::string(1, ' ').append(part.text), out));
    } else {
      TIERKV_RETURN_IF_ERROR(encode_plain(part.text, out));
    }
  }
  return {};
}

bool VocabTokenizer::is_plain(TokenId id) const {
  if (!vocab_.contains(id)) return false;
  const TokenKind kind = vocab_.kind(id);
  return kind == TokenKind::kNormal || kind == TokenKind::kByte || kind == TokenKind::kUnused;
}

std::string VocabTokenizer::token_bytes(TokenId id, bool show_special) const {
  if (is_plain(id)) return plain_bytes(id);
  if (!vocab_.contains(id)) return {};
  const bool visible = show_special || vocab_.kind(id) == TokenKind::kUserDefined;
  return visible ? std::string(vocab_.text(id)) : std::string();
}

std::string VocabTokenizer::token_text(TokenId id) const {
  return vocab_.contains(id) ? std::string(vocab_.text(id)) : std::string();
}

// The exact inverse of encode_parts: the space goes wherever that put one.
std::string VocabTokenizer::decode(const std::vector<TokenId>& ids, bool show_special) const {
  std::string out;
  bool may_have_prefix = add_space_prefix_;
  for (const TokenId id : ids) {
    const std::string bytes = token_bytes(id, show_special);
    const bool plain = is_plain(id);
    const bool strip = plain && may_have_prefix && !bytes.empty() && bytes[0] == ' ';
    out.append(bytes, strip ? 1 : 0);
    may_have_prefix = add_space_prefix_ && !plain;
  }
  return out;
}

}  // namespace tierkv
