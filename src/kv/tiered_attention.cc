#include "kv/tiered_attention.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kv/attention_call.h"

namespace tierkv {
namespace {

constexpr uint64_t kSplitStateBytes = 1 << 20;  // partial states held at once, few
constexpr int64_t kRowTaskTokens = 64;          // queries that one task prepares or finishes
constexpr double kMergeMicroseconds = 0.1;      // of a head's states of one split, about

// The largest sizes any layer needs.
struct Extremes {
  int64_t row_floats = 0;  // n_heads * head_dim
  int64_t n_heads = 0;
  int64_t head_dim = 0;

  explicit Extremes(const KvLayout& layout) {
    for (const KvLayerShape& shape : layout.shapes) {
      row_floats = std::max<int64_t>(row_floats, shape.n_heads * shape.head_dim);
      n_heads = std::max<int64_t>(n_heads, shape.n_heads);
      head_dim = std::max<int64_t>(head_dim, shape.head_dim);
    }
  }
};

}  // namespace

TieredAttention::Scratch::Scratch(std::byte* base, const KvLayout& layout, int64_t max_chunk,
                                  int n_threads, int64_t largest_rank) {
  const Extremes most(layout);
  Carver carver(base);
  const int64_t few = std::min(max_chunk, kFewTokens);
  carver.take(q, max_chunk * most.row_floats);
  carver.take(out, max_chunk * most.row_floats);
  carver.take(max, max_chunk * most.n_heads);
  carver.take(sum, max_chunk * most.n_heads);
  carver.take(q_bf16, max_chunk * most.row_floats);
  carver.take(codes, few * most.row_floats);
  carver.take(code_scale, few * most.n_heads);
  carver.take(code_sum, few * most.n_heads);
  const int64_t packed_floats = std::max(most.row_floats, most.n_heads * largest_rank);
  carver.take(packed_out, few * packed_floats);
  carver.take(packed_max, few * most.n_heads);
  carver.take(packed_sum, few * most.n_heads);
  const uint64_t one_split = 2 * few * (packed_floats + 2 * most.n_heads) * sizeof(float);
  carver.take(split_states, std::max(one_split, kSplitStateBytes) / sizeof(float));
  kernel_bytes = align64(
      std::max({attention_scratch_bytes(most.head_dim), rotated_scratch_bytes(most.head_dim),
                low_rank_scratch_bytes(largest_rank, most.head_dim)}));
  thread_bytes = kernel_bytes + 2 * kMaxAttentionRows * sizeof(int32_t) +
                 align64(exact_block_bytes(most.head_dim));
  carver.take(threads, thread_bytes * n_threads);
  total_bytes = carver.bytes();
}

uint64_t TieredAttention::scratch_bytes(const KvLayout& layout, int64_t max_chunk, int n_threads,
                                        int64_t largest_rank) {
  return buffer_footprint(Scratch(nullptr, layout, max_chunk, n_threads, largest_rank).total_bytes);
}

Result<TieredAttention> TieredAttention::create(const KvLayout& layout, MemoryBudget& budget,
                                                const Kernels& kernels, ThreadPool& pool,
                                                int64_t max_chunk, AttentionMath math,
                                                int64_t largest_rank) {
  TieredAttention attention(layout, kernels, pool, math, largest_rank);
  TIERKV_RETURN_IF_ERROR(attention.resize(budget, max_chunk));
  return attention;
}

Status TieredAttention::resize(MemoryBudget& budget, int64_t max_chunk) {
  max_chunk_ = 0;
  memory_.reset();
  TIERKV_ASSIGN_OR_RETURN(
      memory_,
      Buffer::allocate(budget, MemoryKind::kScratch,
                       scratch_bytes(*layout_, max_chunk, pool_->size(), largest_rank_), true));
  max_chunk_ = max_chunk;
  return {};
}

TieredAttention::Scratch TieredAttention::scratch() const {
  return Scratch(const_cast<std::byte*>(memory_.data()), *layout_, max_chunk_, pool_->size(),
                 largest_rank_);
}

Status TieredAttention::attend(PageSource& pages, int layer, int64_t first_position,
                               int64_t n_tokens, const float* q, ChunkTokens wanted, float* out) {
  assert(n_tokens <= max_chunk_ && wanted.first < n_tokens);
  const KvLayerShape& shape = layout_->shapes[layer];
  const Call call{
      pages,    layer, shape, first_position + wanted.first, wanted.step, wanted.count(n_tokens),
      scratch()};
  const bool few = call.n_queries <= kFewTokens && call.head_rows() <= kMaxAttentionRows;
  QueryForm form = QueryForm::kFloat;
  if (!few && uses_bf16()) form = QueryForm::kBf16;
  if (few && call.has_codes()) form = QueryForm::kCodes;
  start_rows(call, q, wanted, form);
  SelectiveRead* rule = shape.window == 0 ? pages.selective() : nullptr;
  if (rule != nullptr && n_tokens == 1) {
    TIERKV_RETURN_IF_ERROR(attend_selective(call, *rule));
  } else {
    if (rule != nullptr) pages.choose_all_extents(layer);
    TIERKV_RETURN_IF_ERROR(few ? attend_few(call) : attend_many(call));
  }
  finish_rows(call, out);
  return {};
}

// Queries to state-row order, scaled, and to the form that kernels take; states start empty.
void TieredAttention::start_rows(const Call& call, const float* q, ChunkTokens wanted,
                                 QueryForm form) {
  const KvLayerShape& shape = call.shape;
  const int64_t chunk = static_cast<int64_t>(shape.group()) * shape.head_dim;
  for_token_blocks(call, [&](int64_t begin, int64_t end, int thread) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      for (int64_t token = begin; token < end; ++token) {
        const int64_t from = wanted.first + token * wanted.step;
        kernels_->vector->scale(q + (from * shape.n_kv_heads + head) * chunk, shape.scale, chunk,
                                call.scratch.q + (head * call.n_queries + token) * chunk);
      }
      const int64_t row = begin * shape.group();
      const AttentionRows rows = call.plain_rows(head, row, (end - begin) * shape.group());
      kernels_->attention->init(rows);
      if (form == QueryForm::kBf16) {
        kernels_->bf16_attention->prepare(rows, call.bf16_queries(head, row));
      } else if (form == QueryForm::kCodes) {  // few: one block of tokens, so row is 0
        kernels_->rotated->prepare(rows, call.pages.key_balance(call.layer, head), call.query(head),
                                   call.scratch.kernel(thread));
      }
    }
  });
}

