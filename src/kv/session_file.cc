#include "kv/session_file.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tierkv {
namespace {

// Memory that O_DIRECT takes, for lists and records.
class Blocks {
 public:
  explicit Blocks(size_t bytes) : memory_(bytes + kFlashBlock), bytes_(bytes) {}
  explicit Blocks(std::span<const std::byte> content) : Blocks(content.size()) {
    std::copy(content.begin(), content.end(), all().begin());
  }
  std::span<std::byte> all() {
    const size_t past = reinterpret_cast<uintptr_t>(memory_.data()) % kFlashBlock;
    return {memory_.data() + (past == 0 ? 0 : kFlashBlock - past), bytes_};
  }

 private:
  std::vector<std::byte> memory_;
  size_t bytes_;
};

// A File that several owners use.
class SharedFile : public File {
 public:
  explicit SharedFile(std::shared_ptr<File> file) : file_(std::move(file)) {}

  Status read_at(uint64_t offset, std::span<std::byte> out) override {
    return file_->read_at(offset, out);
  }
  Status write_at(uint64_t offset, std::span<const std::byte> data) override {
    return file_->write_at(offset, data);
  }
  Result<uint64_t> size() override { return file_->size(); }
  void drop_cache(uint64_t offset, uint64_t length) override { file_->drop_cache(offset, length); }
  Status sync() override { return file_->sync(); }
  const std::string& name() const override { return file_->name(); }
  int descriptor() const override { return file_->descriptor(); }
  IoHook* hook() override { return file_->hook(); }

 private:
  const std::shared_ptr<File> file_;
};

bool is_zero(std::span<const std::byte> block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Whether `tokens` goes on from what the point holds.
bool leads_to(const SessionPoint& point, std::span<const int32_t> tokens) {
  const size_t n = static_cast<size_t>(point.n_tokens);
  return n <= tokens.size() &&
         std::equal(tokens.begin(), tokens.begin() + point.n_tokens, point.tokens.begin());
}

// How much is lost without a point: the gap between its neighbours, seen from the end.
double worth(const SessionPoint& point, std::span<const SessionPoint* const> points,
             int64_t n_tokens) {
  int64_t before = 0, after = n_tokens;
  for (const SessionPoint* other : points) {
    if (other == nullptr || other == &point) continue;
    if (other->n_tokens <= point.n_tokens) before = std::max(before, other->n_tokens);
    if (other->n_tokens >= point.n_tokens) after = std::min(after, other->n_tokens);
  }
  return static_cast<double>(after - before) / static_cast<double>(n_tokens - point.n_tokens + 1);
}

}  // namespace

int choose_area(std::span<const SessionPoint* const> points, std::span<const int32_t> tokens) {
  uint64_t newest = 0;
  for (const SessionPoint* point : points) {
    if (point != nullptr) newest = std::max(newest, point->sequence);
  }
  const auto cost = [&](const SessionPoint* point) {
    if (point == nullptr) return -2.0;
    if (point->sequence == newest) return 1e300;
    if (!leads_to(*point, tokens)) return -1.0;
    return worth(*point, points, static_cast<int64_t>(tokens.size()));
  };
  const auto cheapest = std::min_element(
      points.begin(), points.end(),
      [&](const SessionPoint* a, const SessionPoint* b) { return cost(a) < cost(b); });
  return static_cast<int>(cheapest - points.begin());
}

SessionFile::SessionFile(std::shared_ptr<File> file, SessionGeometry geometry)
    : file_(std::move(file)),
      geometry_(std::move(geometry)),
      n_full_layers_(static_cast<size_t>(geometry_.shape().n_full_layers())),
      areas_(static_cast<size_t>(geometry_.shape().n_areas)) {}

Result<std::unique_ptr<SessionFile>> SessionFile::create(FileSystem& file_system,
                                                         const std::string& path,
                                                         const SessionShape& shape) {
  TIERKV_ASSIGN_OR_RETURN(const SessionGeometry geometry, SessionGeometry::create(shape));
  TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<File> file, file_system.create_exclusive(path));
  Blocks block(kFlashBlock);
  encode_file_header(shape.flash, block.all());
  TIERKV_RETURN_IF_ERROR(file->write_at(0, block.all()));
  encode_session_header(shape, block.all());
  TIERKV_RETURN_IF_ERROR(file->write_at(geometry.header(), block.all()));
  TIERKV_RETURN_IF_ERROR(file->sync());
  TIERKV_RETURN_IF_ERROR(file->publish());
  return parse(std::move(file));
}

Result<std::unique_ptr<SessionFile>> SessionFile::open(FileSystem& file_system,
                                                       const std::string& path) {
  TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<File> file, file_system.open_exclusive(path));
  return parse(std::move(file));
}

