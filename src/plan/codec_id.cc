#include <algorithm>
#include <array>

#include "plan/plan.h"

namespace tierkv {
namespace {

constexpr std::array<uint8_t, 5> kKeyBits = {3, 4, 5, 6, 8};  // at 2 bits keys collapse
constexpr std::array<uint8_t, 6> kValueBits = {2, 3, 4, 5, 6, 8};

template <size_t N>
bool contains(const std::array<uint8_t, N>& bits, int value) {
  return std::find(bits.begin(), bits.end(), value) != bits.end();
}

}  // namespace

std::string codec_name(CodecId codec) {
  if (codec == CodecId{}) return "exact";
  return format("k%dv%d", codec.k_bits, codec.v_bits);
}

Result<CodecId> parse_codec(const std::string& name) {
  if (name == "exact") return CodecId{};
  const bool shaped = name.size() == 4 && name[0] == 'k' && name[2] == 'v';
  const int k_bits = shaped ? name[1] - '0' : 0, v_bits = shaped ? name[3] - '0' : 0;
  if (contains(kKeyBits, k_bits) && contains(kValueBits, v_bits)) {
    return CodecId{static_cast<uint8_t>(k_bits), static_cast<uint8_t>(v_bits)};
  }
  return invalid_argument(
      "unknown codec \"" + name.substr(0, 40) +
      "\"; write exact, or kKvV with K of 3, 4, 5, 6, 8 and V of 2, 3, 4, 5, 6, "
      "8 bits, such as k5v4");
}

}  // namespace tierkv
