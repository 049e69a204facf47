#include "kv/kv_layout.h"

#include <algorithm>

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
  CompressedLayout compressed;
  for (const KvLayerShape& shape : layout.shapes) {
    compressed.layers.emplace_back(static_cast<size_t>(shape.n_kv_heads));
  }
  auto codec = codecs.begin();
  for (const int layer : layout.full_layers) {
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

uint64_t compressed_block_bytes(const KvLayerShape& shape, CodecId codec) {
  return codec == CodecId{} ? exact_block_bytes(shape.head_dim)
                            : rotated_block_bytes({codec.k_bits, codec.v_bits}, shape.head_dim);
}

}  // namespace tierkv
