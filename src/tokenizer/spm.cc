// SentencePiece's BPE: spaces become U+2581, symbols begin as characters, and the adjacent pair
// that is the best-scored token is joined again and again. What is no token at the end is spelt in
// bytes.
#include <algorithm>
#include <array>
#include <bit>

#include "tokenizer/merge.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab_tokenizer.h"

namespace tierkv {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  while (true) {
    const size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == text.npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

// The byte that "<0x0A>" stands for, or -1.
int parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'A' && c <= 'F';
    if (!digit && !letter) return -1;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

// An order-reversing map from scores to integers: the highest score comes first.
uint32_t priority_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes 0
  const uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

class SpmTokenizer : public VocabTokenizer {
 public:
  Status init(VocabData& data) {
    if (data.scores.size() != data.tokens.size()) {
      return corrupt(format("the vocabulary has %zu tokens but %zu scores", data.tokens.size(),
                            data.scores.size()));
    }
    normalize_kinds(data);
    TIERKV_ASSIGN_OR_RETURN(Vocab vocab, Vocab::create(data));
    const Defaults defaults{
        .add_bos = true, .add_space_prefix = true, .bos = 1, .eos = 2, .unk = 0};
    TIERKV_RETURN_IF_ERROR(VocabTokenizer::init(data, std::move(vocab), defaults));
    priorities_.resize(data.scores.size());
    std::transform(data.scores.begin(), data.scores.end(), priorities_.begin(), priority_of);
    return init_bytes();
  }

 protected:
  Status encode_plain(std::string_view plain, std::vector<TokenId>& out) const override {
    const std::string text = replace_all(plain, " ", kSpace);
    const auto spelling = [&text](const MergeSymbol& symbol, uint32_t length) {
      return std::string_view(text).substr(symbol.start, length);
    };
    Merger merger;
    for (size_t at = 0; at < text.size();) {
      const int length = utf8_length(static_cast<unsigned char>(text[at]));
      merger.add(length, vocab().find_plain(std::string_view(text).substr(at, length)));
      at += length;
    }
    merger.run([&](const MergeSymbol& left, const MergeSymbol& right) -> std::optional<MergeStep> {
      const TokenId id = vocab().find_plain(spelling(left, left.length + right.length));
      if (id == kNoToken) return std::nullopt;
      return MergeStep{priorities_[id], id};
    });
    merger.for_each([&](const MergeSymbol& symbol) {
      if (symbol.id != kNoToken) {
        out.push_back(symbol.id);
      } else {
        append_bytes(spelling(symbol, symbol.length), out);
      }
    });
    return {};
  }

  std::string plain_bytes(TokenId id) const override {
    const std::string_view text = vocab().text(id);
    if (vocab().kind(id) != TokenKind::kByte) return replace_all(text, kSpace, " ");
    return std::string(1, static_cast<char>(parse_byte_token(text)));
  }

 private:
  // User-defined tokens are matched in the text as the user wrote it, before spaces become U+2581.
  // A file without token types has its byte tokens by their spelling.
  static void normalize_kinds(VocabData& data) {
    if (data.kinds.empty()) {
      for (const std::string& token : data.tokens) {
        const bool byte = parse_byte_token(token) >= 0;
        data.kinds.push_back(byte ? TokenKind::kByte : TokenKind::kNormal);
      }
    }
    for (size_t i = 0; i < std::min(data.tokens.size(), data.kinds.size()); ++i) {
      if (data.kinds[i] != TokenKind::kUserDefined) continue;
      data.tokens[i] = replace_all(data.tokens[i], kSpace, " ");
    }
  }

  Status init_bytes() {
    byte_ids_.fill(kNoToken);
    for (TokenId id = 0; id < vocab().size(); ++id) {
      if (vocab().kind(id) != TokenKind::kByte) continue;
      const int byte = parse_byte_token(vocab().text(id));
      if (byte < 0) return corrupt(format("token %d is a byte, but not spelt like <0x0A>", id));
      byte_ids_[byte] = id;
    }
    const bool complete = std::count(byte_ids_.begin(), byte_ids_.end(), kNoToken) == 0;
    if (complete || unk() != kNoToken) return {};
    return corrupt(
        "the vocabulary lacks byte tokens and has no unknown token: it can't spell every "
        "text");
  }

  // A symbol that can't be spelt in full is one unknown token, as in SentencePiece.
  void append_bytes(std::string_view symbol, std::vector<TokenId>& out) const {
    if (symbol == kSpace) symbol = " ";
    const size_t begin = out.size();
    for (const char c : symbol) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    if (std::find(out.begin() + begin, out.end(), kNoToken) == out.end()) return;
    out.resize(begin);
    out.push_back(unk());
  }

  std::vector<uint32_t> priorities_;  // by token
  std::array<TokenId, 256> byte_ids_{};
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_spm_tokenizer(VocabData data) {
  auto tokenizer = std::make_unique<SpmTokenizer>();
  TIERKV_RETURN_IF_ERROR(tokenizer->init(data));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace tierkv
