// Reads Tier-2 extents ahead of their use, in a ring of staging buffers: while one extent is
// attended to, the next ones are on their way from flash. The same buffers serve writes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "kv/flash_store.h"
#include "kv/kv_layout.h"

namespace tierkv {

class ExtentStream {
 public:
  // Buffers in the ring: one in use, two on their way.
  static constexpr int kBuffers = 3;
  static uint64_t staging_bytes(const KvLayout& layout);

  // `layout` and `budget` must outlive the stream.
  static Result<std::unique_ptr<ExtentStream>> create(const KvLayout& layout, MemoryBudget& budget,
                                                      std::unique_ptr<FlashStore> store);
  ~ExtentStream();

  // The extents to read in each pass over the layers, ascending.
  void set_extents(std::vector<int64_t> extents);

  // The payload of extent number `index` of set_extents, of `layer`: layers and indices are asked
  // for in order, and reading ahead follows that order. Valid until the next call.
  Result<const std::byte*> next(int layer, size_t index);

  // Writes one extent of one layer; fill(payload) puts the payload in place. Write errors surface
  // here or in finish_writes().
  template <typename Fill>
  Status write(int layer, int64_t extent, Fill&& fill) {
    TIERKV_ASSIGN_OR_RETURN(std::byte * payload, begin_write());
    fill(payload);
    return start_write(layer, extent);
  }
  Status finish_writes();

  FlashStats stats() const { return store_->stats(); }

 private:
  struct Slot {
    int layer;
    size_t index;
    int buffer;
    FlashStore::Ticket ticket;
  };

  ExtentStream(const KvLayout& layout, std::unique_ptr<FlashStore> store)
      : layout_(layout), store_(std::move(store)) {}

  std::span<std::byte> buffer(int index, int layer);
  Status restart(int layer, size_t index);
  void read_ahead();
  void drain();
  Result<std::byte*> begin_write();
  Status start_write(int layer, int64_t extent);

  const KvLayout& layout_;
  std::unique_ptr<FlashStore> store_;
  std::vector<Buffer> buffers_;
  std::vector<int64_t> extents_;
  std::deque<Slot> in_flight_;  // reads, in the order they will be asked for
  std::deque<Slot> writes_;
  std::deque<int> free_;
  int held_ = -1;           // buffer given out by next()
  int writing_ = -1;        // buffer between begin_write and start_write
  size_t ahead_layer_ = 0;  // the next read to start: position in layout_.full_layers
  size_t ahead_index_ = 0;
};

}  // namespace tierkv
