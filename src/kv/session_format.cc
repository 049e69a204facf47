#include "kv/session_format.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "kernels/attention.h"
#include "kv/key_balance.h"
#include "kv/query_energy.h"

namespace tierkv {
namespace {

constexpr uint64_t kHeaderMagic = 0x53534553'564b5254;  // "TRKVSESS"
constexpr uint64_t kRecordMagic = 0x544e4f50'564b5254;  // "TRKVPONT"
constexpr int kMinAreas = 2, kMaxAreas = 8;
constexpr int64_t kMaxPages = 1 << 20;
constexpr uint64_t kMaxPageBytes = uint64_t{1} << 32;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;  // of the block with this field 0
  uint64_t model_hash;
  int64_t n_vocab, max_tokens, extent_pages;
  uint64_t window_page_bytes;
  int64_t max_window_pages;
  uint32_t n_areas;
  uint32_t page_tokens;
  char model[kMaxModelName + 1];  // ends in 0
};
static_assert(sizeof(Header) == 72 + kMaxModelName + 1);

struct Record {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;  // of the block with this field 0
  uint64_t model_hash;
  uint32_t area;
  uint32_t list_crc;
  uint64_t sequence;
  int64_t saved_at, n_tokens, n_answered;
  // The list: numbers of 4 bytes, in this order, and then of 8.
  uint32_t n_listed, n_extents, n_crcs, n_full_pages, n_window_pages;
  uint32_t n_key_balance, n_query_sums;
  uint32_t unused;
  int64_t first_window_page;
  int64_t n_basis_tokens;
};
static_assert(sizeof(Record) == 112);

// Both kinds of block have the checksum in the same place.
constexpr size_t kCrcOffset = 12;
static_assert(offsetof(Header, crc) == kCrcOffset && offsetof(Record, crc) == kCrcOffset);

uint32_t block_crc(std::span<const std::byte> block) {
  constexpr std::byte kZero[sizeof(uint32_t)] = {};
  const uint32_t crc = crc32c(kZero, crc32c(block.first(kCrcOffset)));
  return crc32c(block.subspan(kCrcOffset + sizeof(uint32_t)), crc);
}

template <typename T>
void put_block(T content, std::span<std::byte> block) {
  std::fill(block.begin(), block.end(), std::byte{0});
  std::memcpy(block.data(), &content, sizeof content);
  content.crc = block_crc(block);
  std::memcpy(block.data(), &content, sizeof content);
}

template <typename T>
T get_block(std::span<const std::byte> block) {
  T content;
  std::memcpy(&content, block.data(), sizeof content);
  return content;
}

uint64_t whole_blocks(uint64_t bytes) {
  return (bytes + kFlashBlock - 1) / kFlashBlock * kFlashBlock;
}

int64_t pages_of(int64_t n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

Status damaged(const std::string& why) { return corrupt("the saved session is damaged: " + why); }

bool between(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }

bool sane(const SessionShape& s) {
  if (!between(s.n_vocab, 1, INT32_MAX) || !between(s.max_tokens, 1, kMaxSessionTokens) ||
      !between(s.extent_pages, 1, kMaxPages) || !between(s.max_window_pages, 0, kMaxPages) ||
      !between(s.n_areas, kMinAreas, kMaxAreas) || s.model.size() > kMaxModelName ||
      s.flash.max_extents > s.slots_needed()) {
    return false;
  }
  if (s.window_page_bytes > kMaxPageBytes || s.window_page_bytes % kFlashBlock != 0) return false;
  return std::all_of(s.flash.payload_bytes.begin(), s.flash.payload_bytes.end(),
                     [&](uint64_t payload) {
                       const uint64_t pages = static_cast<uint64_t>(s.extent_pages);
                       return payload <= kMaxPageBytes && payload % (pages * kFlashBlock) == 0;
                     });
}

void append(std::vector<std::byte>& list, const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  list.insert(list.end(), from, from + bytes);
}

template <typename T>
void append(std::vector<std::byte>& list, const std::vector<T>& numbers) {
  append(list, numbers.data(), numbers.size() * sizeof(T));
}

template <typename T>
std::vector<T> take(std::span<const std::byte>& list, uint32_t n) {
  std::vector<T> numbers(n);
  if (n > 0) std::memcpy(numbers.data(), list.data(), n * sizeof(T));
  list = list.subspan(n * sizeof(T));
  return numbers;
}

uint64_t list_bytes(const Record& r) {
  const uint64_t numbers = uint64_t{r.n_listed} + r.n_extents + r.n_crcs + r.n_full_pages +
                           r.n_window_pages + r.n_key_balance;
  return numbers * sizeof(uint32_t) + r.n_query_sums * sizeof(double);
}

bool balance_is_sound(const SessionShape& shape, const std::vector<float>& factors) {
  const bool sized = factors.empty() || static_cast<int64_t>(factors.size()) == shape.n_key_dims();
  return sized && key_balance_plausible(factors);
}

bool sums_are_sound(const SessionShape& shape, const std::vector<double>& sums) {
  const bool sized = sums.empty() || static_cast<int64_t>(sums.size()) == shape.n_query_sums();
  return sized && query_sums_plausible(sums);
}

}  // namespace

uint64_t SessionShape::full_page_bytes() const {
  const uint64_t extent =
      std::accumulate(flash.payload_bytes.begin(), flash.payload_bytes.end(), uint64_t{0});
  return extent / static_cast<uint64_t>(extent_pages);
}

int64_t SessionShape::n_full_layers() const {
  return std::count_if(flash.payload_bytes.begin(), flash.payload_bytes.end(),
                       [](uint64_t bytes) { return bytes != 0; });
}

int64_t SessionShape::extent_tokens() const { return extent_pages * kPageTokens; }

int64_t SessionShape::max_extents() const {
  return n_full_layers() == 0 ? 0 : max_tokens / extent_tokens();
}

int64_t SessionShape::n_key_dims() const {
  constexpr uint64_t kBytesADimension = 2 * kPageTokens * sizeof(uint16_t);
  return static_cast<int64_t>(full_page_bytes() / kBytesADimension);
}

// One for each dimension, and one for each layer.
int64_t SessionShape::n_query_sums() const { return n_key_dims() + n_full_layers(); }

Result<SessionGeometry> SessionGeometry::create(const SessionShape& shape) {
  TIERKV_ASSIGN_OR_RETURN(FlashGeometry flash, FlashGeometry::create(shape.flash));
  if (!sane(shape)) return invalid_argument("the shapes of the session make no sense");
  SessionGeometry geometry(shape, std::move(flash));
  const uint64_t numbers = static_cast<uint64_t>(
      shape.max_tokens + 1 + shape.max_extents() + shape.max_extents() * shape.n_full_layers() +
      shape.extent_pages + shape.max_window_pages + shape.n_key_dims());
  const uint64_t sums = static_cast<uint64_t>(shape.n_query_sums());
  geometry.list_bytes_ = whole_blocks(numbers * sizeof(uint32_t) + sums * sizeof(double));
  const double bytes =
      static_cast<double>(shape.extent_pages) * static_cast<double>(shape.full_page_bytes()) +
      static_cast<double>(shape.max_window_pages) * static_cast<double>(shape.window_page_bytes);
  if (bytes * shape.n_areas + static_cast<double>(geometry.flash_.end()) > kMaxFileBytes / 2.0) {
    return invalid_argument("the session's file would be absurdly large");
  }
  geometry.area_bytes_ = 0;
  geometry.area_bytes_ = geometry.window_page(0, shape.max_window_pages) - geometry.record(0);
  return geometry;
}

void encode_session_header(const SessionShape& shape, std::span<std::byte> block) {
  Header header{.magic = kHeaderMagic,
                .version = kSessionVersion,
                .crc = 0,
                .model_hash = shape.flash.model_hash,
                .n_vocab = shape.n_vocab,
                .max_tokens = shape.max_tokens,
                .extent_pages = shape.extent_pages,
                .window_page_bytes = shape.window_page_bytes,
                .max_window_pages = shape.max_window_pages,
                .n_areas = static_cast<uint32_t>(shape.n_areas),
                .page_tokens = kPageTokens,
                .model = {}};
  std::copy_n(shape.model.begin(), std::min(shape.model.size(), kMaxModelName), header.model);
  put_block(header, block);
}

Result<SessionShape> decode_session_header(std::span<const std::byte> block,
                                           const FlashLayout& flash) {
  const Header header = get_block<Header>(block);
  if (header.magic != kHeaderMagic) return damaged("there is no session header in it");
  if (header.version != kSessionVersion) {
    return unsupported(
        format("the saved session has format version %u, this build reads %u; make a new one",
               header.version, kSessionVersion));
  }
  if (header.crc != block_crc(block)) return damaged("its header's checksum is wrong");
  if (header.model_hash != flash.model_hash || header.page_tokens != kPageTokens ||
      header.model[kMaxModelName] != 0) {
    return damaged("its two headers contradict each other");
  }
  SessionShape shape;
  shape.flash = flash;
  shape.model = header.model;
  shape.n_vocab = header.n_vocab;
  shape.max_tokens = header.max_tokens;
  shape.extent_pages = header.extent_pages;
  shape.window_page_bytes = header.window_page_bytes;
  shape.max_window_pages = header.max_window_pages;
  shape.n_areas = static_cast<int>(std::min<uint32_t>(header.n_areas, INT32_MAX));
  if (!SessionGeometry::create(shape).ok()) return damaged("the shapes in its header are absurd");
  return shape;
}

std::vector<std::byte> encode_list(const SessionPoint& point) {
  std::vector<std::byte> list;
  append(list, point.tokens);
  append(list, point.slots);
  append(list, point.crcs);
  append(list, point.full_page_crcs);
  append(list, point.window_page_crcs);
  append(list, point.key_balance);
  append(list, point.query_sums);
  list.resize(whole_blocks(list.size()));
  return list;
}

void encode_record(const SessionShape& shape, const SessionPoint& point, int area,
                   std::span<const std::byte> list, std::span<std::byte> block) {
  put_block(Record{.magic = kRecordMagic,
                   .version = kSessionVersion,
                   .crc = 0,
                   .model_hash = shape.flash.model_hash,
                   .area = static_cast<uint32_t>(area),
                   .list_crc = crc32c(list),
                   .sequence = point.sequence,
                   .saved_at = point.saved_at,
                   .n_tokens = point.n_tokens,
                   .n_answered = point.n_answered,
                   .n_listed = static_cast<uint32_t>(point.tokens.size()),
                   .n_extents = static_cast<uint32_t>(point.slots.size()),
                   .n_crcs = static_cast<uint32_t>(point.crcs.size()),
                   .n_full_pages = static_cast<uint32_t>(point.full_page_crcs.size()),
                   .n_window_pages = static_cast<uint32_t>(point.window_page_crcs.size()),
                   .n_key_balance = static_cast<uint32_t>(point.key_balance.size()),
                   .n_query_sums = static_cast<uint32_t>(point.query_sums.size()),
                   .unused = 0,
                   .first_window_page = point.first_window_page,
                   .n_basis_tokens = point.n_basis_tokens},
            block);
}

Result<uint64_t> decode_record(const SessionShape& shape, int area,
                               std::span<const std::byte> block) {
  const Record record = get_block<Record>(block);
  if (record.magic != kRecordMagic || record.crc != block_crc(block)) {
    return not_found("there is no complete point in this area");
  }
  if (record.version != kSessionVersion || record.model_hash != shape.flash.model_hash ||
      record.area != static_cast<uint32_t>(area)) {
    return damaged("a point of another session lies in it");
  }
  TIERKV_ASSIGN_OR_RETURN(const SessionGeometry geometry, SessionGeometry::create(shape));
  const uint64_t bytes = whole_blocks(list_bytes(record));
  if (bytes > geometry.list_bytes()) return damaged("a point's list is absurdly long");
  return bytes;
}

Result<SessionPoint> decode_list(const SessionShape& shape, std::span<const std::byte> block,
                                 std::span<const std::byte> list) {
  const Record record = get_block<Record>(block);
  if (list.size() < list_bytes(record)) {
    return internal_error("a point's list was read in part");
  }
  if (crc32c(list) != record.list_crc) return damaged("the checksum of a point's list is wrong");
  SessionPoint point;
  point.sequence = record.sequence;
  point.saved_at = record.saved_at;
  point.n_tokens = record.n_tokens;
  point.n_answered = record.n_answered;
  point.first_window_page = record.first_window_page;
  point.tokens = take<int32_t>(list, record.n_listed);
  point.slots = take<uint32_t>(list, record.n_extents);
  point.crcs = take<uint32_t>(list, record.n_crcs);
  point.full_page_crcs = take<uint32_t>(list, record.n_full_pages);
  point.window_page_crcs = take<uint32_t>(list, record.n_window_pages);
  point.key_balance = take<float>(list, record.n_key_balance);
  point.query_sums = take<double>(list, record.n_query_sums);
  point.n_basis_tokens = record.n_basis_tokens;
  TIERKV_RETURN_IF_ERROR(check_point(shape, point));
  return point;
}

Status check_point(const SessionShape& shape, const SessionPoint& point) {
  const int64_t n_listed = static_cast<int64_t>(point.tokens.size());
  if (!between(point.n_tokens, 1, shape.max_tokens) ||
      !between(n_listed, point.n_tokens, point.n_tokens + 1) ||
      !between(point.n_answered, 0, n_listed)) {
    return damaged("a point's token counts contradict each other");
  }
  if (!std::all_of(point.tokens.begin(), point.tokens.end(),
                   [&](int32_t id) { return between(id, 0, shape.n_vocab - 1); })) {
    return damaged("a point has a token that the model does not know");
  }
  const bool full = shape.n_full_layers() > 0, window = shape.window_page_bytes > 0;
  const int64_t n_extents = full ? point.n_tokens / shape.extent_tokens() : 0;
  const int64_t n_pages = pages_of(point.n_tokens);
  const int64_t n_full = full ? n_pages - n_extents * shape.extent_pages : 0;
  const int64_t n_window = static_cast<int64_t>(point.window_page_crcs.size());
  if (static_cast<int64_t>(point.slots.size()) != n_extents ||
      static_cast<int64_t>(point.crcs.size()) != n_extents * shape.n_full_layers() ||
      static_cast<int64_t>(point.full_page_crcs.size()) != n_full) {
    return damaged("a point's extents and pages do not match its tokens");
  }
  if (n_window > shape.max_window_pages || !between(point.first_window_page, 0, n_pages) ||
      point.first_window_page + n_window != (window ? n_pages : 0)) {
    return damaged("a point's window does not match its tokens");
  }
  if (!sums_are_sound(shape, point.query_sums) ||
      !between(point.n_basis_tokens, 0, point.n_tokens) ||
      point.n_basis_tokens % kPageTokens != 0) {
    return damaged("a point's sums over queries make no sense");
  }
  if (!balance_is_sound(shape, point.key_balance)) {
    return damaged("a point's factors of keys make no sense");
  }
  const std::set<uint32_t> distinct(point.slots.begin(), point.slots.end());
  if (distinct.size() != point.slots.size() ||
      (!distinct.empty() && *distinct.rbegin() >= shape.flash.max_extents)) {
    return damaged("a point's extents lie in impossible places");
  }
  return {};
}

}  // namespace tierkv
