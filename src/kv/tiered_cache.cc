#include "kv/tiered_cache.h"

#include <algorithm>

namespace tierkv {
namespace {

constexpr double kStoreMicroseconds = 0.05;  // of a token's keys and values of one KV head, about

}  // namespace

Result<std::unique_ptr<TieredCache>> TieredCache::create(const KvLayout& layout,
                                                         MemoryBudget& budget,
                                                         const Kernels& kernels, ThreadPool& pool,
                                                         int64_t max_chunk, FlashOptions flash,
                                                         AttentionMath math, int64_t largest_rank) {
  TIERKV_ASSIGN_OR_RETURN(
      TieredAttention attention,
      TieredAttention::create(layout, budget, kernels, pool, max_chunk, math, largest_rank));
  const bool saved = flash.session != nullptr && !layout.full_layers.empty();
  std::unique_ptr<TieredCache> cache(new TieredCache(layout, budget, kernels, pool, max_chunk,
                                                     std::move(flash), std::move(attention),
                                                     largest_rank));
  if (saved) TIERKV_RETURN_IF_ERROR(cache->table_.open_session());
  return cache;
}

TieredCache::TieredCache(const KvLayout& layout, MemoryBudget& budget, const Kernels& kernels,
                         ThreadPool& pool, int64_t max_chunk, FlashOptions flash,
                         TieredAttention attention, int64_t largest_rank)
    : layout_(layout),
      budget_(budget),
      kernels_(kernels),
      pool_(pool),
      max_chunk_(max_chunk),
      largest_rank_(largest_rank),
      session_(flash.session),
      table_(layout, budget, kernels, pool, std::move(flash)),
      attention_(std::move(attention)) {}

Status TieredCache::settle(const Plan& plan) {
  if (largest_rank(layout_, low_rank_choices(layout_, plan.codecs)) > largest_rank_) {
    return internal_error("the cache was not made for a plan of such a rank");
  }
  return table_.settle(plan);
}

Status TieredCache::set_max_chunk(int64_t max_chunk) {
  if (chunk_ != 0) return internal_error("a chunk is begun already");
  max_chunk_ = 0;
  TIERKV_RETURN_IF_ERROR(attention_.resize(budget_, max_chunk));
  max_chunk_ = max_chunk;
  return {};
}

Status TieredCache::begin(int64_t n_tokens) {
  if (chunk_ != 0) return internal_error("a chunk is begun already");
  if (n_tokens < 1 || n_tokens > max_chunk_) return internal_error("chunk of an impossible size");
  Status status = grow_window_pages(length_ + n_tokens);
  if (status.ok() && !layout_.full_layers.empty()) status = table_.grow(length_ + n_tokens);
  chunk_ = n_tokens;
  if (!status.ok()) abandon();
  return status;
}

// Pages that no token from length_ on can see are dropped, new ones added.
Status TieredCache::grow_window_pages(int64_t n_tokens) {
  if (layout_.window_page_bytes == 0) return {};
  while (!window_pages_.empty() &&
         (first_window_page_ + 1) * kPageTokens <= length_ - layout_.max_window + 1) {
    window_pages_.pop_front();
    ++first_window_page_;
  }
  const auto n_end = [&] {
    return first_window_page_ + static_cast<int64_t>(window_pages_.size());
  };
  while (n_end() * kPageTokens < n_tokens) {
    TIERKV_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate_page(budget_, MemoryKind::kTier0,
                                                                 layout_.window_page_bytes));
    window_pages_.push_back(std::move(buffer));
  }
  return {};
}

void TieredCache::shrink_window_pages() {
  const int64_t keep = (length_ + kPageTokens - 1) / kPageTokens - first_window_page_;
  while (static_cast<int64_t>(window_pages_.size()) > std::max<int64_t>(keep, 0)) {
    window_pages_.pop_back();
  }
}

Status TieredCache::attend(int layer, const float* q, const float* k, const float* v,
                           ChunkTokens wanted, float* out) {
  store(layer, k, v);
  table_.pump();
  table_.count_for_balance(layer, q, k, chunk_);
  if (largest_rank_ > 0 && layout_.is_full(layer) && table_.low_rank() == nullptr) {
    table_.count_queries(layer, q, chunk_);
  }
  return attention_.attend(*this, layer, length_, chunk_, q, wanted, out);
}

