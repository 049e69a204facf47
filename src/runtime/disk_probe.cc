#include "runtime/disk_probe.h"

#include <deque>

#include "base/trace.h"

namespace tierkv {
namespace {

constexpr uint64_t kFileBytes = 256 << 20;

}  // namespace

Result<std::unique_ptr<DiskProbe>> DiskProbe::create(Engine& engine, const KvRequest& request) {
  const KvLayout& layout = engine.kv_layout();
  const uint64_t payload = layout.extent_pages * layout.largest_layer_page_bytes;
  std::unique_ptr<DiskProbe> probe(new DiskProbe);
  probe->extent_bytes_ = extent_buffer_bytes(payload);
  probe->n_extents_ = static_cast<int64_t>(kFileBytes / probe->extent_bytes_);
  const int depth = ExtentStream::n_buffers(layout);
  TIERKV_ASSIGN_OR_RETURN(
      probe->store_,
      FlashStore::create(engine.file_system(), request.flash_directory,
                         {0, {payload}, probe->n_extents_}, {request.flash_io, depth, nullptr}));
  std::vector<std::span<std::byte>> memory;
  for (int i = 0; i < depth; ++i) {
    TIERKV_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(engine.budget(), MemoryKind::kStaging,
                                                            probe->extent_bytes_));
    memory.push_back(buffer.span<std::byte>());
    probe->buffers_.push_back(std::move(buffer));
  }
  probe->store_->register_buffers(memory);
  TIERKV_RETURN_IF_ERROR(probe->fill());
  return probe;
}

Status DiskProbe::fill() {
  const auto buffer = buffers_.front().span<std::byte>();
  for (int64_t extent = 0; extent < n_extents_; ++extent) {
    TIERKV_RETURN_IF_ERROR(store_->wait(store_->start_write(0, extent, buffer)));
  }
  return {};
}

Result<double> DiskProbe::measure() {
  const uint64_t before = store_->stats().bytes_read;
  const int64_t start = Trace::now_ns();
  std::deque<FlashStore::Ticket> open;
  const auto depth = static_cast<int64_t>(buffers_.size());
  for (int64_t extent = 0; extent < n_extents_; ++extent) {
    if (static_cast<int64_t>(open.size()) == depth) {
      store_->discard(open.front());
      open.pop_front();
    }
    open.push_back(store_->start_read(0, extent, buffers_[extent % depth].span<std::byte>()));
  }
  for (const FlashStore::Ticket ticket : open) store_->discard(ticket);
  const double seconds = static_cast<double>(Trace::now_ns() - start) * 1e-9;
  const uint64_t bytes = store_->stats().bytes_read - before;
  if (bytes == 0) return io_error("the flash directory's disk can't be read");
  return static_cast<double>(bytes) / seconds;
}

}  // namespace tierkv
