#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "tokenizer/vocab.h"
#include "tokenizer/vocab_tokenizer.h"

namespace tierkv {

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(GgufFile& file) {
  TIERKV_ASSIGN_OR_RETURN(VocabData data, read_vocab(file));
  auto tokenizer = make_tokenizer(std::move(data));
  if (!tokenizer.ok()) return tokenizer.status().with_context(file.path());
  return tokenizer;
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(VocabData data) {
  if (data.model == "gpt2") return make_bpe_tokenizer(std::move(data));
  if (data.model == "llama") return make_spm_tokenizer(std::move(data));
  return unsupported(
      format("the tokenizer kind \"%s\" (tokenizer.ggml.model) can't be run here; "
             "known are gpt2 and llama",
             data.model.c_str()));
}

}  // namespace tierkv
