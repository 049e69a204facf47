#include "kv/extent_stream.h"

#include <algorithm>

namespace tierkv {

uint64_t ExtentStream::staging_bytes(const KvLayout& layout) {
  return kBuffers * extent_buffer_bytes(layout.extent_pages * layout.largest_layer_page_bytes);
}

Result<std::unique_ptr<ExtentStream>> ExtentStream::create(const KvLayout& layout,
                                                           MemoryBudget& budget,
                                                           std::unique_ptr<FlashStore> store) {
  std::unique_ptr<ExtentStream> stream(new ExtentStream(layout, std::move(store)));
  for (int i = 0; i < kBuffers; ++i) {
    TIERKV_ASSIGN_OR_RETURN(Buffer buffer,
                            Buffer::allocate(budget, MemoryKind::kStaging,
                                             extent_buffer_bytes(layout.extent_pages *
                                                                 layout.largest_layer_page_bytes)));
    stream->buffers_.push_back(std::move(buffer));
    stream->free_.push_back(i);
  }
  return stream;
}

ExtentStream::~ExtentStream() {
  drain();
  (void)finish_writes();
}

void ExtentStream::set_extents(std::vector<int64_t> extents) {
  const bool grows = extents.size() >= extents_.size() &&
                     std::equal(extents_.begin(), extents_.end(), extents.begin());
  if (!grows) drain();  // what is on its way may not be what will be asked for
  extents_ = std::move(extents);
}

std::span<std::byte> ExtentStream::buffer(int index, int layer) {
  return {buffers_[index].data(), extent_buffer_bytes(layout_.extent_payload_bytes(layer))};
}

Result<const std::byte*> ExtentStream::next(int layer, size_t index) {
  if (held_ >= 0) free_.push_back(held_), held_ = -1;
  const bool expected =
      !in_flight_.empty() && in_flight_.front().layer == layer && in_flight_.front().index == index;
  if (!expected) TIERKV_RETURN_IF_ERROR(restart(layer, index));
  const Slot slot = in_flight_.front();
  in_flight_.pop_front();
  const Status status = store_->wait(slot.ticket);
  if (!status.ok()) {
    free_.push_back(slot.buffer);
    return status;
  }
  held_ = slot.buffer;
  read_ahead();
  return buffers_[slot.buffer].data() + kFlashBlock;
}

Status ExtentStream::restart(int layer, size_t index) {
  drain();
  TIERKV_RETURN_IF_ERROR(finish_writes());
  const auto& layers = layout_.full_layers;
  ahead_layer_ = std::find(layers.begin(), layers.end(), layer) - layers.begin();
  ahead_index_ = index;
  if (ahead_layer_ >= layers.size() || index >= extents_.size()) {
    return internal_error("asked for a flash extent that is not there");
  }
  read_ahead();
  return {};
}

void ExtentStream::read_ahead() {
  while (!free_.empty() && !extents_.empty()) {
    if (ahead_index_ >= extents_.size()) {
      ahead_index_ = 0;
      ahead_layer_ = (ahead_layer_ + 1) % layout_.full_layers.size();
    }
    const int layer = layout_.full_layers[ahead_layer_];
    const int free = free_.front();
    free_.pop_front();
    const FlashStore::Ticket ticket =
        store_->start_read(layer, extents_[ahead_index_], buffer(free, layer));
    in_flight_.push_back({layer, ahead_index_, free, ticket});
    ++ahead_index_;
  }
}

// Reads that nobody will ask for: their outcome does not matter.
void ExtentStream::drain() {
  for (const Slot& slot : in_flight_) {
    (void)store_->wait(slot.ticket);
    free_.push_back(slot.buffer);
  }
  in_flight_.clear();
  if (held_ >= 0) free_.push_back(held_), held_ = -1;
}

Result<std::byte*> ExtentStream::begin_write() {
  drain();
  if (free_.empty()) {
    const Slot oldest = writes_.front();
    writes_.pop_front();
    free_.push_back(oldest.buffer);
    TIERKV_RETURN_IF_ERROR(store_->wait(oldest.ticket));
  }
  writing_ = free_.front();
  free_.pop_front();
  return buffers_[writing_].data() + kFlashBlock;
}

Status ExtentStream::start_write(int layer, int64_t extent) {
  const FlashStore::Ticket ticket = store_->start_write(layer, extent, buffer(writing_, layer));
  writes_.push_back({layer, 0, writing_, ticket});
  writing_ = -1;
  return {};
}

Status ExtentStream::finish_writes() {
  Status first;
  for (const Slot& slot : writes_) {
    const Status status = store_->wait(slot.ticket);
    if (first.ok()) first = status;
    free_.push_back(slot.buffer);
  }
  writes_.clear();
  return first;
}

}  // namespace tierkv
