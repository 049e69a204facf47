#include "gguf/reader.h"

#include <algorithm>

namespace tierkv {
namespace {

constexpr uint64_t kBufferBytes = 64 << 10;
constexpr size_t kMaxQuotedBytes = 80;

}  // namespace

Status GgufReader::past_end() const {
  return corrupt(
      format("runs past the end of the file at offset %llu of %llu: the file is "
             "truncated or damaged, fetch it again",
             llu(position_), llu(file_bytes_)));
}

Status GgufReader::read(std::span<std::byte> out) {
  if (out.size() > remaining()) return past_end();
  while (!out.empty()) {
    const uint64_t used = position_ - buffer_start_;
    if (used == buffer_.size()) {
      buffer_start_ = position_;
      buffer_.resize(std::min(kBufferBytes, remaining()));
      TIERKV_RETURN_IF_ERROR(file_.read_at(position_, buffer_));
      continue;
    }
    const size_t n = std::min<uint64_t>(out.size(), buffer_.size() - used);
    std::copy_n(buffer_.data() + used, n, out.data());
    position_ += n;
    out = out.subspan(n);
  }
  return {};
}

Result<std::string> GgufReader::string(uint64_t max_bytes) {
  TIERKV_ASSIGN_OR_RETURN(const uint64_t length, number<uint64_t>());
  if (length > max_bytes) {
    return corrupt(format("a name of %llu bytes, more than %llu: the file is damaged", llu(length),
                          llu(max_bytes)));
  }
  if (length > remaining()) return past_end();
  TIERKV_RETURN_IF_ERROR(charge(length));
  std::string text(length, '\0');
  TIERKV_RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(text))));
  return text;
}

Status GgufReader::charge(uint64_t bytes) {
  if (bytes > kMaxMemory - charged_) {
    return resource_exhausted(
        format("the header would take more than %llu MiB of memory, which no real model needs",
               llu(kMaxMemory >> 20)));
  }
  charged_ += bytes;
  return {};
}

Status GgufReader::charge(uint64_t count, uint64_t bytes_each) {
  return charge(count > UINT64_MAX / bytes_each ? UINT64_MAX : count * bytes_each);
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kMaxQuotedBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : format("\\x%02x", byte);
  }
  return out + (text.size() > kMaxQuotedBytes ? "...'" : "'");
}

}  // namespace tierkv
