#include "tokenizer/jinja/meter.h"

#include <algorithm>
#include <utility>

namespace tierkv::jinja {

namespace {
// Values made on the way may be this many times the output, all together.
constexpr uint64_t kBytesPerOutputByte = 4;
}  // namespace

void fail(std::string message) { throw Error{StatusCode::kInvalidArgument, std::move(message)}; }

void fail(StatusCode code, std::string message, int line) {
  throw Error{code, std::move(message), line};
}

Meter::Meter(const Limits& limits)
    : steps_left_(static_cast<uint64_t>(std::max<int64_t>(limits.max_steps, 0))),
      bytes_left_(std::min(static_cast<uint64_t>(std::max<int64_t>(limits.max_output_bytes, 0)),
                           UINT64_MAX / kBytesPerOutputByte) *
                  kBytesPerOutputByte),
      max_depth_(limits.max_depth) {}

void Meter::allocate(uint64_t bytes) {
  read(bytes);
  if (bytes > bytes_left_) {
    fail(StatusCode::kResourceExhausted, "the template's values take more memory than allowed");
  }
  bytes_left_ -= bytes;
}

void Meter::allocate(uint64_t bytes, uint64_t count) {
  const bool overflow = bytes != 0 && count > UINT64_MAX / bytes;
  allocate(overflow ? UINT64_MAX : bytes * count);
}

void Meter::fail_steps() const {
  fail(StatusCode::kResourceExhausted, "the template takes more steps than allowed");
}

void Meter::fail_depth() const {
  fail(StatusCode::kResourceExhausted,
       format("the template nests deeper than the %d levels allowed", max_depth_));
}

}  // namespace tierkv::jinja
