// Calibration: measures, on texts, what each KV head's K and V cost at a reference width, what the
// widths cost, how the cost falls with the distance of the tokens that are compressed, and whether
// whole plans cost what their parts add up to (docs/decisions.md, "Calibration"). It takes minutes;
// what has been measured is kept in a file, so that a run that was stopped goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/accuracy_probe.h"
#include "runtime/engine.h"
#include "runtime/profile.h"

namespace tierkv {

struct CalibrationText {
  std::string name;
  std::vector<int32_t> tokens;
};

struct CalibrationOptions {
  std::vector<CalibrationText> texts;
  int64_t passages = 3;      // of each text, spread over it; head by head on the last
  int64_t prefix = 3072;     // tokens of a passage that are compressed, sinks and window aside
  int64_t tokens = 256;      // that follow and are compared
  std::string partial_file;  // what has been measured so far; empty: not kept
  std::function<void(int64_t done, int64_t total)> progress;  // measurements
  const std::atomic<bool>* cancel = nullptr;
};

// `engine` loaded. On cancellation (kCancelled) the partial file has everything measured.
Result<Profile> calibrate(Engine& engine, const CalibrationOptions& options);

}  // namespace tierkv
