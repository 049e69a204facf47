// What decoding costs on this device, for the planner: seconds of a step without attention, seconds
// of attention a stored token in each form, bytes a second from flash. Measured once per device,
// model, number of threads and build, in under two seconds, and kept in a file of the cache folder;
// on a machine that was busy with something else, measured again the next time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/kv_layout.h"
#include "plan/plan.h"

namespace tierkv {

class Engine;

// Of one token in one KV head, for all query heads that share it.
struct AttentionCosts {
  int head_dim = 0, group = 0;
  double exact_seconds = 0;
  struct Codec {
    CodecId codec;
    double seconds = 0;
  };
  std::vector<Codec> codecs;
};

struct DeviceCosts {
  bool measured = false;                // else the defaults of docs/decisions.md
  bool disturbed = false;               // while others had the CPU: not kept
  double step_seconds = 0;              // a decode step with next to no context; 0: unknown
  double flash_bytes_per_second = 1e9;  // reading extents ahead, as decoding does
  bool flash_measured = false;
  std::vector<AttentionCosts> attention;  // one per shape of the full-attention layers

  double exact_seconds(const KvLayerShape& shape) const;
  double codec_seconds(const KvLayerShape& shape, CodecId codec) const;
};

// Those of the cache file, or else measured and written there; what can't be measured (too small a
// budget) has the defaults. `flash_directory` empty: flash is not measured. `cache`: a folder;
// empty: default_costs_folder(). The engine must be loaded; its budget is kept.
DeviceCosts device_costs(Engine& engine, const std::string& flash_directory, bool anew = false,
                         const std::string& cache = {});
// Only from the cache file: the engine need not be loaded. Defaults when there is none.
DeviceCosts cached_device_costs(Engine& engine, const std::string& cache = {});

std::string default_costs_folder();

// As JSON, for the cache file. Anything malformed is kCorrupt.
std::string costs_to_json(const DeviceCosts& costs, const std::string& key);
Result<DeviceCosts> costs_from_json(const std::string& text, const std::string& key);

}  // namespace tierkv
