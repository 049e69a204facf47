// How fast a flash directory's disk gives extents back: sequential reads at the size and queue
// depth that decoding over flash has, through the same backend, with nothing else to do. The roof
// that `tierkv bench` holds decoding over flash against.
#pragma once

#include <memory>
#include <vector>

#include "base/buffer.h"
#include "kv/flash_store.h"
#include "runtime/engine.h"
#include "runtime/kv_request.h"

namespace tierkv {

class DiskProbe {
 public:
  // Writes a scratch file of some hundred MiB into the request's flash directory.
  static Result<std::unique_ptr<DiskProbe>> create(Engine& engine, const KvRequest& request);

  // Bytes a second. Reads the file once, which takes a fraction of a second.
  Result<double> measure();

 private:
  DiskProbe() = default;
  Status fill();

  std::vector<Buffer> buffers_;  // must outlive the store
  std::unique_ptr<FlashStore> store_;
  uint64_t extent_bytes_ = 0;
  int64_t n_extents_ = 0;
};

}  // namespace tierkv