Result<std::unique_ptr<SessionFile>> SessionFile::parse(std::unique_ptr<File> file) {
  const std::string name = file->name();
  const auto refused = [&](const Status& status) { return status.with_context(name); };
  Blocks block(kFlashBlock);
  TIERKV_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  if (size < 2 * kFlashBlock) return corrupt(name + " is no saved session, or a truncated one");
  TIERKV_RETURN_IF_ERROR(file->read_at(0, block.all()));
  Result<FlashLayout> layout = decode_file_header(block.all());
  if (!layout.ok()) return refused(layout.status());
  TIERKV_ASSIGN_OR_RETURN(const FlashGeometry flash, FlashGeometry::create(*layout));
  if (flash.end() + kFlashBlock > size) {
    return refused(corrupt("the saved session is damaged: its end is missing"));
  }
  TIERKV_RETURN_IF_ERROR(file->read_at(flash.end(), block.all()));
  const Result<SessionShape> shape = decode_session_header(block.all(), *layout);
  if (!shape.ok()) return refused(shape.status());
  TIERKV_ASSIGN_OR_RETURN(SessionGeometry geometry, SessionGeometry::create(*shape));
  std::unique_ptr<SessionFile> session(
      new SessionFile(std::shared_ptr<File>(std::move(file)), std::move(geometry)));
  session->least_size_ = size;
  for (int area = 0; area < shape->n_areas; ++area) {
    TIERKV_RETURN_IF_ERROR(session->read_area(area));
  }
  return session;
}

// What is no complete point is left out; only a disk that does not answer is an error.
Status SessionFile::read_area(int area) {
  if (geometry_.list(area) > least_size_) return {};  // nothing has been written so far out
  Blocks block(kFlashBlock);
  TIERKV_RETURN_IF_ERROR(file_->read_at(geometry_.record(area), block.all()));
  if (is_zero(block.all())) return {};
  Area& out = areas_[static_cast<size_t>(area)];
  out.unreadable = true;
  const Result<uint64_t> list_bytes = decode_record(shape(), area, block.all());
  if (!list_bytes.ok() || geometry_.list(area) + *list_bytes > least_size_) return {};
  Blocks list(*list_bytes);
  TIERKV_RETURN_IF_ERROR(file_->read_at(geometry_.list(area), list.all()));
  Result<SessionPoint> point = decode_list(shape(), block.all(), list.all());
  if (!point.ok()) return {};
  out.slots = point->slots;
  out.point = std::move(*point);
  out.unreadable = false;
  return {};
}

std::vector<const SessionPoint*> SessionFile::points() const {
  std::vector<const SessionPoint*> points;
  for (const Area& area : areas_) {
    if (area.point) points.push_back(&*area.point);
  }
  std::sort(points.begin(), points.end(),
            [](const SessionPoint* a, const SessionPoint* b) { return a->sequence > b->sequence; });
  return points;
}

int SessionFile::n_unreadable() const {
  return static_cast<int>(
      std::count_if(areas_.begin(), areas_.end(), [](const Area& a) { return a.unreadable; }));
}

std::unique_ptr<File> SessionFile::share() const { return std::make_unique<SharedFile>(file_); }

void SessionFile::adopt(const SessionPoint& point, int64_t n) {
  slots_.assign(point.slots.begin(), point.slots.begin() + n);
  crcs_.assign(point.crcs.begin(), point.crcs.begin() + n * static_cast<int64_t>(n_full_layers_));
}

std::vector<bool> SessionFile::used_slots() const {
  std::vector<bool> used(static_cast<size_t>(shape().flash.max_extents));
  for (const uint32_t slot : slots_) used[slot] = true;
  for (const Area& area : areas_) {
    for (const uint32_t slot : area.slots) used[slot] = true;
  }
  return used;
}

int64_t SessionFile::extent_in(int64_t slot) const {
  return std::find(slots_.begin(), slots_.end(), slot) - slots_.begin();
}

Result<int64_t> SessionFile::add_extent() {
  const std::vector<bool> used = used_slots();
  const auto free = std::find(used.begin(), used.end(), false);
  if (free == used.end()) {
    return resource_exhausted(file_->name() + " has no room for more tokens; make a new session");
  }
  slots_.push_back(static_cast<uint32_t>(free - used.begin()));
  crcs_.resize(slots_.size() * n_full_layers_);
  return slots_.back();
}

uint64_t SessionFile::next_sequence() const {
  uint64_t last = 0;
  for (const Area& area : areas_) last = std::max(last, area.point ? area.point->sequence : 0);
  return last + 1;
}

int SessionFile::area_of(const SessionPoint& point) const {
  for (size_t area = 0; area < areas_.size(); ++area) {
    if (areas_[area].point && areas_[area].point->sequence == point.sequence) {
      return static_cast<int>(area);
    }
  }
  return -1;
}

