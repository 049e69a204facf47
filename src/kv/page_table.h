// The pages of the full-attention layers and the tier each lies in. All such layers move together:
// a page is exact (RAM, float16), compressed (RAM, Tier-1 codec) or on flash.
//
//   page   0 .. sinks-1 | sinks .. | ..     | last window_pages
//   tier   exact        | Tier-1   | Tier-2 | exact
//
// When flash is in use, every whole extent is written once its tokens are final, behind the work
// that goes on, so that flash holds the float16 original of every token and leaving RAM costs
// nothing; a page leaves RAM only when its extent is known to be written. What can't be written
// stays in RAM, and is an error only where that room is needed.
//
// A saved session is flash in use from the first token on, in a file that stays. It changes nothing
// in which pages are compressed and when: the original of a page that is compressed before its
// extent has been written waits in RAM. Pages come back from it in kv/page_restore.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/file.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kv/extent_stream.h"
#include "kv/extent_writer.h"
#include "kv/key_balance.h"
#include "kv/kv_layout.h"
#include "kv/low_rank_codec.h"
#include "kv/selective_read.h"
#include "kv/session_file.h"
#include "plan/plan.h"

namespace tierkv {

enum class PageTier : uint8_t { kExact, kCompressed, kFlash };

// Where Tier-2 may be. An empty directory forbids flash.
struct FlashOptions {
  FileSystem* file_system = nullptr;
  std::string directory;
  uint64_t model_hash = 0;
  int64_t max_tokens = 0;  // the file's regions are laid out for this many
  FlashBackend backend = FlashBackend::kAuto;
  FlashOverlap overlap = FlashOverlap::kOn;
  Trace* trace = nullptr;
  SessionFile* session = nullptr;  // a saved session's file, instead of one in `directory`
};

class PageTable {
 public:
  // Bytes that settling takes for encoding, once there is a Tier-1, and that the bases of low-rank
  // `codecs` (as low_rank_choices() takes them) take from then on.
  static uint64_t codec_scratch_bytes(const KvLayout& layout, int n_threads,
                                      const std::vector<CodecId>& codecs = {},
                                      int64_t max_tokens = 0);

  // All references must outlive the table.
  PageTable(const KvLayout& layout, MemoryBudget& budget, const Kernels& kernels, ThreadPool& pool,
            FlashOptions flash);

  // What codecs need before settle(): how keys were rotated, per layer, and the queries and keys of
  // each chunk, layer by layer: of all of them for low-rank codecs, of some for KeyBalance.
  void set_ropes(std::vector<KvRope> ropes) { ropes_ = std::move(ropes); }
  void count_queries(int layer, const float* q, int64_t n_tokens);
  void count_for_balance(int layer, const float* q, const float* k, int64_t n_tokens) {
    key_balance_.count(*kernels_.vector, layer, q, k, n_tokens);
  }
  // Fixes the factors of keys, if there are tokens enough to find them from or `whatever` there is.
  // finish() and settle() do, when many have been read and when a prompt is at its end.
  void fix_key_balance(bool whatever);
  // [head_dim] of a full-attention layer, as kernels/rotated.h takes it.
  const float* key_balance(int layer, int kv_head) const {
    return key_balance_.factors(layer, kv_head);
  }

  // At most this many exact pages in RAM (more while their extents are being filled); older ones
  // move on. settle() sets the plan's.
  void set_exact_limit(int64_t max_exact_pages) { max_exact_pages_ = max_exact_pages; }

  // Room for `n_tokens` in all: adds exact pages, moving older ones on as the plan says.
  Status grow(int64_t n_tokens);
  // Tokens up to n_tokens are final: whole extents go to flash if it is in use.
  void finish(int64_t n_tokens);
  // Goes on with what is being written: to be called now and then.
  void pump() {
    if (writer_ != nullptr) writer_->pump();
  }
  // Drops pages that grow() added beyond n_tokens.
  void shrink(int64_t n_tokens);
  // Forgets the tokens from n_tokens on. False, and nothing changes, once a page has left RAM or
  // been compressed: the tokens before might have stayed exact without those after them. Rewound to
  // the beginning, keys are balanced anew.
  bool rewind(int64_t n_tokens);

