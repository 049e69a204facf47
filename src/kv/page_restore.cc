// What a saved session keeps of the pages, and the way back.
#include <algorithm>

#include "kv/flash_format.h"
#include "kv/page_table.h"

namespace tierkv {

// In a saved session each extent must also be the one that the session's point means.
Result<const std::byte*> PageTable::read_extent(int layer, size_t index) {
  TIERKV_ASSIGN_OR_RETURN(const std::byte* payload, stream_->next(layer, index));
  if (flash_.session == nullptr) return payload;
  const size_t full_layer = layout_.full_place(layer);
  const int64_t extent = (selective_ != nullptr ? chosen_[layer] : extents_)[index];
  if (extent_crc({payload - kFlashBlock, kFlashBlock}) == flash_.session->crc(extent, full_layer)) {
    return payload;
  }
  return corrupt(
      tierkv::format("layer %d, extent %lld: the saved session %s is damaged: an extent of an "
                     "earlier state lies in its place",
                     layer, static_cast<long long>(extent), flash_.session->path().c_str()));
}

// The next whole extent gets its place and its checksums, and is written behind the work.
void PageTable::write_to_session() {
  const Result<int64_t> slot = flash_.session->add_extent();
  if (!slot.ok()) {
    saving_failed_ = slot.status();
    return;
  }
  for (size_t i = 0; i < layout_.full_layers.size(); ++i) {
    const int layer = layout_.full_layers[i];
    uint32_t crc = 0;
    for (int64_t page = 0; page < layout_.extent_pages; ++page) {
      const Buffer& exact = pages_[next_extent_ * layout_.extent_pages + page].exact;
      crc = crc32c({exact.data() + layout_.exact_offset[layer], layout_.layer_page_bytes(layer)},
                   crc);
    }
    flash_.session->set_crc(next_extent_, i, crc);
  }
  ++next_extent_;
  writer_->add(*slot);
}

Result<std::vector<PageBytes>> PageTable::loose_pages() {
  TIERKV_RETURN_IF_ERROR(saving_failed_);
  std::vector<PageBytes> pages;
  if (stream_ == nullptr) return pages;  // no layer of the model has any
  TIERKV_RETURN_IF_ERROR(writer_->wait_for_all());
  for (int64_t page = next_extent_ * layout_.extent_pages; page < n_pages(); ++page) {
    pages.push_back({pages_[page].exact.data(), layout_.full_page_bytes});
  }
  return pages;
}

void PageTable::save_codec_state(SessionPoint& point) const {
  point.key_balance = key_balance_.values();
  point.query_sums = queries_.sums();
  point.n_basis_tokens = n_basis_tokens_;
}

Status PageTable::load_newest(int64_t n_exact) {
  const int64_t sinks = std::min(sink_pages_, n_pages());
  TIERKV_RETURN_IF_ERROR(restore_from_flash(0, sinks));
  int64_t begin = n_pages();
  for (int64_t room = n_exact - count(PageTier::kExact); begin > sinks; --begin) {
    if (tier(begin - 1) == PageTier::kFlash && room-- <= 0) break;
  }
  TIERKV_RETURN_IF_ERROR(restore_from_flash(begin, n_pages()));
  update_extents();
  return {};
}

Status PageTable::restore(const SessionPoint& point, int64_t n_tokens) {
  next_extent_ = n_tokens / (layout_.extent_pages * kPageTokens);
  n_final_tokens_ = n_tokens;
  pages_.resize(next_extent_ * layout_.extent_pages);
  for (Page& page : pages_) {
    page.tier = PageTier::kFlash;
    page.on_flash = true;
  }
  if (!point.key_balance.empty()) key_balance_.restore(point.key_balance);
  const Status status = restore_loose(point, n_tokens);
  if (!status.ok()) {
    pages_.clear();
    next_extent_ = n_final_tokens_ = 0;
  } else if (queries_.restore(point.query_sums) && point.n_basis_tokens <= n_tokens) {
    n_basis_tokens_ = point.n_basis_tokens;
  }
  flash_.session->adopt(point, next_extent_);
  update_extents();
  return status;
}

// The pages after the last whole extent come from the point's own, or, when the tokens end within
// an extent that is whole in the point, from that one.
Status PageTable::restore_loose(const SessionPoint& point, int64_t n_tokens) {
  const int64_t begin = n_pages(), end = (n_tokens + kPageTokens - 1) / kPageTokens;
  const int64_t n_extents = static_cast<int64_t>(point.slots.size());
  pages_.resize(end);
  if (next_extent_ < n_extents) {
    flash_.session->adopt(point, next_extent_ + 1);
    for (int64_t page = begin; page < end; ++page) pages_[page].tier = PageTier::kFlash;
    return restore_from_flash(begin, end);
  }
  for (int64_t page = begin; page < end; ++page) {
    TIERKV_ASSIGN_OR_RETURN(pages_[page].exact, Buffer::allocate_page(budget_, MemoryKind::kTier0,
                                                                      layout_.full_page_bytes));
    TIERKV_RETURN_IF_ERROR(
        flash_.session->read_full_page(point, page - n_extents * layout_.extent_pages,
                                       {pages_[page].exact.data(), layout_.full_page_bytes}));
  }
  return {};
}

}  // namespace tierkv
