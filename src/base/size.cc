#include "base/size.h"

#include <charconv>
#include <cmath>

namespace tierkv {
namespace {

// Power of 1024 for a suffix, or -1.
int suffix_power(std::string_view suffix) {
  if (suffix.empty() || suffix == "B" || suffix == "b") return 0;
  static constexpr std::string_view kLetters = "KMGT";
  const char upper = suffix[0] >= 'a' && suffix[0] <= 'z' ? suffix[0] - 'a' + 'A' : suffix[0];
  const size_t at = kLetters.find(upper);
  if (at == std::string_view::npos) return -1;
  const std::string_view rest = suffix.substr(1);
  const bool known =
      rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib" || rest == "i";
  return known ? static_cast<int>(at) + 1 : -1;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  const auto bad = [&](const char* why) {
    return invalid_argument("size \"" + std::string(text.substr(0, 40)) + "\" " + why +
                            "; write it as 300M, 1.5G or 2GiB");
  };
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return bad("is out of range");
  if (error != std::errc()) return bad("does not start with a number");
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix[0] == ' ') suffix.remove_prefix(1);
  const int power = suffix_power(suffix);
  if (power < 0) return bad("has an unknown unit");
  const double bytes = value * std::pow(1024.0, power);
  if (!(bytes >= 1)) return bad("is not a positive number of bytes");
  if (bytes >= 0x1p62) return bad("is too large");
  return static_cast<uint64_t>(bytes);
}

std::string format_size(uint64_t bytes) {
  if (bytes == UINT64_MAX) return "unlimited";
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return format(unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

std::string format_size_argument(uint64_t bytes) {
  const uint64_t mebibytes = (bytes >> 20) + ((bytes & ((1 << 20) - 1)) != 0);
  return format("%lluM", static_cast<unsigned long long>(mebibytes));
}

}  // namespace tierkv
