#include "runtime/session_verify.h"

#include <algorithm>
#include <array>

#include "runtime/session_store.h"

namespace tierkv {
namespace {

constexpr size_t kAtOnce = 3;  // extents

// Reads extents, a few at once, and compares their checksums with those that a point has.
class ExtentReader {
 public:
  static Result<ExtentReader> create(const SessionFile& session, MemoryBudget& budget) {
    ExtentReader reader(session.shape().flash);
    TIERKV_ASSIGN_OR_RETURN(reader.store_,
                            FlashStore::open(session.share(), session.shape().flash));
    const auto& payloads = session.shape().flash.payload_bytes;
    const uint64_t largest = *std::max_element(payloads.begin(), payloads.end());
    for (Buffer& buffer : reader.buffers_) {
      TIERKV_ASSIGN_OR_RETURN(
          buffer, Buffer::allocate(budget, MemoryKind::kStaging, extent_buffer_bytes(largest)));
    }
    return reader;
  }

  Status read(int layer, int64_t slot, uint32_t crc) {
    if (reads_.size() >= kAtOnce) TIERKV_RETURN_IF_ERROR(finish(reads_.size() - kAtOnce));
    reads_.push_back({layer, slot, crc, 0});
    reads_.back().ticket = store_->start_read(layer, slot, buffer(reads_.size() - 1));
    return {};
  }
  Status finish_all() {
    Status first;
    for (size_t i = reads_.size() - std::min(reads_.size(), kAtOnce); i < reads_.size(); ++i) {
      const Status status = finish(i);
      if (first.ok()) first = status;
    }
    return first;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Read {
    int layer;
    int64_t slot;
    uint32_t crc;
    FlashStore::Ticket ticket;
  };

  explicit ExtentReader(const FlashLayout& layout) : layout_(layout) {}

  std::span<std::byte> buffer(size_t i) {
    const uint64_t payload = layout_.payload_bytes[static_cast<size_t>(reads_[i].layer)];
    return {buffers_[i % kAtOnce].data(), extent_buffer_bytes(payload)};
  }
  Status finish(size_t i) {
    TIERKV_RETURN_IF_ERROR(store_->wait(reads_[i].ticket));
    bytes_ += buffer(i).size();
    if (extent_crc(buffer(i)) == reads_[i].crc) return {};
    return corrupt(format("layer %d: an extent of an earlier state lies in slot %lld",
                          reads_[i].layer, static_cast<long long>(reads_[i].slot)));
  }

  FlashLayout layout_;
  std::array<Buffer, kAtOnce> buffers_;
  std::unique_ptr<FlashStore> store_;  // goes first: it may still be reading
  std::vector<Read> reads_;
  uint64_t bytes_ = 0;
};

Status verify_extents(const SessionFile& session, const SessionPoint& point, SessionCheck& check) {
  if (point.slots.empty()) return {};
  MemoryBudget budget;
  TIERKV_ASSIGN_OR_RETURN(ExtentReader reader, ExtentReader::create(session, budget));
  const auto& payloads = session.shape().flash.payload_bytes;
  const size_t n_full = static_cast<size_t>(session.shape().n_full_layers());
  size_t full_layer = 0;
  for (size_t layer = 0; layer < payloads.size(); ++layer) {
    if (payloads[layer] == 0) continue;
    for (size_t extent = 0; extent < point.slots.size(); ++extent) {
      TIERKV_RETURN_IF_ERROR(reader.read(static_cast<int>(layer), point.slots[extent],
                                         point.crcs[extent * n_full + full_layer]));
    }
    ++full_layer;
  }
  const Status status = reader.finish_all();
  check.bytes += reader.bytes();
  return status;
}

Status verify_pages(SessionFile& session, const SessionPoint& point, SessionCheck& check) {
  const SessionShape& shape = session.shape();
  MemoryBudget budget;
  const auto each = [&](size_t n, uint64_t bytes, auto&& read) -> Status {
    if (n == 0) return {};
    TIERKV_ASSIGN_OR_RETURN(Buffer page, Buffer::allocate(budget, MemoryKind::kScratch, bytes));
    for (size_t i = 0; i < n; ++i) {
      TIERKV_RETURN_IF_ERROR(read(static_cast<int64_t>(i), std::span(page.data(), bytes)));
      check.bytes += bytes;
    }
    return {};
  };
  TIERKV_RETURN_IF_ERROR(
      each(point.full_page_crcs.size(), shape.full_page_bytes(),
           [&](int64_t i, auto out) { return session.read_full_page(point, i, out); }));
  return each(point.window_page_crcs.size(), shape.window_page_bytes,
              [&](int64_t i, auto out) { return session.read_window_page(point, i, out); });
}

}  // namespace

Result<SessionCheck> verify_session(SessionFile& session, const Engine* engine) {
  if (engine != nullptr) TIERKV_RETURN_IF_ERROR(check_model(session, *engine));
  SessionCheck check;
  const auto points = session.points();
  if (points.empty()) {
    if (session.n_unreadable() == 0) return check;
    return corrupt(session.path() + " holds no complete point that can be read; remove it");
  }
  check.n_tokens = static_cast<int64_t>(points[0]->tokens.size());
  check.n_extents = static_cast<int64_t>(points[0]->slots.size());
  TIERKV_RETURN_IF_ERROR(verify_extents(session, *points[0], check).with_context(session.path()));
  TIERKV_RETURN_IF_ERROR(verify_pages(session, *points[0], check));
  return check;
}

}  // namespace tierkv
