// read_vocab: the tokenizer.ggml.* keys of a GGUF file as plain data.
#include "tokenizer/vocab.h"

namespace tierkv {
namespace {

Status read_id(const GgufFile& file, std::string_view key, std::optional<TokenId>& out) {
  if (file.find(key) == nullptr) return {};
  TIERKV_ASSIGN_OR_RETURN(const uint64_t id, file.get_uint(key));
  // Some converters write 2^32 - 1 for "none".
  if (id == UINT32_MAX) return {};
  if (id > INT32_MAX) {
    return corrupt(format("%.*s in %s is no token id: %llu", static_cast<int>(key.size()),
                          key.data(), file.path().c_str(), static_cast<unsigned long long>(id)));
  }
  out = static_cast<TokenId>(id);
  return {};
}

Status read_flag(const GgufFile& file, std::string_view key, std::optional<bool>& out) {
  if (file.find(key) == nullptr) return {};
  TIERKV_ASSIGN_OR_RETURN(out, file.get_bool(key, false));
  return {};
}

Result<std::vector<TokenKind>> read_kinds(GgufFile& file) {
  std::vector<TokenKind> kinds;
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (file.find(kKey) == nullptr) return kinds;
  TIERKV_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, file.take_integers(kKey));
  kinds.reserve(numbers.size());
  for (const int64_t number : numbers) {
    // 0 is "undefined": some converters leave it for ordinary tokens.
    if (number < 0 || number > 6) {
      return corrupt(format("token %zu of %s has the unknown type %lld", kinds.size(),
                            file.path().c_str(), static_cast<long long>(number)));
    }
    kinds.push_back(number == 0 ? TokenKind::kNormal : static_cast<TokenKind>(number));
  }
  return kinds;
}

Status read_ids(const GgufFile& file, VocabData& data) {
  TIERKV_RETURN_IF_ERROR(read_id(file, "tokenizer.ggml.bos_token_id", data.bos));
  TIERKV_RETURN_IF_ERROR(read_id(file, "tokenizer.ggml.eos_token_id", data.eos));
  TIERKV_RETURN_IF_ERROR(read_id(file, "tokenizer.ggml.unknown_token_id", data.unk));
  TIERKV_RETURN_IF_ERROR(read_id(file, "tokenizer.ggml.eot_token_id", data.eot));
  return read_id(file, "tokenizer.ggml.eom_token_id", data.eom);
}

Status read_flags(const GgufFile& file, VocabData& data) {
  TIERKV_RETURN_IF_ERROR(read_flag(file, "tokenizer.ggml.add_bos_token", data.add_bos));
  TIERKV_RETURN_IF_ERROR(read_flag(file, "tokenizer.ggml.add_eos_token", data.add_eos));
  return read_flag(file, "tokenizer.ggml.add_space_prefix", data.add_space_prefix);
}

}  // namespace

Result<VocabData> read_vocab(GgufFile& file) {
  VocabData data;
  TIERKV_ASSIGN_OR_RETURN(data.model, file.get_string("tokenizer.ggml.model"));
  TIERKV_ASSIGN_OR_RETURN(data.pre, file.get_string("tokenizer.ggml.pre", ""));
  TIERKV_ASSIGN_OR_RETURN(data.tokens, file.take_strings("tokenizer.ggml.tokens"));
  TIERKV_ASSIGN_OR_RETURN(data.kinds, read_kinds(file));
  if (file.find("tokenizer.ggml.scores") != nullptr) {
    TIERKV_ASSIGN_OR_RETURN(data.scores, file.take_floats("tokenizer.ggml.scores"));
  }
  if (file.find("tokenizer.ggml.merges") != nullptr) {
    TIERKV_ASSIGN_OR_RETURN(data.merges, file.take_strings("tokenizer.ggml.merges"));
  }
  TIERKV_RETURN_IF_ERROR(read_ids(file, data));
  TIERKV_RETURN_IF_ERROR(read_flags(file, data));
  return data;
}

}  // namespace tierkv
