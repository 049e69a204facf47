// Each backend that there is here, with overlap and without: what tests of the cache over flash run
// with.
#pragma once

#include <string>
#include <vector>

#include "kv/flash_test_util.h"
#include "kv/page_table.h"

namespace tierkv {

struct FlashWay {
  FlashBackend backend;
  FlashOverlap overlap;

  FlashOptions options() const {
    FlashOptions options;
    options.backend = backend;
    options.overlap = overlap;
    return options;
  }
};

inline std::vector<FlashWay> all_flash_ways() {
  std::vector<FlashWay> ways;
  for (const FlashBackend backend : available_backends()) {
    ways.push_back({backend, FlashOverlap::kOn});
    ways.push_back({backend, FlashOverlap::kOff});
  }
  return ways;
}

inline std::string flash_way_name(const ::testing::TestParamInfo<FlashWay>& info) {
  return std::string(flash_backend_name(info.param.backend)) +
         (info.param.overlap == FlashOverlap::kOn ? "" : "_no_overlap");
}

}  // namespace tierkv