void TieredAttention::finish_rows(const Call& call, float* out) {
  const KvLayerShape& shape = call.shape;
  const int64_t chunk = static_cast<int64_t>(shape.group()) * shape.head_dim;
  for_token_blocks(call, [&](int64_t begin, int64_t end, int) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      kernels_->attention->finish(
          call.plain_rows(head, begin * shape.group(), (end - begin) * shape.group()));
      for (int64_t token = begin; token < end; ++token) {
        std::memcpy(out + (token * shape.n_kv_heads + head) * chunk,
                    call.scratch.out + (head * call.n_queries + token) * chunk,
                    chunk * sizeof(float));
      }
    }
  });
}

// fn(token_begin, token_end, thread)
template <typename Fn>
void TieredAttention::for_token_blocks(const Call& call, Fn&& fn) {
  const int64_t n_blocks = (call.n_queries + kRowTaskTokens - 1) / kRowTaskTokens;
  pool_->parallel_for(n_blocks, [&](int64_t block, int thread) {
    const int64_t begin = block * kRowTaskTokens;
    fn(begin, std::min(begin + kRowTaskTokens, call.n_queries), thread);
  });
}

Status TieredAttention::attend_few(const Call& call) {
  start_packed(call);
  TIERKV_RETURN_IF_ERROR(attend_splits(call, splits_of(call)));
  if (call.is_packed()) merge_packed(call);
  return {};
}

