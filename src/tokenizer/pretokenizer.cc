#include "tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

namespace tierkv {
namespace {

// Unicode's White_Space, spelt out: PCRE2's own \s has U+180E besides, which left it in
// Unicode 6.3.
#define TIERKV_SPACE_ \
  R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define TIERKV_S_ "[" TIERKV_SPACE_ "]"
#define TIERKV_SYMBOL_ "[^" TIERKV_SPACE_ R"(\p{L}\p{N}])"
// A run of blanks before a word leaves its last blank to the word.
#define TIERKV_BLANKS_ TIERKV_S_ "+(?![^" TIERKV_SPACE_ "])|" TIERKV_S_ "+"

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?)" TIERKV_SYMBOL_ "+|" TIERKV_BLANKS_;
constexpr char kDigit[] = R"(\p{N})";

#define TIERKV_CL100K_(digits)                                                                \
  R"('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits \
  "| ?" TIERKV_SYMBOL_ R"(+[\r\n]*|)" TIERKV_S_ R"(*[\r\n]+|)" TIERKV_BLANKS_
constexpr char kLlama3[] = TIERKV_CL100K_(R"(\p{N}{1,3})");
constexpr char kQwen2[] = TIERKV_CL100K_(R"(\p{N})");

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeFree>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataFree>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextFree>;

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[128] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

Result<Code> compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE where = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr));
  if (!code) {
    return internal_error(
        format("pre-tokeniser pattern, offset %zu: %s", where, pcre2_message(error).c_str()));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where it can't, matching is interpreted
  return code;
}

}  // namespace

struct PreTokenizer::Impl {
  std::vector<Code> codes;
  MatchContext context;  // read only once made
};

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

Result<PreTokenizerSpec> find_pre_tokenizer(std::string_view name) {
  if (name.empty() || name == "default" || name == "gpt-2") {
    return PreTokenizerSpec{"gpt-2", {kGpt2}};
  }
  if (name == "smollm") return PreTokenizerSpec{"smollm", {kDigit, kGpt2}};
  if (name == "qwen2") return PreTokenizerSpec{"qwen2", {kQwen2}};
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") {
    return PreTokenizerSpec{"llama-bpe", {kLlama3}, true, true};
  }
  return unsupported(
      format("the pre-tokeniser \"%.*s\" (tokenizer.ggml.pre) is not known here; "
             "known are smollm, gpt-2, llama-bpe and qwen2",
             static_cast<int>(name.size()), name.data()));
}

Result<PreTokenizer> PreTokenizer::create(const PreTokenizerSpec& spec) {
  auto impl = std::make_unique<Impl>();
  for (const char* pattern : spec.patterns) {
    TIERKV_ASSIGN_OR_RETURN(Code code, compile(pattern));
    impl->codes.push_back(std::move(code));
  }
  impl->context.reset(pcre2_match_context_create(nullptr));
  if (!impl->context) return resource_exhausted("no memory for the pre-tokeniser");
  // Backtracking over a long run of blanks takes a step a blank; the time stays linear.
  pcre2_set_match_limit(impl->context.get(), UINT32_MAX);
  return PreTokenizer(std::move(impl));
}

namespace {

// Where the next match is. `end` 0: there is none.
struct Span {
  size_t begin = 0, end = 0;
};

Result<Span> next_match(const pcre2_code* code, pcre2_match_context* context,
                        pcre2_match_data* data, std::string_view text, size_t from) {
  const auto match = [&](uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       options | PCRE2_NO_UTF_CHECK, data, context);
  };
  int rc = match(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
  if (rc == PCRE2_ERROR_NOMATCH) return Span{};
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data);
  if (rc < 0) return internal_error("pre-tokeniser: " + pcre2_message(rc));
  if (found[1] <= found[0]) return internal_error("pre-tokeniser: a pattern matched nothing");
  return Span{found[0], found[1]};
}

Status split_once(const pcre2_code* code, pcre2_match_context* context, pcre2_match_data* data,
                  std::string_view text, std::vector<std::string_view>& pieces) {
  size_t done = 0;
  while (done < text.size()) {
    TIERKV_ASSIGN_OR_RETURN(const Span span, next_match(code, context, data, text, done));
    const size_t begin = span.end == 0 ? text.size() : span.begin;
    if (begin > done) pieces.push_back(text.substr(done, begin - done));
    if (span.end == 0) break;
    pieces.push_back(text.substr(begin, span.end - begin));
    done = span.end;
  }
  return {};
}

}  // namespace

Result<std::vector<std::string_view>> PreTokenizer::split(std::string_view text) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (!data) return resource_exhausted("no memory for the pre-tokeniser");
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const Code& code : impl_->codes) {
    std::vector<std::string_view> finer;
    finer.reserve(text.size() / 4);
    for (const std::string_view piece : pieces) {
      TIERKV_RETURN_IF_ERROR(
          split_once(code.get(), impl_->context.get(), data.get(), piece, finer));
    }
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace tierkv
