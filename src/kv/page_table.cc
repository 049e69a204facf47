#include "kv/page_table.h"

#include <algorithm>
#include <cstring>

#include "base/carve.h"

namespace tierkv {

PageTable::PageTable(const KvLayout& layout, MemoryBudget& budget, const Kernels& kernels,
                     ThreadPool& pool, FlashOptions flash)
    : layout_(layout),
      budget_(budget),
      kernels_(kernels),
      pool_(pool),
      flash_(std::move(flash)),
      key_balance_(layout),
      queries_(layout) {
  compressed_ = make_compressed_layout(layout_, {});
}

uint64_t PageTable::codec_scratch_bytes(const KvLayout& layout, int n_threads,
                                        const std::vector<CodecId>& codecs, int64_t max_tokens) {
  int64_t head_dim = 0;
  for (const int layer : layout.full_layers) {
    head_dim = std::max<int64_t>(head_dim, layout.shapes[layer].head_dim);
  }
  if (head_dim == 0) return 0;
  return buffer_footprint(align64(rotated_scratch_bytes(head_dim)) * n_threads) +
         LowRankCodec::memory_bytes(layout, low_rank_choices(layout, codecs), max_tokens,
                                    n_threads);
}

int64_t PageTable::count(PageTier tier) const {
  return std::count_if(pages_.begin(), pages_.end(), [&](const Page& p) { return p.tier == tier; });
}

uint64_t PageTable::ram_bytes() const {
  const uint64_t n_exact =
      std::count_if(pages_.begin(), pages_.end(), [](const Page& p) { return !p.exact.empty(); });
  const uint64_t n_compressed = static_cast<uint64_t>(count(PageTier::kCompressed) + n_copies());
  return n_exact * buffer_footprint(layout_.full_page_bytes) +
         n_compressed * buffer_footprint(compressed_.page_bytes) +
         (uses_flash() ? ExtentStream::staging_bytes(layout_) : 0);
}

uint16_t* PageTable::exact_block(int64_t page, int layer, int kv_head) {
  const int64_t head = exact_block_bytes(layout_.shapes[layer].head_dim) * kv_head;
  return reinterpret_cast<uint16_t*>(pages_[page].exact.data() + layout_.exact_offset[layer] +
                                     head);
}

const std::byte* PageTable::compressed_block(int64_t page, int layer, int kv_head) const {
  return pages_[page].compressed.data() + compressed_.layers[layer][kv_head].offset;
}

const uint16_t* PageTable::flash_block(const std::byte* payload, int64_t page, int layer,
                                       int kv_head) const {
  const int64_t in_extent = page % layout_.extent_pages;
  return reinterpret_cast<const uint16_t*>(payload + in_extent * layout_.layer_page_bytes(layer) +
                                           kv_head *
                                               exact_block_bytes(layout_.shapes[layer].head_dim));
}

Status PageTable::grow(int64_t n_tokens) {
  while (n_pages() * kPageTokens < n_tokens) {
    while (count(PageTier::kExact) >= max_exact_pages_ && oldest_movable() >= 0) {
      TIERKV_RETURN_IF_ERROR(move_one());
    }
    TIERKV_RETURN_IF_ERROR(add_page());
  }
  return {};
}

// A new exact page; when the budget refuses it, older pages move on until it fits.
Status PageTable::add_page() {
  for (;;) {
    Result<Buffer> buffer =
        Buffer::allocate_page(budget_, MemoryKind::kTier0, layout_.full_page_bytes);
    if (buffer.ok()) {
      Page page;
      page.exact = std::move(*buffer);
      pages_.push_back(std::move(page));
      return {};
    }
    if (oldest_movable() >= 0) {
      TIERKV_RETURN_IF_ERROR(move_one());
    } else if (!free_originals()) {
      return buffer.status();
    }
  }
}

Status PageTable::move_one() {
  const Status moved = make_room();
  return !moved.ok() && free_originals() ? make_room() : moved;
}

bool PageTable::is_being_written(int64_t extent) const {
  return extent < next_extent_ && writer_->is_pending(slot_of(extent));
}

// Exact, and with its original on flash, or on its way there, if flash is in use.
bool PageTable::movable(int64_t page) const {
  const Page& p = pages_[page];
  return p.tier == PageTier::kExact &&
         (stream_ == nullptr || p.on_flash || (flash_.session != nullptr && tier1_has_room()) ||
          is_being_written(page / layout_.extent_pages));
}

// Before a page leaves RAM: waits until flash has it, where flash is in use.
Status PageTable::make_safe(int64_t page) {
  if (stream_ == nullptr || pages_[page].on_flash) return {};
  return writer_->wait_for(slot_of(page / layout_.extent_pages));
}

// The oldest page that may leave: past the sinks, before the window, all its tokens final. -1:
// none.
int64_t PageTable::oldest_movable() const {
  const int64_t n_full = n_final_tokens_ / kPageTokens;
  const int64_t end = std::min(n_pages() + 1 - window_pages_, n_full);
  for (int64_t page = sink_pages_; page < end; ++page) {
    if (movable(page)) return page;
  }
  return -1;
}

Status PageTable::make_room() {
  const bool tier1 = tier1_has_room();
  if (!tier1 && stream_ == nullptr) TIERKV_RETURN_IF_ERROR(start_flash());
  const int64_t page = oldest_movable();
  if (page < 0) return {};  // flash has just come into use: pages leave once their extent is whole
  if (!tier1 || flash_.session == nullptr) TIERKV_RETURN_IF_ERROR(make_safe(page));
  if (tier1) return compress(page);
  leave_to_flash(page);
  update_extents();
  return {};
}

// Leaves the page to its original on flash.
void PageTable::drop_to_flash(int64_t page) {
  pages_[page].exact.reset();
  pages_[page].compressed.reset();
  pages_[page].tier = PageTier::kFlash;
}

Status PageTable::compress(int64_t page) {
  TIERKV_RETURN_IF_ERROR(encode(page));
  pages_[page].tier = PageTier::kCompressed;
  for (const int layer : layout_.full_layers) {
    if (compressed_.low_rank[layer].rank == 0) continue;
    encode_layer(page, layer, pages_[page].exact.data() + layout_.exact_offset[layer]);
  }
  const bool saves = flash_.session != nullptr && saving_failed_.ok();
  if (!saves || pages_[page].on_flash) pages_[page].exact.reset();
  return {};
}

// The page's rotated codes, beside what it holds exactly.
Status PageTable::encode(int64_t page) {
  TIERKV_ASSIGN_OR_RETURN(
      pages_[page].compressed,
      Buffer::allocate_page(budget_, MemoryKind::kTier1, compressed_.page_bytes));
  const int64_t n_layers = static_cast<int64_t>(layout_.full_layers.size());
  pool_.parallel_for(n_layers, [&](int64_t i, int thread) {
    const int layer = layout_.full_layers[i];
    if (compressed_.low_rank[layer].rank != 0) return;  // below: all threads on one layer
    const std::byte* exact = pages_[page].exact.data() + layout_.exact_offset[layer];
    for (int head = 0; head < layout_.shapes[layer].n_kv_heads; ++head) {
      encode_head(page, layer, head, exact, thread);
      exact += exact_block_bytes(layout_.shapes[layer].head_dim);
    }
  });
  return {};
}

// RAM is short: what a saved session keeps there beside the plan goes to its file or, if that can't
// be written, is given up, and with it saving. False: there is nothing of the kind.
bool PageTable::free_originals() {
  if (flash_.session == nullptr || !saving_failed_.ok()) return false;
  const uint64_t before = ram_bytes();
  saving_failed_ = writer_->wait_for_all();
  for (Page& page : pages_) {
    const bool given_up = page.tier == PageTier::kCompressed && !saving_failed_.ok();
    if (given_up) page.exact.reset();
  }
  return ram_bytes() < before;
}

void PageTable::encode_layer(int64_t page, int layer, const std::byte* exact_layer) {
  const KvLayerShape& shape = layout_.shapes[layer];
  const int64_t exact_bytes = exact_block_bytes(shape.head_dim);
  if (compressed_.low_rank[layer].rank != 0) {
    std::byte* block = pages_[page].compressed.data() + compressed_.layers[layer][0].offset;
    return low_rank_->encode(layer, page, exact_layer, block);
  }
  pool_.parallel_for(shape.n_kv_heads, [&](int64_t head, int thread) {
    encode_head(page, layer, static_cast<int>(head), exact_layer + head * exact_bytes, thread);
  });
}

void PageTable::encode_head(int64_t page, int layer, int kv_head, const std::byte* exact,
                            int thread) {
  const int64_t head_dim = layout_.shapes[layer].head_dim;
  const CompressedHead& head = compressed_.layers[layer][kv_head];
  std::byte* out = pages_[page].compressed.data() + head.offset;
  if (head.format == RotatedFormat{}) {
    std::memcpy(out, exact, head.block_bytes);
    return;
  }
  kernels_.rotated->encode(
      head.format, reinterpret_cast<const uint16_t*>(exact), kPageTokens, head_dim,
      key_balance(layer, kv_head), out,
      codec_scratch_.data() + thread * align64(rotated_scratch_bytes(head_dim)));
}

void PageTable::finish(int64_t n_tokens) {
  n_final_tokens_ = n_tokens;
  if (key_balance_.full()) fix_key_balance(false);
  if (stream_ != nullptr) write_extents(n_tokens);
}

void PageTable::shrink(int64_t n_tokens) {
  const int64_t keep = (n_tokens + kPageTokens - 1) / kPageTokens;
  while (n_pages() > keep) pages_.pop_back();
}

bool PageTable::rewind(int64_t n_tokens) {
  if (stream_ != nullptr || count(PageTier::kExact) != n_pages()) return false;
  shrink(n_tokens);
  n_final_tokens_ = n_tokens;
  if (n_tokens == 0) key_balance_.reset();
  return true;
}

Result<std::unique_ptr<FlashStore>> PageTable::make_store() const {
  const FlashStoreOptions options = {flash_.backend, ExtentStream::n_buffers(layout_),
                                     flash_.trace};
  if (flash_.session != nullptr) {
    return FlashStore::open(flash_.session->share(), flash_.session->shape().flash, options);
  }
  if (flash_.directory.empty()) {
    return resource_exhausted(
        "the KV cache fills the RAM budget and flash is not allowed; give more --ram or a --flash "
        "directory");
  }
  FlashLayout layout;
  layout.model_hash = flash_.model_hash;
  layout.payload_bytes = flash_payload_bytes(layout_);
  layout.max_extents = flash_.max_tokens / (layout_.extent_pages * kPageTokens) + 2;
  return FlashStore::create(*flash_.file_system, flash_.directory, layout, options);
}

Status PageTable::start_flash() {
  TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<FlashStore> store, make_store());
  TIERKV_ASSIGN_OR_RETURN(stream_,
                          ExtentStream::create(layout_, budget_, std::move(store), flash_.overlap));
  writer_ = std::make_unique<ExtentWriter>(
      layout_, *stream_,
      [this](int64_t slot, int layer, std::byte* payload) {
        fill_extent(extent_in(slot), layer, payload);
      },
      [this](int64_t slot) { extent_is_written(extent_in(slot)); });
  write_extents(n_final_tokens_);
  return {};
}

