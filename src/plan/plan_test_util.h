// Random planning problems whose every number is a small dyadic fraction, so that sums, limits and
// ties are exact in double precision and a brute-force oracle must agree to the last bit.
#pragma once

#include <random>

#include "plan/plan.h"

namespace tierkv {

class RandomPlans {
 public:
  explicit RandomPlans(uint32_t seed) : random_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  double dyadic(int64_t n, double unit) { return static_cast<double>(below(n)) * unit; }

  PlanHead head(int n_options) {
    PlanHead head{.exact_page_bytes = 64 + static_cast<uint64_t>(below(64)),
                  .exact_seconds_per_token = dyadic(16, 0x1p-10),
                  .options = {}};
    for (int i = 0; i < n_options; ++i) {
      const CodecId codec{static_cast<uint8_t>(3 + i % 4), static_cast<uint8_t>(3 + i / 4 % 4)};
      head.options.push_back(
          {codec, static_cast<uint64_t>(1 + below(100)), dyadic(64, 0x1p-10), dyadic(20, 0x1p-10)});
    }
    return head;
  }

  PlanInput input(int n_heads, int n_options, int64_t max_pages) {
    PlanInput in;
    in.page_tokens = 1 + below(4);
    in.total_tokens = 1 + below(max_pages * in.page_tokens);
    in.min_sink_pages = below(2);
    in.min_window_pages = 1 + below(2);
    in.extent_pages = 1 + below(2);
    in.fixed_bytes = static_cast<uint64_t>(below(100));
    in.staging_bytes = static_cast<uint64_t>(below(100));
    in.kld_budget = dyadic(80, 0x1p-10);
    in.flash_allowed = below(3) != 0;
    in.flash_bytes_per_second = static_cast<double>(1 << (8 + below(8)));
    in.overlap_seconds = dyadic(8, 0x1p-3) * static_cast<double>(below(2));
    uint64_t exact = 0;
    for (int i = 0; i < n_heads; ++i) {
      in.heads.push_back(head(n_options));
      exact += in.heads.back().exact_page_bytes;
    }
    const int64_t pages = (in.total_tokens + in.page_tokens - 1) / in.page_tokens;
    in.ram_bytes = in.fixed_bytes + static_cast<uint64_t>(below(pages + 2)) * exact +
                   static_cast<uint64_t>(below(static_cast<int64_t>(exact) + 1));
    return in;
  }

 private:
  std::mt19937 random_;
};

}  // namespace tierkv
