#include "kv/low_rank_codec.h"

#include <algorithm>
#include <cmath>

#include "base/carve.h"
#include "kv/low_rank_ranks.h"

namespace tierkv {
namespace {

constexpr int kMostAtOnce = 4;  // layers whose bases are found side by side

int64_t width_of(const KvLayerShape& shape) { return 2 * shape.n_kv_heads * shape.head_dim; }
uint64_t w_bytes(const KvLayerShape& shape, int64_t rank) {
  return align64(static_cast<uint64_t>(rank * width_of(shape)) * sizeof(uint16_t));
}

// [n][head_dim]: cosines and sines of positions 0, stride, 2 stride, ..
void fill_angles(const KvRope& rope, int64_t n, int64_t stride, float* out) {
  const int64_t half = static_cast<int64_t>(rope.frequency.size());
  for (int64_t row = 0; row < n; ++row, out += 2 * half) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(row * stride) * rope.frequency[i];
      out[i] = static_cast<float>(std::cos(angle));
      out[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

// The choices with the most that ranks can become.
std::vector<LowRankChoice> most_of(const KvLayout& layout, std::vector<LowRankChoice> choices) {
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i].rank = most_low_rank(choices[i].rank, layout.kv_width(static_cast<int>(i)));
  }
  return choices;
}

// The largest sizes that any low-rank layer needs.
struct Extremes {
  int64_t width = 0;
  uint64_t kernel_bytes = 0;

  Extremes(const KvLayout& layout, const std::vector<LowRankChoice>& choices) {
    for (size_t layer = 0; layer < choices.size(); ++layer) {
      if (choices[layer].rank == 0) continue;
      const KvLayerShape& shape = layout.shapes[layer];
      width = std::max(width, width_of(shape));
      kernel_bytes =
          std::max(kernel_bytes, low_rank_scratch_bytes(choices[layer].rank, shape.head_dim));
    }
  }
};

int64_t at_once(int64_t n_layers, int n_threads) {
  return std::min<int64_t>({n_layers, n_threads, kMostAtOnce});
}

uint64_t gram_bytes(int64_t width) {
  return align64(static_cast<uint64_t>(width * width) * sizeof(float));
}

uint64_t page_rows_bytes(int64_t width) {
  return align64(static_cast<uint64_t>(kPageTokens * width) * sizeof(float));
}

}  // namespace

int64_t LowRankCodec::table_floats(int64_t head_dim, int64_t max_tokens) {
  const int64_t n_steps = max_tokens / (kPageTokens * kPagesAStep) + 1;
  return (kPageTokens + kPagesAStep + n_steps) * head_dim;
}

// As if no two layers shared their tables: whether they do is known once weights are loaded.
uint64_t LowRankCodec::memory_bytes(const KvLayout& layout,
                                    const std::vector<LowRankChoice>& choices, int64_t max_tokens,
                                    int n_threads) {
  uint64_t w = 0, most_w = 0, tables = 0;
  int64_t n_layers = 0;
  const std::vector<LowRankChoice> most_choices = most_of(layout, choices);
  const Extremes most(layout, most_choices);
  for (size_t layer = 0; layer < choices.size(); ++layer) {
    if (choices[layer].rank == 0) continue;
    const KvLayerShape& shape = layout.shapes[layer];
    // Whichever layers get more rank than asked for.
    w += align64(static_cast<uint64_t>(choices[layer].rank * most.width) * sizeof(uint16_t));
    most_w += w_bytes(shape, most_choices[layer].rank);
    ++n_layers;
    tables += static_cast<uint64_t>(table_floats(shape.head_dim, max_tokens)) * sizeof(float);
  }
  if (w == 0) return 0;
  const uint64_t scratch = page_rows_bytes(most.width) + align64(most.kernel_bytes) * n_threads;
  const uint64_t finding =
      static_cast<uint64_t>(at_once(n_layers, n_threads)) *
      (buffer_footprint(gram_bytes(most.width)) + low_rank_basis_bytes(most.width));
  return buffer_footprint(w) + buffer_footprint(most_w) + buffer_footprint(tables) +
         buffer_footprint(scratch) + finding;
}

Result<std::unique_ptr<LowRankCodec>> LowRankCodec::create(
    const KvLayout& layout, const std::vector<LowRankChoice>& choices,
    const std::vector<KvRope>& ropes, const QueryEnergy& queries, int64_t max_tokens,
    MemoryBudget& budget, const Kernels& kernels, ThreadPool& pool,
    const ForEachPage& for_each_page) {
  if (ropes.size() != layout.shapes.size()) {
    return internal_error("the low-rank codec was not told how keys are rotated");
  }
  std::unique_ptr<LowRankCodec> codec(new LowRankCodec(layout, budget, kernels, pool));
  TIERKV_RETURN_IF_ERROR(codec->allocate(most_of(layout, choices), ropes, max_tokens));
  TIERKV_ASSIGN_OR_RETURN(const Buffer found, codec->allocate_bases());
  TIERKV_RETURN_IF_ERROR(codec->find_bases(queries, for_each_page));
  TIERKV_RETURN_IF_ERROR(codec->share_out(choices));
  return codec;
}

Status LowRankCodec::allocate(const std::vector<LowRankChoice>& choices,
                              const std::vector<KvRope>& ropes, int64_t max_tokens) {
  layers_.resize(layout_.shapes.size());
  spectra_.resize(layout_.shapes.size());
  tables_.resize(layout_.shapes.size());
  k_scales_.resize(layout_.shapes.size());
  TIERKV_RETURN_IF_ERROR(allocate_tables(choices, ropes, max_tokens));
  for (size_t i = 0; i < choices.size(); ++i) {
    const KvLayerShape& shape = layout_.shapes[i];
    k_scales_[i].assign(shape.n_kv_heads * shape.head_dim / 2, 1.0f);
    layers_[i] = {.rank = choices[i].rank,
                  .head_dim = shape.head_dim,
                  .n_kv_heads = shape.n_kv_heads,
                  .latent_bits = choices[i].latent_bits,
                  .pairing = ropes[i].pairing,
                  .k_scale = k_scales_[i].data(),
                  .offset_angles = tables_[i].offsets};
  }
  const Extremes most(layout_, choices);
  thread_bytes_ = align64(most.kernel_bytes);
  TIERKV_ASSIGN_OR_RETURN(
      scratch_, Buffer::allocate(budget_, MemoryKind::kScratch,
                                 page_rows_bytes(most.width) + thread_bytes_ * pool_.size()));
  return {};
}

// Room for a basis of every layer's rank; the layers take theirs.
Result<Buffer> LowRankCodec::allocate_bases() {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layers_.size(); ++i) bytes += w_bytes(layout_.shapes[i], layers_[i].rank);
  TIERKV_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(budget_, MemoryKind::kScratch, bytes));
  const std::byte* w = buffer.data();
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].w = reinterpret_cast<const uint16_t*>(w);
    w += w_bytes(layout_.shapes[i], layers_[i].rank);
  }
  return buffer;
}

