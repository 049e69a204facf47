// What ran when, to be looked at in a trace viewer: spans of time on lanes, lane 0 the thread that
// computes, the others I/O. Passed by pointer; null is off and costs a comparison. Memory is
// bounded and taken from a budget at the start: the newest spans are kept, the others counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/buffer.h"
#include "base/file.h"
#include "base/status.h"

namespace tierkv {

class Trace {
 public:
  static constexpr int64_t kDefaultSpans = 1 << 17;  // 5 MiB: some hundred tokens over flash
  static constexpr int kComputeLane = 0;

  struct Span {
    const char* name;  // a literal
    int64_t begin_ns, end_ns;
    int64_t extent;  // -1: none
    int32_t layer;   // -1: none
    int32_t lane;
  };

  static Result<std::unique_ptr<Trace>> create(MemoryBudget& budget,
                                               int64_t max_spans = kDefaultSpans);

  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // From any thread.
  void add(const Span& span);
  int64_t n_spans() const;
  int64_t n_dropped() const;  // the oldest

  // Chrome's trace event format, for chrome://tracing or ui.perfetto.dev: "complete" events with
  // microseconds from the trace's beginning, the lane as thread, layer and extent as arguments.
  Status write(File& file) const;

 private:
  Trace(Buffer spans, int64_t max_spans)
      : spans_(std::move(spans)), max_spans_(max_spans), start_ns_(now_ns()) {}

  Buffer spans_;
  const int64_t max_spans_;
  const int64_t start_ns_;
  mutable std::mutex mutex_;
  int64_t n_added_ = 0;
};

// A span from here to the end of the block.
class TraceScope {
 public:
  TraceScope(Trace* trace, const char* name, int layer = -1, int64_t extent = -1)
      : trace_(trace), name_(name), layer_(layer), extent_(extent) {
    if (trace_ != nullptr) begin_ns_ = Trace::now_ns();
  }
  ~TraceScope() {
    if (trace_ == nullptr) return;
    trace_->add({name_, begin_ns_, Trace::now_ns(), extent_, layer_, Trace::kComputeLane});
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  const char* name_;
  int layer_;
  int64_t extent_;
  int64_t begin_ns_ = 0;
};

}  // namespace tierkv
