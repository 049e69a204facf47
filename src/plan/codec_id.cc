#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "plan/plan.h"

namespace tierkv {
namespace {

constexpr std::array<uint8_t, 5> kKeyBits = {3, 4, 5, 6, 8};  // at 2 bits keys collapse
constexpr std::array<uint8_t, 6> kValueBits = {2, 3, 4, 5, 6, 8};

template <size_t N>
bool contains(const std::array<uint8_t, N>& bits, int value) {
  return std::find(bits.begin(), bits.end(), value) != bits.end();
}

// "50", "37.5": per cent with at most one decimal, in permille.
std::optional<uint16_t> parse_permille(std::string_view text) {
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  const std::string_view decimal = text.substr(std::min(point + 1, text.size()));
  if (point < text.size() ? decimal.size() != 1 || decimal == "0" : false) return std::nullopt;
  digits += point < text.size() ? decimal : "0";
  uint16_t permille = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), permille);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || digits[0] == '0' || permille < 50 || permille > 1000) return std::nullopt;
  return permille;
}

std::string low_rank_name(CodecId codec) {
  std::string name = format("lr%d", codec.rank_permille / 10);
  if (codec.rank_permille % 10 != 0) name += format(".%d", codec.rank_permille % 10);
  return codec.latent_bits == 8 ? name + "i8" : name;
}

// What follows "lr".
std::optional<CodecId> parse_low_rank(std::string_view text) {
  CodecId codec{.latent_bits = 16};
  if (text.ends_with("i8")) {
    codec.latent_bits = 8;
    text.remove_suffix(2);
  }
  const std::optional<uint16_t> permille = parse_permille(text);
  if (!permille) return std::nullopt;
  codec.rank_permille = *permille;
  return codec;
}

}  // namespace

std::string codec_name(CodecId codec) {
  if (codec == CodecId{}) return "exact";
  if (codec.is_low_rank()) return low_rank_name(codec);
  return format("k%dv%d", codec.k_bits, codec.v_bits);
}

Result<CodecId> parse_codec(const std::string& name) {
  if (name == "exact") return CodecId{};
  if (name.starts_with("lr")) {
    if (const auto codec = parse_low_rank(std::string_view(name).substr(2))) return *codec;
  }
  const bool shaped = name.size() == 4 && name[0] == 'k' && name[2] == 'v';
  const int k_bits = shaped ? name[1] - '0' : 0, v_bits = shaped ? name[3] - '0' : 0;
  if (contains(kKeyBits, k_bits) && contains(kValueBits, v_bits)) {
    return CodecId{static_cast<uint8_t>(k_bits), static_cast<uint8_t>(v_bits)};
  }
  return invalid_argument(
      "unknown codec \"" + name.substr(0, 40) +
      "\"; write exact, or kKvV with K of 3, 4, 5, 6, 8 and V of 2, 3, 4, 5, 6, "
      "8 bits, such as k5v4, or lrR or lrRi8 with a rank R of 5 to 100 %, such as lr50");
}

}  // namespace tierkv