void SessionFile::drop(const SessionPoint& point) {
  Area& area = areas_[static_cast<size_t>(area_of(point))];
  area.point.reset();
  area.unreadable = true;
}

// Saving into a file that nobody will find, or whose beginning is gone, would be a lie.
Status SessionFile::check_still_there() {
  if (!file_->still_named()) {
    return io_error(file_->name() + " was removed or replaced while it was in use");
  }
  TIERKV_ASSIGN_OR_RETURN(const uint64_t size, file_->size());
  if (size < least_size_) return corrupt(file_->name() + " was truncated while it was in use");
  return {};
}

Status SessionFile::write_pages(uint64_t offset, std::span<const PageBytes> pages,
                                std::vector<uint32_t>& crcs) {
  for (const PageBytes page : pages) {
    TIERKV_RETURN_IF_ERROR(file_->write_at(offset, page));
    crcs.push_back(crc32c(page));
    offset += page.size();
  }
  return {};
}

// The record comes last, and only once all that it vouches for is on the disk.
Status SessionFile::write_record(const SessionPoint& point, int area,
                                 std::span<const std::byte> list) {
  Blocks block(kFlashBlock);
  encode_record(shape(), point, area, list, block.all());
  TIERKV_RETURN_IF_ERROR(file_->write_at(geometry_.list(area), Blocks(list).all()));
  TIERKV_RETURN_IF_ERROR(file_->sync());
  TIERKV_RETURN_IF_ERROR(file_->write_at(geometry_.record(area), block.all()));
  return file_->sync();
}

Status SessionFile::write_point(SessionPoint point, std::span<const PageBytes> full_pages,
                                std::span<const PageBytes> window_pages) {
  TIERKV_RETURN_IF_ERROR(check_still_there());
  if (point.n_tokens > shape().max_tokens) {
    return resource_exhausted(format("%s has room for %lld tokens; make a new session",
                                     path().c_str(), static_cast<long long>(shape().max_tokens)));
  }
  std::vector<const SessionPoint*> held;
  for (const Area& area : areas_) held.push_back(area.point ? &*area.point : nullptr);
  const int chosen = choose_area(held, point.tokens);
  Area& area = areas_[static_cast<size_t>(chosen)];
  point.sequence = next_sequence();
  point.slots = slots_;
  point.crcs = crcs_;
  point.full_page_crcs.assign(full_pages.size(), 0);
  point.window_page_crcs.assign(window_pages.size(), 0);
  TIERKV_RETURN_IF_ERROR(check_point(shape(), point));
  point.full_page_crcs.clear();
  point.window_page_crcs.clear();

  // From here on the area's old point can't be read, and its slots stay taken until the new one is
  // known to be on the disk.
  area.point.reset();
  area.unreadable = true;
  TIERKV_RETURN_IF_ERROR(
      write_pages(geometry_.full_page(chosen, 0), full_pages, point.full_page_crcs));
  TIERKV_RETURN_IF_ERROR(
      write_pages(geometry_.window_page(chosen, 0), window_pages, point.window_page_crcs));
  TIERKV_RETURN_IF_ERROR(write_record(point, chosen, encode_list(point)));
  const std::vector<uint32_t> before = std::exchange(area.slots, point.slots);
  area.point = std::move(point);
  area.unreadable = false;
  discard_unused(before);
  TIERKV_ASSIGN_OR_RETURN(least_size_, file_->size());
  return {};
}

void SessionFile::discard_unused(const std::vector<uint32_t>& slots) {
  const std::vector<bool> used = used_slots();
  const FlashGeometry& flash = geometry_.flash();
  for (const uint32_t slot : slots) {
    if (used[slot]) continue;
    for (int layer = 0; layer < static_cast<int>(shape().flash.payload_bytes.size()); ++layer) {
      if (shape().flash.payload_bytes[static_cast<size_t>(layer)] == 0) continue;
      file_->discard(flash.offset(layer, slot), flash.stride(layer));
    }
  }
}

Status SessionFile::read_page(uint64_t offset, uint32_t crc, std::span<std::byte> out) {
  TIERKV_RETURN_IF_ERROR(file_->read_at(offset, out));
  if (crc32c(out) == crc) return {};
  return corrupt(file_->name() + ": the saved session is damaged: a page's checksum is wrong");
}

Status SessionFile::read_full_page(const SessionPoint& point, int64_t index,
                                   std::span<std::byte> out) {
  return read_page(geometry_.full_page(area_of(point), index),
                   point.full_page_crcs[static_cast<size_t>(index)], out);
}

Status SessionFile::read_window_page(const SessionPoint& point, int64_t index,
                                     std::span<std::byte> out) {
  return read_page(geometry_.window_page(area_of(point), index),
                   point.window_page_crcs[static_cast<size_t>(index)], out);
}

}  // namespace tierkv
