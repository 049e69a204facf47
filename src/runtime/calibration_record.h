// The results of a calibration so far, in order, kept in a file: a calibration that was stopped
// goes on after them. Bound by a key to what is measured; the results of something else are
// ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tierkv {

class CalibrationRecord {
 public:
  // Takes over what the file holds if it is of this key. An empty path keeps nothing.
  void open(FileSystem& file_system, std::string path, uint64_t key, size_t most);

  size_t size() const { return results_.size(); }
  const std::vector<double>& results() const { return results_; }

  // Appends, and saves now and then.
  Status add(double result);
  Status save();
  // The calibration is complete: the file goes.
  void remove();

 private:
  std::string path_;
  uint64_t key_ = 0;
  std::vector<double> results_;
  size_t n_saved_ = 0;
};

}  // namespace tierkv
