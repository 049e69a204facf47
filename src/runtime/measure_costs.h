// The microbenchmarks behind DeviceCosts.
#pragma once

#include <string>

#include "runtime/device_costs.h"
#include "runtime/engine.h"

namespace tierkv {

// Steps and attention. Where the budget leaves no room to measure, the costs stay as they are and
// are not marked as measured.
void measure_decode_costs(Engine& engine, DeviceCosts& costs);

// Writes and reads some extents in the directory; what fails there leaves the default.
void measure_flash_cost(Engine& engine, const std::string& directory, DeviceCosts& costs);

}  // namespace tierkv
