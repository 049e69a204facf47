// The bytes of a saved session behind its flash store (docs/formats.md): a header, then areas that
// hold one complete point each. A point is a state to go on from: the tokens, which slots hold
// their whole extents, and the pages that are in no whole extent. Only offsets, encoding and
// checking: no I/O. Little endian; everything starts on a block of 4096 bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/flash_format.h"
#include "kv/flash_store.h"

namespace tierkv {

inline constexpr uint32_t kSessionVersion = 3;
inline constexpr int64_t kMaxSessionTokens = 1 << 24;
inline constexpr size_t kMaxModelName = 255;

// What a session file is made for. Whole extents lie in the flash store's regions, which have room
// for the extents of every point and of what is being read: an extent's number there is its slot.
struct SessionShape {
  FlashLayout flash;  // max_extents: slots of each layer
  std::string model;  // for people
  int64_t n_vocab = 0;
  int64_t max_tokens = 0;          // of a point
  int64_t extent_pages = 0;        // of kPageTokens tokens
  uint64_t window_page_bytes = 0;  // of all window-only layers; 0: there are none
  int64_t max_window_pages = 0;    // of a point
  int n_areas = 0;

  uint64_t full_page_bytes() const;  // of all full-attention layers
  int64_t n_full_layers() const;
  int64_t extent_tokens() const;
  int64_t max_extents() const;   // of a point, a layer
  int64_t n_key_dims() const;    // dimensions of K of a token
  int64_t n_query_sums() const;  // of a point that has them
  // Slots that suffice for every area's point and for what is in RAM.
  int64_t slots_needed() const { return (n_areas + 1) * max_extents() + 1; }
};

struct SessionPoint {
  uint64_t sequence = 0;          // the newest point has the largest
  int64_t saved_at = 0;           // seconds since 1970
  int64_t n_tokens = 0;           // whose K and V are saved
  int64_t n_answered = 0;         // tokens up to the end of the latest answer; 0: none was begun
  std::vector<int32_t> tokens;    // n_tokens, or one more: sampled, but not read yet
  std::vector<uint32_t> slots;    // of the whole extents, in order
  std::vector<uint32_t> crcs;     // of their payloads, [extent][full-attention layer]
  int64_t first_window_page = 0;  // window-only layers: pages from here to the last token's
  std::vector<uint32_t> full_page_crcs, window_page_crcs;  // of the pages in the point's area
  // Factors of the dimensions of keys (kv/key_balance.h). Nothing: not found yet.
  std::vector<float> key_balance;
  // What the bases of the low-rank codec follow from (kv/query_energy.h), and the tokens that they
  // were found from. Nothing and 0: there are none.
  std::vector<double> query_sums;
  int64_t n_basis_tokens = 0;
};

// Where things lie, from a shape that was checked once.
class SessionGeometry {
 public:
  // kInvalidArgument: sizes that contradict each other or are absurd.
  static Result<SessionGeometry> create(const SessionShape& shape);

  const SessionShape& shape() const { return shape_; }
  const FlashGeometry& flash() const { return flash_; }
  uint64_t header() const { return flash_.end(); }
  uint64_t record(int area) const { return header() + kFlashBlock + area * area_bytes_; }
  uint64_t list(int area) const { return record(area) + kFlashBlock; }
  uint64_t full_page(int area, int64_t index) const {
    return list(area) + list_bytes_ + index * shape_.full_page_bytes();
  }
  uint64_t window_page(int area, int64_t index) const {
    return full_page(area, shape_.extent_pages) + index * shape_.window_page_bytes;
  }
  uint64_t list_bytes() const { return list_bytes_; }  // of the largest list

 private:
  SessionGeometry(SessionShape shape, FlashGeometry flash)
      : shape_(std::move(shape)), flash_(std::move(flash)) {}

  SessionShape shape_;
  FlashGeometry flash_;
  uint64_t list_bytes_ = 0, area_bytes_ = 0;
};

// The header's block. The flash layout is not in it: it comes from the flash store's own.
void encode_session_header(const SessionShape& shape, std::span<std::byte> block);
// kCorrupt, or kUnsupported for another format version.
Result<SessionShape> decode_session_header(std::span<const std::byte> block,
                                           const FlashLayout& flash);

// A point as two parts: a record of one block, and the list it vouches for, whole blocks.
// decode_record gives the bytes of the list, all of it still to be checked by decode_list, and
// kNotFound when there is no whole record.
std::vector<std::byte> encode_list(const SessionPoint& point);
void encode_record(const SessionShape& shape, const SessionPoint& point, int area,
                   std::span<const std::byte> list, std::span<std::byte> block);
Result<uint64_t> decode_record(const SessionShape& shape, int area,
                               std::span<const std::byte> block);
Result<SessionPoint> decode_list(const SessionShape& shape, std::span<const std::byte> block,
                                 std::span<const std::byte> list);

// What a point of this shape must be, and kCorrupt with what is not.
Status check_point(const SessionShape& shape, const SessionPoint& point);

}  // namespace tierkv
