// Moving pages to the tiers that a plan gives them: at the end of the prompt, and again whenever
// the plan is made anew. What frees RAM comes first.
#include <algorithm>

#include "kv/page_table.h"

namespace tierkv {

Status PageTable::settle(const Plan& plan) {
  const Limits before = limits();
  max_exact_pages_ = plan.sink_pages + plan.window_pages;
  sink_pages_ = plan.sink_pages;
  window_pages_ = plan.window_pages;
  tier1_pages_ = plan.tier1_pages;
  copy_pages_ = plan.flash ? plan.copies.pages : 0;
  fix_key_balance(!plan.codecs.empty() && (tier1_pages_ > 0 || copy_pages_ > 0));
  stop_selective();
  if (plan.flash && stream_ == nullptr) TIERKV_RETURN_IF_ERROR(start_flash());
  if (stream_ != nullptr) {
    const Status written = writer_->wait_for_all();
    const bool only_saves = flash_.session != nullptr && !plan.flash;
    if (!written.ok() && !only_saves) return written;
  }
  revert_to_originals();
  const int64_t end =
      std::max(std::min(n_pages() - window_pages_, n_final_tokens_ / kPageTokens), sink_pages_);
  const int64_t tier1_end = std::min(sink_pages_ + tier1_pages_, end);
  const int64_t flash_end = plan.flash ? end : tier1_end;
  if (copy_pages_ == 0) drop_pages(tier1_end, flash_end);
  if (const Status coded = set_codecs(plan); !coded.ok()) {
    go_without(before);
    return coded;
  }
  if (copy_pages_ > 0) TIERKV_RETURN_IF_ERROR(leave_with_copies(tier1_end, flash_end));
  for (int64_t page = sink_pages_; page < tier1_end; ++page) {
    if (movable(page)) TIERKV_RETURN_IF_ERROR(compress(page));
  }
  TIERKV_RETURN_IF_ERROR(compress_from_flash(sink_pages_, tier1_end));
  TIERKV_RETURN_IF_ERROR(restore_from_flash(0, std::min(sink_pages_, n_pages())));
  TIERKV_RETURN_IF_ERROR(restore_from_flash(flash_end, n_pages()));
  if (copy_pages_ > 0) start_selective(plan);
  update_extents();
  return {};
}

// After codecs could not be had: Tier-1 is what is compressed already, and pages leave RAM as they
// did before. Without such pages there is no codec, so that none is used that is there in part.
void PageTable::go_without(const Limits& before) {
  max_exact_pages_ = before.max_exact_pages;
  sink_pages_ = before.sink_pages;
  window_pages_ = before.window_pages;
  tier1_pages_ = count(PageTier::kCompressed);
  copy_pages_ = 0;
  keep_copies(0);
  update_extents();
  if (tier1_pages_ > 0) return;
  codecs_.clear();
  compressed_ = make_compressed_layout(layout_, {});
  low_rank_.reset();
}

// Leaves to their originals on flash, where those are there: what is compressed from page begin on,
// and what is exact in [begin, end).
void PageTable::drop_pages(int64_t begin, int64_t end) {
  for (int64_t page = begin; page < n_pages(); ++page) {
    const bool leaves = page < end || pages_[page].tier == PageTier::kCompressed;
    if (leaves && pages_[page].on_flash) drop_to_flash(page);
  }
}

// The codecs of Tier-1, and the scratch to encode with. Pages that are compressed already go back
// to their originals when the codecs change.
Status PageTable::set_codecs(const Plan& plan) {
  TIERKV_RETURN_IF_ERROR(check_low_rank(layout_, plan.codecs));
  const bool same = plan.codecs == codecs_;
  keep_copies(same ? copy_pages_ : 0);
  if (count(PageTier::kCompressed) > 0) {
    if (same) return {};
    if (n_bound() > 0) {
      return internal_error("the codecs of pages without originals can't change");
    }
    for (int64_t page = 0; page < n_pages(); ++page) {
      if (pages_[page].tier == PageTier::kCompressed) drop_to_flash(page);
    }
  }
  if (!same) {
    if (low_rank_ != nullptr) n_basis_tokens_ = 0;
    low_rank_.reset();
    codecs_ = plan.codecs;
    compressed_ = make_compressed_layout(layout_, codecs_);
  }
  if (plan.tier1_pages == 0 && copy_pages_ == 0) return {};
  if (codec_scratch_.empty()) {
    TIERKV_ASSIGN_OR_RETURN(codec_scratch_,
                            Buffer::allocate(budget_, MemoryKind::kScratch,
                                             codec_scratch_bytes(layout_, pool_.size())));
  }
  const bool has_low_rank = largest_rank(layout_, compressed_.low_rank) > 0;
  return has_low_rank && low_rank_ == nullptr ? start_low_rank() : Status();
}

void PageTable::fix_key_balance(bool whatever) {
  std::vector<RopePairing> pairings(layout_.shapes.size(), RopePairing::kHalves);
  for (size_t i = 0; i < ropes_.size(); ++i) pairings[i] = ropes_[i].pairing;
  key_balance_.fix(pairings, whatever);
}

// A query before there is a basis: it is to be found from all tokens, whatever was restored.
void PageTable::count_queries(int layer, const float* q, int64_t n_tokens) {
  n_basis_tokens_ = 0;
  queries_.add(layer, q, n_tokens);
}

// No page is compressed yet. After the next turn of a saved session this finds the bases that were
// there before: from the same tokens.
Status PageTable::start_low_rank() {
  update_extents();
  const int64_t n_tokens =
      n_basis_tokens_ > 0 ? n_basis_tokens_ : n_final_tokens_ / kPageTokens * kPageTokens;
  TIERKV_ASSIGN_OR_RETURN(
      low_rank_, LowRankCodec::create(layout_, compressed_.low_rank, ropes_, queries_,
                                      flash_.max_tokens, budget_, kernels_, pool_,
                                      [&](int layer, const LowRankCodec::PageVisitor& visit) {
                                        return visit_pages(layer, n_tokens / kPageTokens, visit);
                                      }));
  n_basis_tokens_ = n_tokens;
  compressed_ = make_compressed_layout(layout_, codecs_, low_rank_->choices());
  return {};
}

// A layer's exact blocks of the first n whole pages, in order: sums over them don't depend on
// tiers.
Status PageTable::visit_pages(int layer, int64_t n, const LowRankCodec::PageVisitor& visit) {
  size_t n_read = 0;
  int64_t extent = -1;
  const std::byte* payload = nullptr;
  for (int64_t page = 0; page < n; ++page) {
    if (pages_[page].tier == PageTier::kExact) {
      visit(page, pages_[page].exact.data() + layout_.exact_offset[layer]);
      continue;
    }
    if (page / layout_.extent_pages != extent) {
      TIERKV_ASSIGN_OR_RETURN(payload, read_extent(layer, n_read++));
      extent = page / layout_.extent_pages;
    }
    visit(page, reinterpret_cast<const std::byte*>(flash_block(payload, page, layer, 0)));
  }
  return {};
}

int64_t PageTable::n_bound() const {
  return std::count_if(pages_.begin(), pages_.end(), [](const Page& page) {
    return page.tier == PageTier::kCompressed && !page.on_flash && page.exact.empty();
  });
}

// Compressed pages whose originals are still in RAM are taken as exact: they may get other codecs.
void PageTable::revert_to_originals() {
  for (Page& page : pages_) {
    if (page.tier != PageTier::kCompressed || page.exact.empty()) continue;
    page.compressed.reset();
    page.tier = PageTier::kExact;
  }
}

Status PageTable::compress_from_flash(int64_t begin, int64_t end) {
  return encode_from_flash(on_flash(begin, end), PageTier::kCompressed);
}

// Gives pages on flash their Tier-1 form: to be met instead of the original, or as its copy.
Status PageTable::encode_from_flash(const std::vector<int64_t>& todo, PageTier tier) {
  return fill_from_flash(
      todo, tier,
      [&](Page& page) -> Status {
        TIERKV_ASSIGN_OR_RETURN(page.compressed, Buffer::allocate_page(budget_, MemoryKind::kTier1,
                                                                       compressed_.page_bytes));
        return {};
      },
      [&](int64_t page, int layer, const std::byte* exact) { encode_layer(page, layer, exact); });
}

Status PageTable::restore_from_flash(int64_t begin, int64_t end) {
  return fill_from_flash(
      on_flash(begin, end), PageTier::kExact,
      [&](Page& page) -> Status {
        page.compressed.reset();
        TIERKV_ASSIGN_OR_RETURN(page.exact, Buffer::allocate_page(budget_, MemoryKind::kTier0,
                                                                  layout_.full_page_bytes));
        return {};
      },
      [&](int64_t page, int layer, const std::byte* exact) {
        std::copy_n(exact, layout_.layer_page_bytes(layer),
                    pages_[page].exact.data() + layout_.exact_offset[layer]);
      });
}

std::vector<int64_t> PageTable::on_flash(int64_t begin, int64_t end) const {
  std::vector<int64_t> pages;
  for (int64_t page = begin; page < end; ++page) {
    if (pages_[page].tier == PageTier::kFlash) pages.push_back(page);
  }
  return pages;
}

// Brings pages that are on flash into `tier`: allocate(page) makes room, fill(page, layer, exact)
// takes a layer's float16. On an error they are on flash alone.
template <typename Allocate, typename Fill>
Status PageTable::fill_from_flash(const std::vector<int64_t>& todo, PageTier tier,
                                  Allocate allocate, Fill fill) {
  Status status;
  for (const int64_t page : todo) {
    if (status.ok()) status = allocate(pages_[page]);
  }
  if (status.ok()) status = read_pages(todo, fill);
  for (const int64_t page : todo) {
    if (status.ok()) {
      pages_[page].tier = tier;
    } else {
      drop_to_flash(page);
    }
  }
  update_extents();
  return status;
}

template <typename Fill>
Status PageTable::read_pages(const std::vector<int64_t>& todo, Fill fill) {
  if (todo.empty()) return {};
  extents_.clear();  // until they are told again: reading ahead is to meet no others
  for (const int64_t page : todo) {
    const int64_t extent = page / layout_.extent_pages;
    if (extents_.empty() || extents_.back() != extent) extents_.push_back(extent);
  }
  ask_for_extents();
  for (const int layer : layout_.full_layers) {
    size_t at = 0;
    for (size_t index = 0; index < extents_.size(); ++index) {
      TIERKV_ASSIGN_OR_RETURN(const std::byte* payload, read_extent(layer, index));
      for (; at < todo.size() && todo[at] / layout_.extent_pages == extents_[index]; ++at) {
        fill(todo[at], layer,
             reinterpret_cast<const std::byte*>(flash_block(payload, todo[at], layer, 0)));
      }
    }
  }
  return {};
}

}  // namespace tierkv