// One task per page and KV head: tokens of a page share cache lines.
void TieredCache::store(int layer, const float* k, const float* v) {
  const KvLayerShape& shape = layout_.shapes[layer];
  const int64_t first_page = length_ / kPageTokens;
  const int64_t n_pages = (length_ + chunk_ - 1) / kPageTokens - first_page + 1;
  const double each =
      kStoreMicroseconds * static_cast<double>(chunk_) / static_cast<double>(n_pages);
  pool_.parallel_for_short(n_pages * shape.n_kv_heads, each, [&](int64_t task, int) {
    const int head = static_cast<int>(task % shape.n_kv_heads);
    const int64_t page = first_page + task / shape.n_kv_heads;
    uint16_t* block = writable_block(layer, page, head);
    const int64_t begin = std::max(length_, page * kPageTokens);
    const int64_t end = std::min(length_ + chunk_, (page + 1) * kPageTokens);
    for (int64_t position = begin; position < end; ++position) {
      const int64_t at = ((position - length_) * shape.n_kv_heads + head) * shape.head_dim;
      kernels_.attention->store_token(k + at, v + at, shape.head_dim,
                                      static_cast<int>(position % kPageTokens), block);
    }
  });
}

Status TieredCache::commit() {
  length_ += chunk_;
  chunk_ = 0;
  if (!layout_.full_layers.empty()) table_.finish(length_);
  return {};
}

void TieredCache::abandon() {
  chunk_ = 0;
  table_.shrink(length_);
  shrink_window_pages();
}

bool TieredCache::rewind(int64_t n_tokens) {
  const int64_t first_seen = std::max<int64_t>(n_tokens - layout_.max_window + 1, 0);
  const bool all_seen = n_tokens == 0 || first_window_page_ <= first_seen / kPageTokens;
  if (n_tokens > length_ || !all_seen || !table_.rewind(n_tokens)) return false;
  if (n_tokens == 0) first_window_page_ = 0;
  length_ = n_tokens;
  shrink_window_pages();
  return true;
}

PageTier TieredCache::tier(int layer, int64_t page) const {
  return layout_.is_full(layer) ? table_.tier(page) : PageTier::kExact;
}

uint16_t* TieredCache::writable_block(int layer, int64_t page, int kv_head) {
  if (layout_.is_full(layer)) return table_.exact_block(page, layer, kv_head);
  std::byte* base = window_pages_[page - first_window_page_].data() + layout_.exact_offset[layer];
  return reinterpret_cast<uint16_t*>(base +
                                     kv_head * exact_block_bytes(layout_.shapes[layer].head_dim));
}

const uint16_t* TieredCache::exact_block(int layer, int64_t page, int kv_head) {
  return writable_block(layer, page, kv_head);
}

const std::byte* TieredCache::compressed_block(int layer, int64_t page, int kv_head) const {
  return table_.compressed_block(page, layer, kv_head);
}

RotatedFormat TieredCache::format(int layer, int kv_head) const {
  return table_.format(layer, kv_head);
}

Result<const std::byte*> TieredCache::read_extent(int layer, size_t index) {
  return table_.read_extent(layer, index);
}

const uint16_t* TieredCache::flash_block(const std::byte* payload, int layer, int64_t page,
                                         int kv_head) const {
  return table_.flash_block(payload, page, layer, kv_head);
}

uint64_t TieredCache::ram_bytes() const {
  return table_.ram_bytes() + window_pages_.size() * buffer_footprint(layout_.window_page_bytes);
}

TierReport TieredCache::report() const {
  TierReport report;
  const int64_t n_compressed = table_.count(PageTier::kCompressed);
  const int64_t n_flash = table_.count(PageTier::kFlash);
  report.n_compressed = n_compressed * kPageTokens;
  report.n_offloaded = n_flash * kPageTokens;
  report.n_exact = length_ - report.n_compressed - report.n_offloaded;
  report.tier0_bytes = budget_.used(MemoryKind::kTier0);
  report.tier1_bytes = budget_.used(MemoryKind::kTier1);
  report.tier2_bytes = n_flash * layout_.full_page_bytes;
  report.staging_bytes = budget_.used(MemoryKind::kStaging);
  report.tier1_page_bytes = n_compressed * table_.compressed_page_bytes();
  report.n_copied = table_.n_copies() * kPageTokens;
  report.copy_bytes = static_cast<uint64_t>(table_.n_copies()) * table_.compressed_page_bytes();
  if (n_compressed > 0 || report.n_copied > 0) {
    report.bits_per_element = 16.0 * static_cast<double>(table_.compressed_page_bytes()) /
                              static_cast<double>(layout_.full_page_bytes);
  }
  if (table_.low_rank() != nullptr) report.basis_bytes = table_.low_rank()->basis_bytes();
  report.flash = table_.flash_stats();
  report.flash_backend = table_.flash_backend();
  return report;
}

}  // namespace tierkv