// Keeps of each basis, found with the most that ranks can become, the layer's share.
Status LowRankCodec::share_out(const std::vector<LowRankChoice>& asked) {
  const std::vector<LowRankLayer> before = layers_;
  choices_ = share_ranks(spectra_, asked);
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].rank = choices_[i].rank;
  TIERKV_ASSIGN_OR_RETURN(w_, allocate_bases());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LowRankLayer& layer = layers_[i];
    const int64_t part = layer.rank * layer.head_dim;
    uint16_t* to = const_cast<uint16_t*>(layer.w);
    for (int64_t n = 0; n < 2 * layer.n_kv_heads; ++n) {
      std::copy_n(before[i].w + n * before[i].rank * layer.head_dim, part, to + n * part);
    }
  }
  return {};
}

// Layers with the same rotation share their tables.
Status LowRankCodec::allocate_tables(const std::vector<LowRankChoice>& choices,
                                     const std::vector<KvRope>& ropes, int64_t max_tokens) {
  std::vector<size_t> like(choices.size());  // the first layer with the same tables
  uint64_t floats = 0;
  const auto size = [&](size_t i) { return table_floats(layout_.shapes[i].head_dim, max_tokens); };
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].rank == 0) continue;
    for (like[i] = 0; choices[like[i]].rank == 0 || !(ropes[like[i]] == ropes[i]);) ++like[i];
    if (like[i] == i) floats += size(i);
  }
  TIERKV_ASSIGN_OR_RETURN(tables_memory_,
                          Buffer::allocate(budget_, MemoryKind::kScratch, floats * sizeof(float)));
  float* memory = tables_memory_.as<float>();
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].rank == 0) continue;
    if (like[i] == i) {
      const int64_t dim = layout_.shapes[i].head_dim;
      tables_[i] = {memory, memory + kPageTokens * dim, memory + (kPageTokens + kPagesAStep) * dim};
      memory += size(i);
      fill_angles(ropes[i], kPageTokens, 1, tables_[i].offsets);
      fill_angles(ropes[i], kPagesAStep, kPageTokens, tables_[i].pages);
      fill_angles(ropes[i], (memory - tables_[i].steps) / dim, kPageTokens * kPagesAStep,
                  tables_[i].steps);
    }
    tables_[i] = tables_[like[i]];
  }
  return {};
}