void TieredAttention::start_packed(const Call& call) {
  if (!call.is_packed()) return;
  for (int head = 0; head < call.shape.n_kv_heads; ++head) {
    kernels_->attention->init(call.packed_rows(head));
  }
}

std::vector<TieredAttention::Split> TieredAttention::splits_of(const Call& call) const {
  std::vector<Split> splits;
  const int64_t first_split = call.first_page() / KvLayout::kSplitPages;
  for (int64_t split = first_split; split * KvLayout::kSplitPages < call.n_pages(); ++split) {
    const int64_t end = std::min((split + 1) * KvLayout::kSplitPages, call.n_pages());
    // Pages behind a window have been dropped: nothing may ask for them, not even ahead of time.
    const int64_t begin = std::max(split * KvLayout::kSplitPages, call.first_page());
    bool flash = false;
    for (int64_t p = begin; p < end; ++p) {
      flash |= call.pages.tier(call.layer, p) == PageTier::kFlash;
    }
    splits.push_back({.page_begin = begin,
                      .page_end = end,
                      .extent = flash ? begin / layout_->extent_pages : -1});
  }
  return splits;
}

// How many have room for their states at once.
size_t TieredAttention::most_splits(const Call& call) const {
  const uint64_t split_bytes =
      2 * call.head_rows() * call.shape.n_kv_heads * (call.state_dim() + 2) * sizeof(float);
  return std::max<size_t>(1, kSplitStateBytes / split_bytes);
}

// Takes all splits into the states, reading the extents of those that say so.
Status TieredAttention::attend_splits(const Call& call, std::vector<Split> splits) {
  const size_t wave = most_splits(call);
  std::vector<Split> ready;
  size_t next_extent = 0;
  int64_t current_extent = -1;
  const std::byte* payload = nullptr;
  for (Split& split : splits) {
    const bool reads = split.extent >= 0 && split.reads;
    if (reads && split.extent != current_extent) {
      run_splits(call, ready);  // they may read the extent that is about to be given back
      ready.clear();
      TIERKV_ASSIGN_OR_RETURN(payload, call.pages.read_extent(call.layer, next_extent++));
      current_extent = split.extent;
    }
    split.payload = reads ? payload : nullptr;
    split.slot = static_cast<int64_t>(ready.size());
    ready.push_back(split);
    if (ready.size() == wave) {
      run_splits(call, ready);
      ready.clear();
    }
  }
  run_splits(call, ready);
  return {};
}

void TieredAttention::run_splits(const Call& call, const std::vector<Split>& splits) {
  form_states(call, splits);
  merge_states(call, splits.size());
}

// The partial states of splits, each in its slot.
void TieredAttention::form_states(const Call& call, std::span<const Split> splits) {
  const int n_heads = call.shape.n_kv_heads;
  const int64_t n_tasks = static_cast<int64_t>(splits.size()) * n_heads;
  const auto task = [&](int64_t number) {
    return number < n_tasks ? Task{&splits[number / n_heads], static_cast<int>(number % n_heads)}
                            : Task{};
  };
  pool_->parallel_for(n_tasks, [&](int64_t number, int thread) {
    // The second is what this thread will probably do next.
    run_task(call, task(number), task(number + pool_->size()), thread);
  });
}

// Those in slots [0, n_splits), in ascending order, for each KV head.
void TieredAttention::merge_states(const Call& call, size_t n_splits) {
  const int n_heads = call.shape.n_kv_heads;
  const bool packs = call.is_packed();
  if (n_splits == 0) return;
  const double each = kMergeMicroseconds * static_cast<double>(n_splits);
  pool_->parallel_for_short(n_heads, each, [&](int64_t head, int) {
    const AttentionRows plain = call.plain_rows(static_cast<int>(head), 0, call.head_rows());
    const AttentionRows packed = call.packed_rows(static_cast<int>(head));
    for (size_t slot = 0; slot < n_splits; ++slot) {
      const int64_t state = 2 * (static_cast<int64_t>(slot) * n_heads + head);
      if (slot + 1 < n_splits) call.prefetch_states(state + 2 * n_heads, packs ? 2 : 1);
      kernels_->attention->merge(call.split_state(state).rows(plain), plain);
      if (packs) kernels_->attention->merge(call.split_state(state + 1).rows(packed), packed);
    }
  });
}

