#include "kv/extent_stream.h"

#include <algorithm>

namespace tierkv {
namespace {

constexpr uint64_t kRingBytes = 4 << 20;
constexpr uint64_t kLeastBuffers = 5, kMostBuffers = 12;

uint64_t slot_bytes(const KvLayout& layout) {
  return extent_buffer_bytes(layout.extent_pages * layout.largest_layer_page_bytes);
}

}  // namespace

int ExtentStream::n_buffers(const KvLayout& layout) {
  return static_cast<int>(std::clamp(kRingBytes / slot_bytes(layout), kLeastBuffers, kMostBuffers));
}

uint64_t ExtentStream::staging_bytes(const KvLayout& layout) {
  return static_cast<uint64_t>(n_buffers(layout)) * slot_bytes(layout);
}

Result<std::unique_ptr<ExtentStream>> ExtentStream::create(const KvLayout& layout,
                                                           MemoryBudget& budget,
                                                           std::unique_ptr<FlashStore> store,
                                                           FlashOverlap overlap) {
  std::unique_ptr<ExtentStream> stream(new ExtentStream(layout, std::move(store), overlap));
  std::vector<std::span<std::byte>> memory;
  for (int i = 0; i < n_buffers(layout); ++i) {
    TIERKV_ASSIGN_OR_RETURN(Buffer buffer,
                            Buffer::allocate(budget, MemoryKind::kStaging, slot_bytes(layout)));
    memory.push_back(buffer.span<std::byte>());
    stream->buffers_.push_back(std::move(buffer));
  }
  stream->slots_.resize(memory.size());
  stream->extents_.resize(layout.full_layers.size());
  stream->store_->register_buffers(memory);
  return stream;
}

ExtentStream::~ExtentStream() =
    default;  // the store, which goes first, waits for what is at the disk

std::span<std::byte> ExtentStream::buffer(const Slot& slot) {
  Buffer& buffer = buffers_[&slot - slots_.data()];
  return {buffer.data(), extent_buffer_bytes(layout_.extent_payload_bytes(slot.layer))};
}

size_t ExtentStream::count(Use use) const {
  return std::count_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.use == use; });
}

size_t ExtentStream::most_reads() const {
  return slots_.size() - (writes_expected_ ? kWriteBuffers : 0);
}

// Never all, so that a read always finds a buffer.
size_t ExtentStream::most_writes() const {
  return n_in_a_pass() == 0 ? slots_.size() / 2 : kWriteBuffers;
}

ExtentStream::Slot* ExtentStream::find_read(int layer, int64_t extent) {
  for (Slot& slot : slots_) {
    if (slot.use == Use::kRead && slot.layer == layer && slot.extent == extent) return &slot;
  }
  return nullptr;
}

ExtentStream::Slot* ExtentStream::take_free() {
  for (Slot& slot : slots_) {
    if (slot.use == Use::kFree) return &slot;
  }
  return nullptr;
}

// A buffer that has been read and whose content will not be asked for before the ring has gone
// round.
ExtentStream::Slot* ExtentStream::take_stale() { return take_later_than(slots_.size() - 1); }

// The buffer whose content will be asked for last.
ExtentStream::Slot* ExtentStream::take_last() {
  Slot* last = nullptr;
  for (Slot& slot : slots_) {
    if (slot.use == Use::kRead && (last == nullptr || distance(slot) > distance(*last))) {
      last = &slot;
    }
  }
  if (last == nullptr) return nullptr;
  store_->discard(last->ticket);
  last->use = Use::kFree;
  return last;
}

// A buffer that has been read and will be asked for after `distance` others.
ExtentStream::Slot* ExtentStream::take_later_than(size_t distance) {
  for (Slot& slot : slots_) {
    if (slot.use != Use::kRead || this->distance(slot) <= distance) continue;
    if (!store_->done(slot.ticket)) continue;
    store_->discard(slot.ticket);
    slot.use = Use::kFree;
    return &slot;
  }
  return nullptr;
}

size_t ExtentStream::n_in_a_pass() const {
  size_t n = 0;
  for (const auto& of_layer : extents_) n += of_layer.size();
  return n;
}

// There must be some in a pass.
ExtentStream::Position ExtentStream::after(Position position) const {
  if (++position.index < extents_[position.layer].size()) return position;
  do {
    position.layer = (position.layer + 1) % extents_.size();
  } while (extents_[position.layer].empty());
  return {position.layer, 0};
}

