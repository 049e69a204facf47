// The names of --quality: how much KLD compression may cost, in nats a token, strictest first.
#pragma once

namespace tierkv {

struct Quality {
  const char* name;
  double kld;
};
inline constexpr Quality kQualities[] = {
    {"exact", 0}, {"high", 5e-4}, {"balanced", 2e-3}, {"compact", 1e-2}};

}  // namespace tierkv
