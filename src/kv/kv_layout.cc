#include "kv/kv_layout.h"

#include <algorithm>

#include "base/carve.h"

namespace tierkv {

KvLayout make_kv_layout(std::vector<KvLayerShape> shapes) {
  KvLayout layout;
  layout.shapes = std::move(shapes);
  uint64_t smallest_layer_page = UINT64_MAX;
  for (int layer = 0; layer < static_cast<int>(layout.shapes.size()); ++layer) {
    const uint64_t bytes = layout.layer_page_bytes(layer);
    uint64_t& page = layout.is_full(layer) ? layout.full_page_bytes : layout.window_page_bytes;
    layout.exact_offset.push_back(page);
    page += bytes;
    if (layout.is_full(layer)) {
      layout.full_layers.push_back(layer);
      layout.largest_layer_page_bytes = std::max(layout.largest_layer_page_bytes, bytes);
      smallest_layer_page = std::min(smallest_layer_page, bytes);
    } else {
      layout.max_window = std::max(layout.max_window, layout.shapes[layer].window);
    }
  }
  layout.extent_pages = KvLayout::kSplitPages;
  while (!layout.full_layers.empty() &&
         static_cast<uint64_t>(layout.extent_pages) * smallest_layer_page <
             KvLayout::kMinExtentBytes) {
    layout.extent_pages += KvLayout::kSplitPages;
  }
  return layout;
}

std::vector<uint64_t> flash_payload_bytes(const KvLayout& layout) {
  std::vector<uint64_t> bytes(layout.shapes.size());
  for (const int layer : layout.full_layers) bytes[layer] = layout.extent_payload_bytes(layer);
  return bytes;
}

CompressedLayout make_compressed_layout(const KvLayout& layout,
                                        const std::vector<CodecId>& codecs) {
  return make_compressed_layout(layout, codecs, low_rank_choices(layout, codecs));
}

CompressedLayout make_compressed_layout(const KvLayout& layout, const std::vector<CodecId>& codecs,
                                        std::vector<LowRankChoice> low_rank) {
  CompressedLayout compressed;
  for (const KvLayerShape& shape : layout.shapes) {
    compressed.layers.emplace_back(static_cast<size_t>(shape.n_kv_heads));
  }
  compressed.low_rank = std::move(low_rank);
  auto codec = codecs.begin();
  for (const int layer : layout.full_layers) {
    if (const LowRankChoice& choice = compressed.low_rank[layer]; choice.rank != 0) {
      for (CompressedHead& head : compressed.layers[layer]) head.offset = compressed.page_bytes;
      compressed.page_bytes += low_rank_block_bytes(choice.rank, choice.latent_bits);
      codec += layout.shapes[layer].n_kv_heads;
      continue;
    }
    for (CompressedHead& head : compressed.layers[layer]) {
      if (codec == codecs.end()) return compressed;
      head.format = {codec->k_bits, codec->v_bits};
      head.offset = compressed.page_bytes;
      head.block_bytes = compressed_block_bytes(layout.shapes[layer], *codec++);
      compressed.page_bytes += head.block_bytes;
    }
  }
  return compressed;
}

std::vector<LowRankChoice> low_rank_choices(const KvLayout& layout,
                                            const std::vector<CodecId>& codecs) {
  std::vector<LowRankChoice> choices(layout.shapes.size());
  size_t head = 0;  // the layer's first
  for (const int layer : layout.full_layers) {
    if (head >= codecs.size()) break;
    const KvLayerShape& shape = layout.shapes[layer];
    const CodecId codec = codecs[head];
    if (codec.is_low_rank()) {
      choices[layer] = {low_rank_of(shape.n_kv_heads, shape.head_dim, codec.rank_permille),
                        codec.latent_bits};
    }
    if (codecs.size() > 1) head += shape.n_kv_heads;
  }
  return choices;
}

int64_t most_low_rank(int64_t nominal, int64_t width) {
  return std::min(width, (nominal + nominal / 2 + kRankStep - 1) / kRankStep * kRankStep);
}

int64_t largest_rank(const KvLayout& layout, const std::vector<LowRankChoice>& choices) {
  int64_t largest = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const int64_t width = layout.kv_width(static_cast<int>(i));
    largest = std::max(largest, most_low_rank(choices[i].rank, width));
  }
  return largest;
}

Status check_low_rank(const KvLayout& layout, const std::vector<CodecId>& codecs) {
  size_t head = 0;
  for (const int layer : layout.full_layers) {
    const KvLayerShape& shape = layout.shapes[layer];
    for (int i = 0; i < shape.n_kv_heads && head + i < codecs.size(); ++i) {
      const bool either = codecs[head].is_low_rank() || codecs[head + i].is_low_rank();
      if (either && codecs[head + i] != codecs[head]) {
        return invalid_argument("the KV heads of a layer share a low-rank codec or have none");
      }
      if (either && !low_rank_head_dim_valid(shape.head_dim)) {
        return unsupported(format("no low-rank codec for heads of %d dimensions", shape.head_dim));
      }
    }
    head += shape.n_kv_heads;
  }
  return {};
}

uint64_t compressed_block_bytes(const KvLayerShape& shape, CodecId codec) {
  if (codec.is_low_rank()) {
    const int64_t rank = low_rank_of(shape.n_kv_heads, shape.head_dim, codec.rank_permille);
    const uint64_t n_heads = static_cast<uint64_t>(shape.n_kv_heads);
    return align64((low_rank_block_bytes(rank, codec.latent_bits) + n_heads - 1) / n_heads);
  }
  return codec == CodecId{} ? exact_block_bytes(shape.head_dim)
                            : rotated_block_bytes({codec.k_bits, codec.v_bits}, shape.head_dim);
}

}  // namespace tierkv