  // Of a saved session: opens its flash store, before the first token.
  Status open_session() { return start_flash(); }
  // Takes the tokens [0, n_tokens) of a point: those in whole extents stay on flash, the others
  // come into RAM. The table must be empty, and is after an error.
  Status restore(const SessionPoint& point, int64_t n_tokens);
  // Brings sinks and then the newest pages back into RAM, while at most `n_exact` are exact there.
  Status load_newest(int64_t n_exact);
  // Waits until all whole extents have been written; the pages that are in none: what a point keeps
  // beside those.
  Result<std::vector<PageBytes>> loose_pages();
  // What codes follow from beside the originals, into a point.
  void save_codec_state(SessionPoint& point) const;

  // Whether flash is in use: from then on the original of every page is kept, on flash or in RAM.
  bool uses_flash() const { return stream_ != nullptr; }

  // Moves every page to the tier that `plan` gives it, again as often as there is a new plan.
  // Compressed pages are encoded anew from their originals on flash when the codecs change; those
  // that have none (n_bound) must keep their codecs and their place.
  Status settle(const Plan& plan);
  // Compressed pages without an original: they left RAM before flash came into use.
  int64_t n_bound() const;

  int64_t n_pages() const { return static_cast<int64_t>(pages_.size()); }
  PageTier tier(int64_t page) const { return pages_[page].tier; }
  int64_t count(PageTier tier) const;
  uint16_t* exact_block(int64_t page, int layer, int kv_head);
  const std::byte* compressed_block(int64_t page, int layer, int kv_head) const;
  RotatedFormat format(int layer, int kv_head) const {
    return compressed_.layers[layer][kv_head].format;
  }
  uint64_t compressed_page_bytes() const { return compressed_.page_bytes; }
  // Null before a plan with low-rank layers.
  const LowRankCodec* low_rank() const { return low_rank_.get(); }

  // Extents of Tier-2 in ascending order, and the payload of the index-th for a layer. A flash
  // page's head block lies at flash_block(payload, ...).
  const std::vector<int64_t>& extents() const { return extents_; }
  Result<const std::byte*> read_extent(int layer, size_t index);
  const uint16_t* flash_block(const std::byte* payload, int64_t page, int layer, int kv_head) const;

  // Selective reading (kv/page_copies.cc): not null once a plan has copies. Until all are asked for
  // again, read_extent()'s indices are of the extents that were chosen for the layer.
  SelectiveRead* selective() { return selective_.get(); }
  bool has_copy(int64_t page) const {
    return pages_[page].tier == PageTier::kFlash && !pages_[page].compressed.empty();
  }
  int64_t n_copies() const;
  void choose_extents(int layer, std::vector<int64_t> extents);

  // What pages and staging take of the budget.
  uint64_t ram_bytes() const;

  FlashStats flash_stats() const;
  // kAuto: not in use.
  FlashBackend flash_backend() const { return stream_ ? stream_->backend() : FlashBackend::kAuto; }

 private:
  struct Page {
    PageTier tier = PageTier::kExact;
    bool on_flash = false;  // its float16 original is in a written extent
    Buffer exact;           // also the original of a compressed page that is not on flash
    Buffer compressed;      // of a flash page: its copy
  };

  struct Limits {
    int64_t max_exact_pages, sink_pages, window_pages;
  };
  Limits limits() const { return {max_exact_pages_, sink_pages_, window_pages_}; }

