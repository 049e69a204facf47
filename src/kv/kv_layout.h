// Where each layer's KV lies inside a page, in RAM and in an extent. A page is kPageTokens tokens
// of all layers of one group: the full-attention layers, whose pages move between tiers, and the
// window-only layers, whose pages are dropped once no query can see them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/low_rank.h"
#include "kernels/rotated.h"
#include "kv/kv_cache.h"
#include "plan/plan.h"

namespace tierkv {

struct KvLayout {
  // Pages of one attention split: partial states are formed over these and merged in order,
  // whatever the tiers and the number of threads. An extent is a whole number of splits.
  static constexpr int64_t kSplitPages = 4;
  static constexpr uint64_t kMinExtentBytes = 256 << 10;

  std::vector<KvLayerShape> shapes;
  std::vector<int> full_layers;           // indices into shapes
  std::vector<uint64_t> exact_offset;     // of a layer in its group's exact page, bytes
  uint64_t full_page_bytes = 0;           // exact, all full-attention layers
  uint64_t window_page_bytes = 0;         // exact, all window-only layers
  uint64_t largest_layer_page_bytes = 0;  // of the full-attention layers
  int64_t max_window = 0;                 // tokens
  int64_t extent_pages = 0;

  bool is_full(int layer) const { return shapes[layer].window == 0; }
  int64_t kv_width(int layer) const {  // K and V of all KV heads, dimensions
    return 2 * shapes[layer].n_kv_heads * shapes[layer].head_dim;
  }
  uint64_t layer_page_bytes(int layer) const {
    return static_cast<uint64_t>(shapes[layer].n_kv_heads *
                                 exact_block_bytes(shapes[layer].head_dim));
  }
  // Where a layer is in full_layers; their number if it is not there.
  size_t full_place(int layer) const {
    return static_cast<size_t>(std::find(full_layers.begin(), full_layers.end(), layer) -
                               full_layers.begin());
  }
  // Most pages of the window-only layers that a chunk of n_tokens can need at once.
  int64_t window_pages(int64_t chunk_tokens) const {
    return window_page_bytes == 0 ? 0 : (max_window + chunk_tokens) / kPageTokens + 2;
  }
  uint64_t extent_payload_bytes(int layer) const { return extent_pages * layer_page_bytes(layer); }
};

// Window-only layers only drop pages when every token after `length` is out of their reach, so a
// shape whose window exceeds the context is best given as full (window 0).
KvLayout make_kv_layout(std::vector<KvLayerShape> shapes);

// FlashLayout::payload_bytes: of one extent, for each layer of the model.
std::vector<uint64_t> flash_payload_bytes(const KvLayout& layout);

// How the low-rank codec keeps a layer; rank 0: it does not.
struct LowRankChoice {
  int64_t rank = 0;
  int latent_bits = 0;
  friend bool operator==(const LowRankChoice&, const LowRankChoice&) = default;
};

// A Tier-1 page: the codec and the place of each KV head's block in each full-attention layer.
// Codec 0/0 keeps a head's float16 block as it is: the planner may spend bytes so on a head that
// others pay for. The heads of a low-rank layer share one block, which begins where the first one's
// would.
struct CompressedHead {
  RotatedFormat format;      // {0,0}: float16, or part of a low-rank block
  uint64_t offset = 0;       // of the block in the page, bytes
  uint64_t block_bytes = 0;  // 0 in a low-rank layer
  friend bool operator==(const CompressedHead&, const CompressedHead&) = default;
};
struct CompressedLayout {
  std::vector<std::vector<CompressedHead>> layers;  // [layer of the model][KV head]
  std::vector<LowRankChoice> low_rank;              // [layer of the model]
  uint64_t page_bytes = 0;
  friend bool operator==(const CompressedLayout&, const CompressedLayout&) = default;
};

// `codecs`: one per KV head of each full-attention layer, layer by layer (Plan::codecs), or none
// while there is no Tier-1. Low-rank codecs are those that check_low_rank() accepts.
CompressedLayout make_compressed_layout(const KvLayout& layout, const std::vector<CodecId>& codecs);
// With each low-rank layer's own rank, one choice per layer of the model.
CompressedLayout make_compressed_layout(const KvLayout& layout, const std::vector<CodecId>& codecs,
                                        std::vector<LowRankChoice> low_rank);

// Per layer of the model what low-rank codecs choose; `codecs` as above, or one for all heads.
std::vector<LowRankChoice> low_rank_choices(const KvLayout& layout,
                                            const std::vector<CodecId>& codecs);
// The most that a layer's rank may become where the choice, a share of its width, is `nominal`:
// ranks are shared out among layers (kv/low_rank_ranks.h).
int64_t most_low_rank(int64_t nominal, int64_t width);
// Of all layers, whatever is shared out.
int64_t largest_rank(const KvLayout& layout, const std::vector<LowRankChoice>& choices);
// OK unless a layer's KV heads don't agree on a low-rank codec, or are of a shape it can't take.
Status check_low_rank(const KvLayout& layout, const std::vector<CodecId>& codecs);

// Bytes of one KV head's Tier-1 block under a codec; of low rank, the head's share of the layer's.
uint64_t compressed_block_bytes(const KvLayerShape& shape, CodecId codec);

}  // namespace tierkv