// How many will be asked for before it, up to the size of the ring.
size_t ExtentStream::distance(const Slot& slot) const {
  if (n_in_a_pass() == 0) return slots_.size();
  Position position = next_;
  size_t distance = 0;
  for (; distance < slots_.size(); ++distance, position = after(position)) {
    const int layer = layout_.full_layers[position.layer];
    if (layer == slot.layer && extents_[position.layer][position.index] == slot.extent) break;
  }
  return distance;
}

void ExtentStream::set_extents(std::vector<int64_t> extents) {
  set_extents(std::vector<std::vector<int64_t>>(extents_.size(), std::move(extents)));
}

void ExtentStream::set_extents(std::vector<std::vector<int64_t>> of_layers) {
  extents_ = std::move(of_layers);
  if (n_in_a_pass() == 0) return;
  if (next_.index >= extents_[next_.layer].size()) next_ = {};
  if (extents_[next_.layer].empty()) next_ = after(next_);
  read_ahead();
}

void ExtentStream::set_layer_extents(int layer, std::vector<int64_t> extents) {
  const size_t place = layout_.full_place(layer);
  extents_[place] = std::move(extents);
  next_ = {place, 0};
  if (n_in_a_pass() == 0) return;
  if (extents_[place].empty()) next_ = after(next_);
  read_ahead();
}

Result<const std::byte*> ExtentStream::next(int layer, size_t index) {
  const size_t place = layout_.full_place(layer);
  if (place == extents_.size() || index >= extents_[place].size()) {
    return internal_error("asked for a flash extent that is not there");
  }
  for (Slot& slot : slots_) {
    if (slot.use == Use::kHeld) slot.use = Use::kFree;
  }
  next_ = {place, index};
  const int64_t extent = extents_[place][index];
  Slot* slot = find_read(layer, extent);
  if (slot == nullptr) {
    slot = take_free();
    if (slot == nullptr) slot = take_last();
    if (slot == nullptr) return internal_error("the staging ring is full of writes");
    start_read(*slot, layer, extent, ReadNeed::kNow);
  }
  read_ahead();
  const Status status = store_->wait(slot->ticket);
  slot->use = Use::kFree;
  if (!status.ok()) {
    drop_reads();
    return status;
  }
  slot->use = Use::kHeld;
  next_ = after(next_);
  read_ahead();
  return buffer(*slot).data() + kFlashBlock;
}

void ExtentStream::start_read(Slot& slot, int layer, int64_t extent, ReadNeed need) {
  slot = {Use::kRead, layer, extent, 0};
  slot.ticket = store_->start_read(layer, extent, buffer(slot), need);
}

void ExtentStream::read_ahead() {
  const size_t all = n_in_a_pass();
  if (!overlaps() || all == 0) return;
  Position position = next_;
  for (size_t i = 0; i < std::min(all, most_reads()); ++i, position = after(position)) {
    const int layer = layout_.full_layers[position.layer];
    const int64_t extent = extents_[position.layer][position.index];
    if (find_read(layer, extent) != nullptr) continue;
    Slot* slot = take_stale();
    if (slot == nullptr && count(Use::kRead) + count(Use::kHeld) < most_reads()) slot = take_free();
    if (slot == nullptr) slot = take_later_than(i);
    if (slot == nullptr) return;
    start_read(*slot, layer, extent, ReadNeed::kLater);
  }
}

void ExtentStream::drop_reads() {
  for (Slot& slot : slots_) {
    if (slot.use != Use::kRead) continue;
    store_->discard(slot.ticket);
    slot.use = Use::kFree;
  }
}

std::byte* ExtentStream::begin_write(bool urgent) {
  if (writes_.size() >= most_writes()) return nullptr;
  filling_ = take_free();
  if (filling_ == nullptr) filling_ = take_stale();
  if (filling_ == nullptr && urgent && writes_.empty()) filling_ = take_last();
  return filling_ == nullptr ? nullptr : buffers_[filling_ - slots_.data()].data() + kFlashBlock;
}

void ExtentStream::start_write(int layer, int64_t extent) {
  *filling_ = {Use::kWrite, layer, extent, 0};
  filling_->ticket = store_->start_write(layer, extent, buffer(*filling_));
  writes_.push_back(filling_);
  filling_ = nullptr;
}

std::optional<ExtentStream::Written> ExtentStream::next_written(bool wait) {
  if (writes_.empty() || (!wait && !store_->done(writes_.front()->ticket))) return std::nullopt;
  Slot& slot = *writes_.front();
  writes_.pop_front();
  Written written = {slot.layer, slot.extent, store_->wait(slot.ticket)};
  slot.use = Use::kFree;
  return written;
}

}  // namespace tierkv