void LowRankCodec::page_angles(int layer, int64_t page, float* out) const {
  const int64_t dim = layout_.shapes[layer].head_dim, half = dim / 2;
  const float* a = tables_[layer].pages + page % kPagesAStep * dim;
  const float* b = tables_[layer].steps + page / kPagesAStep * dim;
  for (int64_t i = 0; i < half; ++i) {
    out[i] = a[i] * b[i] - a[half + i] * b[half + i];
    out[half + i] = a[half + i] * b[i] + a[i] * b[half + i];
  }
}

// Some layers at once, since a decomposition runs on one thread.
Status LowRankCodec::find_bases(const QueryEnergy& queries, const ForEachPage& for_each_page) {
  std::vector<int> todo;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].rank != 0) todo.push_back(static_cast<int>(i));
  }
  const int64_t n_todo = static_cast<int64_t>(todo.size());
  for (int64_t begin = 0; begin < n_todo; begin += at_once(n_todo, pool_.size())) {
    const int64_t n = at_once(n_todo - begin, pool_.size());
    TIERKV_RETURN_IF_ERROR(
        find_bases_of(std::span(todo).subspan(begin, n), queries, for_each_page));
  }
  return {};
}

Status LowRankCodec::find_bases_of(std::span<const int> layers, const QueryEnergy& queries,
                                   const ForEachPage& for_each_page) {
  std::vector<Buffer> grams;
  std::vector<int64_t> n_rows;
  for (const int layer : layers) {
    TIERKV_ASSIGN_OR_RETURN(Buffer gram, Buffer::allocate(budget_, MemoryKind::kScratch,
                                                          gram_bytes(layers_[layer].width())));
    TIERKV_ASSIGN_OR_RETURN(const int64_t n, gather_gram(layer, for_each_page, gram.as<float>()));
    grams.push_back(std::move(gram));
    n_rows.push_back(n);
  }
  std::vector<Status> outcome(layers.size());
  pool_.parallel_for(static_cast<int64_t>(layers.size()), [&](int64_t i, int) {
    outcome[i] = find_basis(layers[i],
                            {.gram = grams[i].as<float>(),
                             .width = layers_[layers[i]].width(),
                             .head_dim = layers_[layers[i]].head_dim,
                             .n_rows = n_rows[i]},
                            queries);
  });
  for (const Status& status : outcome) TIERKV_RETURN_IF_ERROR(status);
  return {};
}

Status LowRankCodec::find_basis(int layer, const LowRankGram& gram, const QueryEnergy& queries) {
  LowRankLayer& found = layers_[layer];
  const std::vector<float> scales =
      choose_low_rank_scales(gram, queries.columns(layer, found.pairing));
  found.v_scale = scales.back();
  for (int64_t i = 0; i < gram.width / 4; ++i) {
    const int64_t half = gram.head_dim / 2;
    k_scales_[layer][i] = scales[i / half * gram.head_dim + i % half];
  }
  return find_low_rank_basis(gram, scales, found.rank, budget_, const_cast<uint16_t*>(found.w),
                             spectra_[layer]);
}

// Sums over the rows of all pages; returns how many rows there are.
Result<int64_t> LowRankCodec::gather_gram(int layer, const ForEachPage& for_each_page,
                                          float* gram) {
  const int64_t width = layers_[layer].width();
  int64_t n_rows = 0;
  TIERKV_RETURN_IF_ERROR(for_each_page(layer, [&](int64_t page, const std::byte* exact_layer) {
    gather(layer, page, exact_layer);
    pool_.parallel_for(width / kRankStep, [&](int64_t task, int) {
      kernels_.low_rank->add_gram(rows(), width, task * kRankStep, (task + 1) * kRankStep, gram);
    });
    n_rows += kPageTokens;
  }));
  return n_rows;
}

// A page's rows x of a layer.
void LowRankCodec::gather(int layer, int64_t page, const std::byte* exact_layer) {
  const LowRankLayer& low_rank = layers_[layer];
  float angles[kMostLowRankHeadDim];
  page_angles(layer, page, angles);
  const int64_t block_bytes = exact_block_bytes(low_rank.head_dim);
  pool_.parallel_for(low_rank.n_kv_heads, [&](int64_t head, int) {
    kernels_.low_rank->gather(low_rank,
                              reinterpret_cast<const uint16_t*>(exact_layer + head * block_bytes),
                              static_cast<int>(head), angles, rows());
  });
}

void LowRankCodec::encode(int layer, int64_t page, const std::byte* exact_layer, std::byte* block) {
  constexpr int kTaskTokens = 16;
  gather(layer, page, exact_layer);
  pool_.parallel_for(kPageTokens / kTaskTokens, [&](int64_t task, int thread) {
    const int first = static_cast<int>(task) * kTaskTokens;
    kernels_.low_rank->encode(layers_[layer], rows(), first, first + kTaskTokens, block,
                              scratch_.data() + thread * thread_bytes_);
  });
}

}  // namespace tierkv
