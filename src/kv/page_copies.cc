// Copies of flash pages in RAM, for selective reading, and what is read instead of all extents.
#include <algorithm>
#include <iterator>

#include "kv/page_table.h"

namespace tierkv {

int64_t PageTable::n_copies() const {
  int64_t n = 0;
  for (int64_t page = 0; page < n_pages(); ++page) n += has_copy(page);
  return n;
}

// Only so many copies stay, the oldest pages'.
void PageTable::keep_copies(int64_t n_most) {
  for (int64_t page = 0; page < n_pages(); ++page) {
    if (has_copy(page) && n_most-- <= 0) pages_[page].compressed.reset();
  }
}

// A page whose original is on flash leaves RAM, but for its copy if it may have one. Without RAM
// for that it has none, which costs time only.
void PageTable::leave_to_flash(int64_t page) {
  Page& p = pages_[page];
  if (p.tier == PageTier::kExact && n_copies() < copy_pages_ && !encode(page).ok()) {
    p.compressed.reset();
  }
  p.exact.reset();
  p.tier = PageTier::kFlash;
}

// Leaves to flash what is compressed from page `begin` on and what is exact in [begin, end), with
// copies, of pages that are there already too. The plan's codecs are set.
Status PageTable::leave_with_copies(int64_t begin, int64_t end) {
  for (int64_t page = begin; page < n_pages(); ++page) {
    const bool leaves = page < end || pages_[page].tier == PageTier::kCompressed;
    if (!leaves || !pages_[page].on_flash || pages_[page].tier == PageTier::kFlash) continue;
    if (n_copies() >= copy_pages_) pages_[page].compressed.reset();
    leave_to_flash(page);
  }
  std::vector<int64_t> todo = on_flash(begin, end);
  std::erase_if(todo, [&](int64_t page) { return has_copy(page); });
  const int64_t room = std::max<int64_t>(copy_pages_ - n_copies(), 0);
  if (static_cast<int64_t>(todo.size()) > room) todo.resize(static_cast<size_t>(room));
  return encode_from_flash(todo, PageTier::kFlash);
}

void PageTable::start_selective(const Plan& plan) {
  std::vector<std::vector<double>> head_kld(layout_.shapes.size());
  auto next = plan.copies.head_kld.begin();
  for (const int layer : layout_.full_layers) {
    const auto end = next + layout_.shapes[layer].n_kv_heads;
    head_kld[layer].assign(next, end);
    next = end;
  }
  chosen_.assign(layout_.shapes.size(), {});  // no guess yet: nothing is read ahead
  selective_ = std::make_unique<SelectiveRead>(std::move(head_kld), plan.copies.kld_budget);
}

void PageTable::stop_selective() {
  if (selective_ == nullptr) return;
  n_judged_ += selective_->n_judged();
  n_skipped_ += selective_->n_skipped();
  selective_.reset();
  ask_for_extents();
}

void PageTable::choose_extents(int layer, std::vector<int64_t> extents) {
  chosen_[layer] = std::move(extents);
  stream_->set_layer_extents(layer, slots_of(chosen_[layer]));
}

// Other pages are on flash than before: of the extents last chosen those that still have any.
void PageTable::ask_for_chosen() {
  std::vector<std::vector<int64_t>> slots;
  for (const int layer : layout_.full_layers) {
    std::vector<int64_t> kept;
    std::set_intersection(chosen_[layer].begin(), chosen_[layer].end(), extents_.begin(),
                          extents_.end(), std::back_inserter(kept));
    slots.push_back(slots_of(kept));
    chosen_[layer] = std::move(kept);
  }
  stream_->set_extents(std::move(slots));
}

FlashStats PageTable::flash_stats() const {
  FlashStats stats = stream_ ? stream_->stats() : FlashStats{};
  stats.judged = n_judged_ + (selective_ ? selective_->n_judged() : 0);
  stats.skipped = n_skipped_ + (selective_ ? selective_->n_skipped() : 0);
  return stats;
}

}  // namespace tierkv
