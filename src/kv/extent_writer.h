// Writes extents to flash behind the work that goes on: all layers of one extent after those of
// another, as staging buffers come free. An extent counts as written once each of its layers is
// known to be good; what fails stays pending, and is tried again when somebody waits for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "kv/extent_stream.h"

namespace tierkv {

class ExtentWriter {
 public:
  // Puts the payload of one layer of an extent in place.
  using Fill = std::function<void(int64_t extent, int layer, std::byte* payload)>;
  // Told of each extent that is on flash.
  using Done = std::function<void(int64_t extent)>;

  // References must outlive the writer.
  ExtentWriter(const KvLayout& layout, ExtentStream& stream, Fill fill, Done done)
      : layout_(layout), stream_(stream), fill_(std::move(fill)), done_(std::move(done)) {}

  // After those that are pending. What fill() reads must stay until done() has been told.
  void add(int64_t extent);
  bool is_pending(int64_t extent) const;
  bool idle() const { return pending_.empty(); }

  // Takes up what has been written and starts what can be, without waiting. Nothing after an error,
  // which wait_for() will meet.
  void pump();
  // Until the extent, and those before it, are on flash; or why they can't be.
  Status wait_for(int64_t extent);
  Status wait_for_all();

 private:
  struct Pending {
    int64_t extent;
    size_t n_started = 0, n_good = 0, n_failed = 0;  // layers
    size_t n_open() const { return n_started - n_good - n_failed; }
  };

  void collect(const ExtentStream::Written& written);
  bool start_one(bool urgent = false);

  const KvLayout& layout_;
  ExtentStream& stream_;
  const Fill fill_;
  const Done done_;
  std::deque<Pending> pending_;
  Status failed_;
};

}  // namespace tierkv