// Blocks of a task in the order in which they are attended to, from `page` on; those of the one
// that follows come after them. Null beyond.
const void* TieredAttention::block_of(const Call& call, const Task& task, const Task& following,
                                      int64_t page) {
  if (page < task.split->page_end) return call.block(page, task.kv_head, task.split->payload);
  if (following.split == nullptr) return nullptr;
  page += following.split->page_begin - task.split->page_end;
  if (page >= following.split->page_end) return nullptr;
  return call.block(page, following.kv_head, following.split->payload);
}

// The longest run of codes that begins with `page`.
RotatedRun TieredAttention::run_of(const Call& call, const Task& task, const Task& following,
                                   int64_t page) {
  const int64_t end = std::min(task.split->page_end, page + kMaxRun);
  const bool by_copy = task.split->payload == nullptr;
  RotatedRun run{.n = 1};
  if (call.sees_whole(0, call.head_rows(), page)) {
    while (page + run.n < end && call.is_rotated(page + run.n, task.kv_head, by_copy) &&
           call.sees_whole(0, call.head_rows(), page + run.n)) {
      ++run.n;
    }
  }
  for (int i = 0; i < run.n + kBlocksAhead; ++i) {
    run.blocks[i] = static_cast<const std::byte*>(block_of(call, task, following, page + i));
  }
  return run;
}

void TieredAttention::run_task(const Call& call, const Task& task, const Task& following,
                               int thread) {
  const Scratch& s = call.scratch;
  const Split& split = *task.split;
  const int kv_head = task.kv_head;
  const int64_t n_rows = call.head_rows();
  const int64_t state = 2 * (split.slot * call.shape.n_kv_heads + kv_head);
  AttentionRows plain = call.split_state(state).rows(call.plain_rows(kv_head, 0, n_rows));
  AttentionRows packed = call.split_state(state + 1).rows(call.packed_rows(kv_head));
  kernels_->attention->init(plain);
  if (call.is_packed()) kernels_->attention->init(packed);
  for (int64_t page = split.page_begin; page < split.page_end; ++page) {
    const bool is_rotated = call.is_rotated(page, kv_head, split.payload == nullptr);
    const bool is_low_rank = call.is_low_rank(page);
    AttentionRows& target = is_rotated || is_low_rank ? packed : plain;
    if (!call.set_ranges(target, 0, page, s.ranges(thread))) continue;
    if (is_rotated) {
      const RotatedRun run = run_of(call, task, following, page);
      kernels_->rotated->attend(call.format(kv_head), run, packed, call.query(kv_head));
      page += run.n - 1;
      continue;
    }
    const void* block = call.block(page, kv_head, split.payload);
    target.next_block = static_cast<const uint16_t*>(block_of(call, task, following, page + 1));
    if (is_low_rank) {
      attend_latents(call, packed, page, kv_head, block, thread);
    } else {
      kernels_->attention->attend_exact(static_cast<const uint16_t*>(block), plain,
                                        s.kernel(thread));
    }
  }
}

void TieredAttention::merge_packed(const Call& call) {
  if (call.low_rank() != nullptr) return merge_latents(call);
  for (int head = 0; head < call.shape.n_kv_heads; ++head) {
    const AttentionRows rotated = call.packed_rows(head);
    kernels_->rotated->unrotate(rotated, call.scratch.kernel(0));
    kernels_->attention->merge(rotated, call.plain_rows(head, 0, call.head_rows()));
  }
}

}  // namespace tierkv
