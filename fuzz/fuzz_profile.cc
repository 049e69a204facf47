// Any bytes as an accuracy profile: parsing must neither crash nor hang, and what is accepted must
// be numbers that a planner can use, and survive being written and read again.
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "runtime/profile.h"

namespace tierkv {
namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

void check(const Profile& profile) {
  const size_t n_heads = profile.accuracy.heads.size();
  for (size_t head = 0; head < n_heads; ++head) {
    for (const uint8_t k : kKeyWidths) {
      for (const uint8_t v : kValueWidths) {
        const double kld = head_kld(profile.accuracy, head, n_heads, {k, v});
        require(std::isfinite(kld) && kld >= 0);
      }
    }
  }
  const Result<Profile> again = parse_profile(format_profile(profile));
  require(again.ok());
  require(again->accuracy == profile.accuracy && again->model_hash == profile.model_hash &&
          again->checks == profile.checks && again->texts.size() == profile.texts.size());
}

}  // namespace
}  // namespace tierkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto profile =
      tierkv::parse_profile(std::string_view(reinterpret_cast<const char*>(data), size));
  if (profile.ok()) {
    tierkv::check(*profile);
  } else {
    tierkv::require(!profile.status().message().empty());
  }
  return 0;
}
