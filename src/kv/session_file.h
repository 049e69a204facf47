// A saved session on disk: the flash store's file, with complete points behind its extents. What a
// point refers to is never written over while the point can still be read: extents that are whole
// go to slots that no point uses, and a new point goes to an area that the newest one is not in.
// So whenever the process or the power ends, the newest point that was finished is there.
//
//   extents -> slots    pages, list -> area    sync    record -> area    sync
//
// One process at a time (FileSystem::open_exclusive). Not thread safe, but for share().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "kv/session_format.h"

namespace tierkv {

// A page that a point keeps in its area. Whole blocks.
using PageBytes = std::span<const std::byte>;

class SessionFile {
 public:
  // A new session at `path`, which must not be there; it appears once it can be opened.
  static Result<std::unique_ptr<SessionFile>> create(FileSystem& file_system,
                                                     const std::string& path,
                                                     const SessionShape& shape);
  // Locks the session that is there; see FileSystem::open_exclusive.
  static Result<std::unique_ptr<SessionFile>> open(FileSystem& file_system,
                                                   const std::string& path);
  // Takes the file as opened. Points that can't be read are left out; a session may have none.
  static Result<std::unique_ptr<SessionFile>> parse(std::unique_ptr<File> file);

  const SessionShape& shape() const { return geometry_.shape(); }
  const std::string& path() const { return file_->name(); }
  // Newest first. Pointers stay valid until the next write_point or drop.
  std::vector<const SessionPoint*> points() const;
  // Areas that hold something which is no complete point: an interrupted save, or damage.
  int n_unreadable() const;
  // The same file for a FlashStore.
  std::unique_ptr<File> share() const;

  // The extents of the state that is in RAM now, in order: first `n` of those of `point`.
  void adopt(const SessionPoint& point, int64_t n);
  int64_t n_extents() const { return static_cast<int64_t>(slots_.size()); }
  int64_t slot(int64_t extent) const { return slots_[static_cast<size_t>(extent)]; }
  uint32_t crc(int64_t extent, size_t full_layer) const {
    return crcs_[static_cast<size_t>(extent) * n_full_layers_ + full_layer];
  }
  int64_t extent_in(int64_t slot) const;  // whose slot this is
  // Gives the next extent a slot that no point uses, and returns the slot. Its checksums must be
  // set before a point is written.
  Result<int64_t> add_extent();
  void set_crc(int64_t extent, size_t full_layer, uint32_t crc) {
    crcs_[static_cast<size_t>(extent) * n_full_layers_ + full_layer] = crc;
  }

  // Saves a point: the caller gives its counts and tokens and the pages that are in no whole
  // extent, in order; the extents are those of now. After an error the points from before are still
  // there.
  Status write_point(SessionPoint point, std::span<const PageBytes> full_pages,
                     std::span<const PageBytes> window_pages);
  // Pages of a point; kCorrupt when the checksum does not match.
  Status read_full_page(const SessionPoint& point, int64_t index, std::span<std::byte> out);
  Status read_window_page(const SessionPoint& point, int64_t index, std::span<std::byte> out);
  // Leaves out a point whose pages turned out to be damaged.
  void drop(const SessionPoint& point);

 private:
  struct Area {
    std::optional<SessionPoint> point;
    std::vector<uint32_t> slots;  // that its bytes on disk may refer to, readable or not
    bool unreadable = false;
  };

  SessionFile(std::shared_ptr<File> file, SessionGeometry geometry);

  Status read_area(int area);
  int area_of(const SessionPoint& point) const;
  uint64_t next_sequence() const;
  Status check_still_there();
  Status write_pages(uint64_t offset, std::span<const PageBytes> pages,
                     std::vector<uint32_t>& crcs);
  Status write_record(const SessionPoint& point, int area, std::span<const std::byte> list);
  Status read_page(uint64_t offset, uint32_t crc, std::span<std::byte> out);
  std::vector<bool> used_slots() const;
  void discard_unused(const std::vector<uint32_t>& slots);

  const std::shared_ptr<File> file_;
  const SessionGeometry geometry_;
  const size_t n_full_layers_;
  std::vector<Area> areas_;
  std::vector<uint32_t> slots_, crcs_;  // of now
  uint64_t least_size_ = 0;             // that the file must have
};

// The area that the next point takes, when those in use hold `points` (null: free) and the next one
// has `tokens`. Never the newest's. Points that the conversation has left go first; then those that
// leave the smallest gaps, so that what stays is dense near the end.
int choose_area(std::span<const SessionPoint* const> points, std::span<const int32_t> tokens);

}  // namespace tierkv
