// What the user sees while waiting, and Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace tierkv::cli {

// A line on standard error that is rewritten in place; silent when that is no terminal.
class Progress {
 public:
  Progress(std::string label, std::string unit);
  ~Progress();  // clears the line
  void update(int64_t done, int64_t total);

 private:
  const std::string label_, unit_;
  const bool visible_;
  double last_ = 0;
};

// Becomes true at the first Ctrl-C; the second one ends the process as usual.
const std::atomic<bool>& interrupted();
void reset_interrupt();
void install_interrupt_handler();

// Prints "error: ..." to standard error (and {"error": ...} to standard output for --json) and
// gives the process's exit code: never 0.
int report_error(const Status& status, bool json);

inline constexpr int kExitInterrupted = 130;

}  // namespace tierkv::cli
