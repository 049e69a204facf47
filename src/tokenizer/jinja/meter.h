// What a template may consume, and how it fails. Inside jinja/ a fault is an exception of type
// Error; chat_template.cc, the only caller, turns it into a Status. Everything a template can make
// grow is paid for here before it is made: templates come with model files, and may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace tierkv::jinja {

struct Error {
  StatusCode code;
  std::string message;
  int line = 0;  // 1-based; 0 until someone who knows it fills it in
};

// kInvalidArgument: what the template does to its values has no meaning.
[[noreturn]] void fail(std::string message);
[[noreturn]] void fail(StatusCode code, std::string message, int line = 0);

struct Limits {
  int64_t max_steps = 2'000'000;  // evaluated nodes
  int max_depth = 100;  // of expressions, blocks, macro calls and values, each and together
  int64_t max_output_bytes = 64 << 20;
};

class Meter {
 public:
  explicit Meter(const Limits& limits);

  void step(uint64_t n = 1) {
    if (n > steps_left_) fail_steps();
    steps_left_ -= n;
  }
  // Work that is linear in `bytes`: a search, a comparison. A KiB is as much as a step.
  void read(uint64_t bytes) { step(bytes / 1024); }
  // Looking for a needle by comparing it at every place, as std::string_view::find may have to.
  void search(uint64_t haystack_bytes, uint64_t needle_bytes) {
    step(haystack_bytes / 1024 * (1 + needle_bytes / 16));
  }
  // A new value of about `bytes`. What is freed is not given back: the sum bounds time as well.
  void allocate(uint64_t bytes);
  // `count` times `bytes`, where the product may overflow.
  void allocate(uint64_t bytes, uint64_t count);
  // Refuses a value that nests too deep to be walked (and destroyed) by recursion.
  void check_depth(int depth) const {
    if (depth > max_depth_) fail_depth();
  }

 private:
  friend class DepthGuard;
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_depth() const;

  uint64_t steps_left_;
  uint64_t bytes_left_;
  int depth_ = 0;
  const int max_depth_;
};

// One level of recursion, for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Meter& meter) : meter_(meter) {
    meter_.check_depth(meter_.depth_ + 1);
    ++meter_.depth_;
  }
  ~DepthGuard() { --meter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Meter& meter_;
};

}  // namespace tierkv::jinja
