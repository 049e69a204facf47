// A sound session with any bytes of its headers, records and lists changed, and their checksums
// made right again so that what they say is looked at: opening must neither crash, hang nor take
// memory out of proportion, and what is accepted must keep the promises of kv/session_format.h.
// Input that begins with 0 is the whole file instead.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "base/memory_file.h"
#include "kv/session_file.h"

namespace tierkv {
namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

using Bytes = std::vector<std::byte>;

std::span<std::byte> block_of(Bytes& file, uint64_t offset) {
  return std::span(file).subspan(offset, kFlashBlock);
}

SessionShape small_shape() {
  SessionShape shape;
  shape.flash = {7, {kFlashBlock, 0, kFlashBlock}, 0};
  shape.n_vocab = 100;
  shape.max_tokens = 200;
  shape.extent_pages = 1;
  shape.window_page_bytes = kFlashBlock;
  shape.max_window_pages = 4;
  shape.n_areas = 2;
  shape.flash.max_extents = shape.slots_needed();
  return shape;
}

SessionPoint small_point(int64_t n_tokens, uint64_t sequence) {
  SessionPoint point;
  point.sequence = sequence;
  point.n_tokens = n_tokens;
  point.tokens.resize(static_cast<size_t>(n_tokens), 5);
  const int64_t n_extents = n_tokens / 64, n_pages = (n_tokens + 63) / 64;
  point.slots.resize(static_cast<size_t>(n_extents));
  std::iota(point.slots.begin(), point.slots.end(), 0);
  point.crcs.resize(2 * point.slots.size());
  point.full_page_crcs.resize(static_cast<size_t>(n_pages - n_extents));
  point.window_page_crcs.resize(static_cast<size_t>(n_pages));
  return point;
}

const SessionGeometry& geometry() {
  static const SessionGeometry made = *SessionGeometry::create(small_shape());
  return made;
}

Bytes sound_session() {
  const SessionShape& shape = geometry().shape();
  Bytes file(geometry().record(shape.n_areas));
  encode_file_header(shape.flash, block_of(file, 0));
  encode_session_header(shape, block_of(file, geometry().header()));
  for (int area = 0; area < shape.n_areas; ++area) {
    const SessionPoint point = small_point(100 + 64 * area, static_cast<uint64_t>(area) + 1);
    const Bytes list = encode_list(point);
    std::copy(list.begin(), list.end(), file.begin() + geometry().list(area));
    encode_record(shape, point, area, list, block_of(file, geometry().record(area)));
  }
  return file;
}

// The blocks that input changes: all but extents and pages.
std::vector<uint64_t> meta_blocks() {
  std::vector<uint64_t> blocks = {0, geometry().header()};
  for (int area = 0; area < geometry().shape().n_areas; ++area) {
    blocks.push_back(geometry().record(area));
    blocks.push_back(geometry().list(area));
  }
  return blocks;
}

void put_crc(std::span<std::byte> block, size_t at) {
  std::memset(block.data() + at, 0, sizeof(uint32_t));
  const uint32_t crc = crc32c(block);
  std::memcpy(block.data() + at, &crc, sizeof crc);
}

// Where the fields of docs/formats.md lie.
constexpr size_t kFlashCrc = 32, kCrc = 12, kListCrc = 28, kListCounts = 64;

void make_checksums_right(Bytes& file) {
  put_crc(block_of(file, 0), kFlashCrc);
  put_crc(block_of(file, geometry().header()), kCrc);
  for (int area = 0; area < geometry().shape().n_areas; ++area) {
    const std::span<std::byte> record = block_of(file, geometry().record(area));
    uint32_t counts[5];
    std::memcpy(counts, record.data() + kListCounts, sizeof counts);
    const uint64_t numbers = std::accumulate(counts, counts + 5, uint64_t{0});
    const uint64_t bytes = (numbers * 4 + kFlashBlock - 1) / kFlashBlock * kFlashBlock;
    if (bytes <= geometry().list_bytes()) {
      const uint32_t crc = crc32c(std::span(file).subspan(geometry().list(area), bytes));
      std::memcpy(record.data() + kListCrc, &crc, sizeof crc);
    }
    put_crc(record, kCrc);
  }
}

// Each four bytes of input: block, offset (two bytes), value.
Bytes changed_session(std::span<const uint8_t> input) {
  static const Bytes sound = sound_session();
  static const std::vector<uint64_t> blocks = meta_blocks();
  Bytes file = sound;
  for (; input.size() >= 4; input = input.subspan(4)) {
    const size_t offset = (input[1] + 256u * input[2]) % kFlashBlock;
    file[blocks[input[0] % blocks.size()] + offset] = std::byte{input[3]};
  }
  make_checksums_right(file);
  return file;
}

void touch_pages(SessionFile& session, const SessionPoint& point) {
  const SessionShape& shape = session.shape();
  if (shape.full_page_bytes() > 1 << 16 || shape.window_page_bytes > 1 << 16) return;
  Bytes full(shape.full_page_bytes()), window(shape.window_page_bytes);
  for (size_t i = 0; i < point.full_page_crcs.size(); ++i) {
    (void)session.read_full_page(point, static_cast<int64_t>(i), full);
  }
  for (size_t i = 0; i < point.window_page_crcs.size(); ++i) {
    (void)session.read_window_page(point, static_cast<int64_t>(i), window);
  }
}

void touch(SessionFile& session) {
  uint64_t last = UINT64_MAX;
  for (const SessionPoint* point : session.points()) {
    require(check_point(session.shape(), *point).ok());
    require(point->sequence <= last);
    last = point->sequence;
    touch_pages(session, *point);
  }
  const Result<int64_t> slot = session.add_extent();
  require(!slot.ok() || *slot < session.shape().flash.max_extents);
  if (session.points().empty()) return;
  const SessionPoint newest = *session.points()[0];
  const size_t n_points = session.points().size();
  session.adopt(newest, static_cast<int64_t>(newest.slots.size()));
  session.drop(newest);
  require(session.points().size() == n_points - 1);
}

}  // namespace
}  // namespace tierkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tierkv;
  if (size == 0) return 0;
  const std::span<const uint8_t> input(data + 1, size - 1);
  Bytes file;
  if (data[0] == 0) {
    const std::span<const std::byte> bytes = std::as_bytes(input);
    file.assign(bytes.begin(), bytes.end());
  } else {
    file = changed_session(input);
  }
  auto session = SessionFile::parse(std::make_unique<MemoryFile>(std::move(file), "fuzz"));
  if (session.ok()) {
    if (input.size() < 4) require(data[0] == 0 || (*session)->points().size() == 2);
    touch(**session);
  } else {
    require(session.status().message().starts_with("fuzz"));
  }
  return 0;
}
