// Tier-2's extents on their way between flash and attention: a ring of staging buffers. While one
// extent is attended to, those that will be asked for next are being read, across layers and steps;
// the same buffers carry writes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "kv/flash_store.h"
#include "kv/kv_layout.h"

namespace tierkv {

// Off, for comparison: every read starts when it is asked for, every write is waited for at once.
enum class FlashOverlap : uint8_t { kOn, kOff };

class ExtentStream {
 public:
  // Buffers of the ring: what a layer's other work leaves time to read, within a few MiB
  // (docs/decisions.md, "flash I/O").
  static int n_buffers(const KvLayout& layout);
  static uint64_t staging_bytes(const KvLayout& layout);

  // `layout` and `budget` must outlive the stream.
  static Result<std::unique_ptr<ExtentStream>> create(const KvLayout& layout, MemoryBudget& budget,
                                                      std::unique_ptr<FlashStore> store,
                                                      FlashOverlap overlap = FlashOverlap::kOn);
  ~ExtentStream();

  // The extents to read in each pass over the layers, ascending. What has been read ahead and is
  // still in the list stays.
  void set_extents(std::vector<int64_t> extents);
  // The same, of each full-attention layer its own: some may have none.
  void set_extents(std::vector<std::vector<int64_t>> of_layers);
  // Those of one layer alone, of which the first will be asked for next; for later passes it is a
  // guess. What the ring holds for later goes, where these need its buffers.
  void set_layer_extents(int layer, std::vector<int64_t> extents);

  // The payload of extent number `index` of set_extents, of `layer`. Valid until the next call.
  // Reading ahead follows the order of layers and indices from here. After an error nothing is on
  // its way: asking again reads again.
  Result<const std::byte*> next(int layer, size_t index);

  // A write, of which any number may be on its way: the payload's place, or null while no buffer
  // can be had without waiting; then, the payload filled in, start_write(). `urgent`: somebody
  // waits for it, so that with no other write on its way what was read ahead gives way.
  std::byte* begin_write(bool urgent = false);
  void start_write(int layer, int64_t extent);
  struct Written {
    int layer;
    int64_t extent;
    Status status;
  };
  // The outcome of the oldest write. None: nothing is being written or, unless `wait`, not done
  // yet.
  std::optional<Written> next_written(bool wait);
  // While there is more to write, reading ahead leaves buffers free for it.
  void expect_writes(bool more) { writes_expected_ = more; }

  bool overlaps() const { return overlap_ == FlashOverlap::kOn; }
  FlashBackend backend() const { return store_->backend(); }
  FlashStats stats() const { return store_->stats(); }

 private:
  static constexpr size_t kWriteBuffers = 2;

  enum class Use : uint8_t { kFree, kRead, kHeld, kWrite };
  struct Slot {
    Use use = Use::kFree;
    int layer = 0;
    int64_t extent = 0;
    FlashStore::Ticket ticket = 0;
  };
  struct Position {  // in the order of asking
    size_t layer = 0, index = 0;
  };

  ExtentStream(const KvLayout& layout, std::unique_ptr<FlashStore> store, FlashOverlap overlap)
      : layout_(layout), overlap_(overlap), store_(std::move(store)) {}

  std::span<std::byte> buffer(const Slot& slot);
  size_t count(Use use) const;
  size_t most_reads() const;
  size_t most_writes() const;
  Slot* find_read(int layer, int64_t extent);
  Slot* take_free();
  Slot* take_stale();
  Slot* take_last();
  Slot* take_later_than(size_t distance);
  size_t n_in_a_pass() const;
  Position after(Position position) const;
  size_t distance(const Slot& slot) const;
  void start_read(Slot& slot, int layer, int64_t extent, ReadNeed need);
  void read_ahead();
  void drop_reads();

  const KvLayout& layout_;
  const FlashOverlap overlap_;
  std::vector<Buffer> buffers_;  // one a slot; must outlive the store
  std::unique_ptr<FlashStore> store_;
  std::vector<Slot> slots_;
  std::vector<std::vector<int64_t>> extents_;  // of each full-attention layer
  std::deque<Slot*> writes_;                   // oldest first
  Slot* filling_ = nullptr;                    // between begin_write and start_write
  Position next_;                              // what will be asked for
  bool writes_expected_ = false;
};

}  // namespace tierkv
