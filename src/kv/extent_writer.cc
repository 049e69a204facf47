#include "kv/extent_writer.h"

#include <algorithm>

namespace tierkv {

void ExtentWriter::add(int64_t extent) {
  pending_.push_back({extent});
  stream_.expect_writes(true);
}

bool ExtentWriter::is_pending(int64_t extent) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const Pending& p) { return p.extent == extent; });
}

void ExtentWriter::pump() {
  if (pending_.empty()) return;
  while (const auto written = stream_.next_written(false)) collect(*written);
  while (start_one()) continue;
  if (!stream_.overlaps()) (void)wait_for_all();
}

// The next layer of the first extent that has any left. False: none, or no buffer, or an error.
bool ExtentWriter::start_one(bool urgent) {
  const size_t n_layers = layout_.full_layers.size();
  const auto next = std::find_if(pending_.begin(), pending_.end(),
                                 [&](const Pending& p) { return p.n_started < n_layers; });
  if (next == pending_.end() || !failed_.ok()) return false;
  std::byte* const payload = stream_.begin_write(urgent);
  if (payload == nullptr) return false;
  const int layer = layout_.full_layers[next->n_started++];
  fill_(next->extent, layer, payload);
  stream_.start_write(layer, next->extent);
  return true;
}

void ExtentWriter::collect(const ExtentStream::Written& written) {
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const Pending& p) { return p.extent == written.extent; });
  Pending& p = *found;
  ++(written.status.ok() ? p.n_good : p.n_failed);
  if (failed_.ok()) failed_ = written.status;
  if (p.n_good == layout_.full_layers.size()) {
    const int64_t extent = p.extent;
    pending_.erase(found);
    done_(extent);
    if (pending_.empty()) stream_.expect_writes(false);
  } else if (p.n_failed > 0 && p.n_open() == 0) {
    p = {p.extent};  // all of its layers anew
  }
}

Status ExtentWriter::wait_for(int64_t extent) {
  failed_ = {};
  while (is_pending(extent)) {
    if (start_one(true)) continue;
    const auto written = stream_.next_written(true);
    if (!written) return failed_.ok() ? internal_error("no staging buffer to write from") : failed_;
    collect(*written);
  }
  return {};
}

Status ExtentWriter::wait_for_all() {
  while (!pending_.empty()) TIERKV_RETURN_IF_ERROR(wait_for(pending_.back().extent));
  return {};
}

}  // namespace tierkv
