// The cache as a session's complete point, and back.
#include <algorithm>

#include "kv/tiered_cache.h"

namespace tierkv {
namespace {

int64_t pages_of(int64_t n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

// The first page that a token after the first n_tokens can see in a window.
int64_t first_seen_page(const KvLayout& layout, int64_t n_tokens) {
  return std::max<int64_t>(n_tokens - layout.max_window + 1, 0) / kPageTokens;
}

}  // namespace

Status TieredCache::save(SessionPoint point) {
  point.n_tokens = length_;
  TIERKV_ASSIGN_OR_RETURN(const std::vector<PageBytes> full, table_.loose_pages());
  std::vector<PageBytes> window;
  const int64_t n = static_cast<int64_t>(window_pages_.size());
  const int64_t skip = std::max<int64_t>(n - session_->shape().max_window_pages, 0);
  for (int64_t i = skip; i < n; ++i) {
    window.push_back({window_pages_[i].data(), layout_.window_page_bytes});
  }
  table_.save_codec_state(point);
  point.first_window_page = window.empty() ? 0 : first_window_page_ + skip;
  return session_->write_point(std::move(point), full, window);
}

bool TieredCache::can_restore(const KvLayout& layout, const SessionPoint& point, int64_t n_tokens) {
  if (n_tokens < 1 || n_tokens > point.n_tokens) return false;
  return layout.window_page_bytes == 0 ||
         point.first_window_page <= first_seen_page(layout, n_tokens);
}

Status TieredCache::restore(const SessionPoint& point, int64_t n_tokens) {
  if (length_ != 0 || chunk_ != 0 || !can_restore(layout_, point, n_tokens)) {
    return internal_error("these tokens of the saved session can't be had");
  }
  Status status = restore_window(point, n_tokens);
  if (status.ok() && !layout_.full_layers.empty()) status = table_.restore(point, n_tokens);
  if (status.ok()) {
    length_ = n_tokens;
  } else {
    window_pages_.clear();
    first_window_page_ = 0;
  }
  return status;
}

Status TieredCache::restore_window(const SessionPoint& point, int64_t n_tokens) {
  if (layout_.window_page_bytes == 0) return {};
  first_window_page_ = first_seen_page(layout_, n_tokens);
  for (int64_t page = first_window_page_; page < pages_of(n_tokens); ++page) {
    TIERKV_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate_page(budget_, MemoryKind::kTier0,
                                                                 layout_.window_page_bytes));
    window_pages_.push_back(std::move(buffer));
    TIERKV_RETURN_IF_ERROR(
        session_->read_window_page(point, page - point.first_window_page,
                                   {window_pages_.back().data(), layout_.window_page_bytes}));
  }
  return {};
}

}  // namespace tierkv
