#include "base/trace.h"

#include <algorithm>
#include <set>
#include <string>

namespace tierkv {
namespace {

constexpr size_t kPieceBytes = 1 << 16;

double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

std::string span_json(const Trace::Span& span, int64_t start_ns) {
  std::string json =
      format(R"({"name":"%s","ph":"X","pid":1,"tid":%d,"ts":%.3f,"dur":%.3f)", span.name, span.lane,
             us(span.begin_ns - start_ns), us(span.end_ns - span.begin_ns));
  if (span.layer >= 0) {
    json += format(R"(,"args":{"layer":%d)", span.layer);
    if (span.extent >= 0) json += format(R"(,"extent":%lld)", static_cast<long long>(span.extent));
    json += "}";
  }
  return json + "},\n";
}

std::string lane_json(int lane) {
  const std::string name =
      lane == Trace::kComputeLane ? "compute" : "flash I/O " + std::to_string(lane);
  return format(R"({"name":"thread_name","ph":"M","pid":1,"tid":%d,"args":{"name":"%s"}},)", lane,
                name.c_str()) +
         "\n";
}

// Appends to a file in pieces.
class Appender {
 public:
  explicit Appender(File& file) : file_(file) {}

  Status append(const std::string& text) {
    piece_ += text;
    return piece_.size() < kPieceBytes ? Status() : flush();
  }
  Status flush() {
    TIERKV_RETURN_IF_ERROR(file_.write_at(at_, std::as_bytes(std::span(piece_))));
    at_ += piece_.size();
    piece_.clear();
    return {};
  }

 private:
  File& file_;
  uint64_t at_ = 0;
  std::string piece_;
};

}  // namespace

Result<std::unique_ptr<Trace>> Trace::create(MemoryBudget& budget, int64_t max_spans) {
  TIERKV_ASSIGN_OR_RETURN(Buffer spans,
                          Buffer::allocate(budget, MemoryKind::kScratch, max_spans * sizeof(Span)));
  return std::unique_ptr<Trace>(new Trace(std::move(spans), max_spans));
}

void Trace::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  spans_.as<Span>()[n_added_++ % max_spans_] = span;
}

int64_t Trace::n_spans() const {
  const std::lock_guard lock(mutex_);
  return std::min(n_added_, max_spans_);
}

int64_t Trace::n_dropped() const {
  const std::lock_guard lock(mutex_);
  return std::max<int64_t>(n_added_ - max_spans_, 0);
}

Status Trace::write(File& file) const {
  const std::lock_guard lock(mutex_);
  Appender out(file);
  TIERKV_RETURN_IF_ERROR(out.append("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"));
  std::set<int> lanes = {kComputeLane};
  const int64_t n_dropped = std::max<int64_t>(n_added_ - max_spans_, 0);
  for (int64_t i = n_dropped; i < n_added_; ++i) {
    const Span& span = spans_.as<Span>()[i % max_spans_];
    lanes.insert(span.lane);
    TIERKV_RETURN_IF_ERROR(out.append(span_json(span, start_ns_)));
  }
  for (const int lane : lanes) TIERKV_RETURN_IF_ERROR(out.append(lane_json(lane)));
  TIERKV_RETURN_IF_ERROR(out.append(
      format("{\"name\":\"dropped\",\"ph\":\"M\",\"pid\":1,\"args\":{\"spans\":%lld}}\n]}\n",
             static_cast<long long>(n_dropped))));
  return out.flush();
}

}  // namespace tierkv