// Extents whose pages have all left RAM before flash came into use are left out.
void PageTable::write_extents(int64_t n_tokens) {
  const int64_t n_whole = n_tokens / (layout_.extent_pages * kPageTokens);
  while (flash_.session != nullptr && next_extent_ < n_whole && saving_failed_.ok()) {
    write_to_session();
  }
  for (; flash_.session == nullptr && next_extent_ < n_whole; ++next_extent_) {
    const Page* const first = &pages_[next_extent_ * layout_.extent_pages];
    const auto exact = [](const Page& page) { return page.tier == PageTier::kExact; };
    if (std::any_of(first, first + layout_.extent_pages, exact)) writer_->add(next_extent_);
  }
  writer_->pump();
}

// Pages that have left RAM before flash came into use are written as zeros and never read back.
void PageTable::fill_extent(int64_t extent, int layer, std::byte* payload) const {
  const uint64_t bytes = layout_.layer_page_bytes(layer);
  for (int64_t i = 0; i < layout_.extent_pages; ++i, payload += bytes) {
    const Page& page = pages_[extent * layout_.extent_pages + i];
    if (!page.exact.empty()) {
      std::memcpy(payload, page.exact.data() + layout_.exact_offset[layer], bytes);
    } else {
      std::memset(payload, 0, bytes);
    }
  }
}

void PageTable::extent_is_written(int64_t extent) {
  for (int64_t i = 0; i < layout_.extent_pages; ++i) {
    Page& page = pages_[extent * layout_.extent_pages + i];
    page.on_flash = !page.exact.empty();
    if (page.tier == PageTier::kCompressed) page.exact.reset();
  }
}

void PageTable::update_extents() {
  if (stream_ == nullptr) return;
  extents_.clear();
  for (int64_t page = 0; page < n_pages(); ++page) {
    const int64_t extent = page / layout_.extent_pages;
    if (pages_[page].tier == PageTier::kFlash && (extents_.empty() || extents_.back() != extent)) {
      extents_.push_back(extent);
    }
  }
  ask_for_extents();
}

void PageTable::ask_for_extents() {
  if (selective_ != nullptr) return ask_for_chosen();
  stream_->set_extents(slots_of(extents_));
}

std::vector<int64_t> PageTable::slots_of(const std::vector<int64_t>& extents) const {
  std::vector<int64_t> slots;
  for (const int64_t extent : extents) slots.push_back(slot_of(extent));
  return slots;
}

}  // namespace tierkv
