// Errors as values. A Status is a code and a sentence for the person who sees it, saying what to
// do; a Result<T> is a Status or a T. Nothing in the library throws across its boundary, aborts or
// exits.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace tierkv {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's request makes no sense: a flag, a size, a token id
  kNotFound,           // a file, a tensor or a key that is not there
  kCorrupt,            // data that contradicts itself: a file, an extent
  kUnsupported,        // well-formed, but not something this build can run
  kResourceExhausted,  // RAM budget, disk space, context length
  kIoError,            // the operating system refused a read or a write
  kCancelled,          // the caller asked to stop
  kInternal,           // our own mistake
};

// "corrupt", "I/O error": for messages and JSON.
const char* status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error seen from further out: "reading model.gguf: tensor count 9e18 is absurd".
  Status with_context(const std::string& context) const {
    return ok() ? *this : Status(code_, context + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status not_found(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status corrupt(std::string m) { return {StatusCode::kCorrupt, std::move(m)}; }
inline Status unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status resource_exhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status io_error(std::string m) { return {StatusCode::kIoError, std::move(m)}; }
inline Status cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status internal_error(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

// printf into a std::string, for error sentences.
[[gnu::format(printf, 1, 2)]] std::string format(const char* fmt, ...);

}  // namespace tierkv

// Returns the Status of `expr` from the enclosing function when it is an error.
#define TIERKV_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::tierkv::Status tierkv_status_ = (expr);        \
    if (!tierkv_status_.ok()) return tierkv_status_; \
  } while (0)

#define TIERKV_CONCAT_INNER_(a, b) a##b
#define TIERKV_CONCAT_(a, b) TIERKV_CONCAT_INNER_(a, b)

// TIERKV_ASSIGN_OR_RETURN(auto file, File::open(path)): declares or assigns, or returns the error.
#define TIERKV_ASSIGN_OR_RETURN(lhs, expr) \
  TIERKV_ASSIGN_OR_RETURN_IMPL_(TIERKV_CONCAT_(tierkv_result_, __LINE__), lhs, expr)
#define TIERKV_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return tmp.status();                 \
  lhs = std::move(tmp.value())