  Status add_page();
  Status make_room();
  Status move_one();
  bool movable(int64_t page) const;
  bool is_being_written(int64_t extent) const;
  bool tier1_has_room() const { return count(PageTier::kCompressed) < tier1_pages_; }
  int64_t oldest_movable() const;
  Status set_codecs(const Plan& plan);
  void go_without(const Limits& before);
  void drop_to_flash(int64_t page);
  Status encode(int64_t page);
  // page_copies.cc
  void leave_to_flash(int64_t page);
  void keep_copies(int64_t n_most);
  Status leave_with_copies(int64_t begin, int64_t end);
  void start_selective(const Plan& plan);
  void stop_selective();
  void drop_pages(int64_t begin, int64_t end);
  Status start_low_rank();
  Status visit_pages(int layer, int64_t n, const LowRankCodec::PageVisitor& visit);
  Status compress(int64_t page);
  Status compress_from_flash(int64_t begin, int64_t end);
  Status encode_from_flash(const std::vector<int64_t>& todo, PageTier tier);
  Status restore_from_flash(int64_t begin, int64_t end);
  template <typename Allocate, typename Fill>
  Status fill_from_flash(const std::vector<int64_t>& todo, PageTier tier, Allocate allocate,
                         Fill fill);
  std::vector<int64_t> on_flash(int64_t begin, int64_t end) const;
  template <typename Fill>
  Status read_pages(const std::vector<int64_t>& todo, Fill fill);
  void encode_layer(int64_t page, int layer, const std::byte* exact_layer);
  void encode_head(int64_t page, int layer, int kv_head, const std::byte* exact, int thread);
  void revert_to_originals();
  bool free_originals();
  Status start_flash();
  Result<std::unique_ptr<FlashStore>> make_store() const;
  Status make_safe(int64_t page);
  void write_extents(int64_t n_tokens);
  void write_to_session();
  Status restore_loose(const SessionPoint& point, int64_t n_tokens);
  // Where an extent lies in the store: elsewhere than its number says in a saved session only.
  int64_t slot_of(int64_t extent) const {
    return flash_.session != nullptr ? flash_.session->slot(extent) : extent;
  }
  int64_t extent_in(int64_t slot) const {
    return flash_.session != nullptr ? flash_.session->extent_in(slot) : slot;
  }
  void fill_extent(int64_t extent, int layer, std::byte* payload) const;
  void extent_is_written(int64_t extent);
  void update_extents();
  void ask_for_extents();
  void ask_for_chosen();
  std::vector<int64_t> slots_of(const std::vector<int64_t>& extents) const;

  const KvLayout& layout_;
  MemoryBudget& budget_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  const FlashOptions flash_;

  std::vector<Page> pages_;
  std::vector<CodecId> codecs_;  // of the plan that Tier-1 is for
  CompressedLayout compressed_;
  std::unique_ptr<ExtentStream> stream_;
  std::unique_ptr<ExtentWriter> writer_;  // of stream_, there when it is
  std::vector<int64_t> extents_;
  int64_t next_extent_ = 0;  // first that the writer has not been given
  int64_t n_final_tokens_ = 0;
  Status saving_failed_;  // of a saved session: for good, since RAM was needed

  int64_t max_exact_pages_ = INT64_MAX;
  int64_t sink_pages_ = 1;
  int64_t window_pages_ = 1;
  int64_t tier1_pages_ = 0;
  int64_t copy_pages_ = 0;
  std::unique_ptr<SelectiveRead> selective_;
  int64_t n_judged_ = 0, n_skipped_ = 0;      // under earlier plans
  std::vector<std::vector<int64_t>> chosen_;  // with it: the extents of each layer, last chosen
  Buffer codec_scratch_;
  std::vector<KvRope> ropes_;
  KeyBalance key_balance_;
  QueryEnergy queries_;
  int64_t n_basis_tokens_ = 0;  // that low_rank_ was found from, or is to be; 0: all there are
  std::unique_ptr<LowRankCodec> low_rank_;
};

}  // namespace tierkv
