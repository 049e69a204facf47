#include "model/weights.h"

#include <algorithm>

#include "base/carve.h"
#include "kernels/dequantize.h"

namespace tierkv {
namespace {

// One tensor to load: a matrix to pack, or a vector to keep as float32.
struct Item {
  const GgufTensor* tensor;
  PackedMatrix* matrix;
  const float** vector;

  uint64_t bytes() const {
    return matrix != nullptr ? packed_matrix_bytes(tensor->type, tensor->n_rows(), tensor->n_cols())
                             : align64(tensor->n_cols() * sizeof(float));
  }
};

// Every tensor the spec uses, with where it goes. Shapes were checked by read_model_spec.
std::vector<Item> list_items(const GgufFile& file, const ModelSpec& spec, Weights& weights) {
  std::vector<Item> items;
  const auto matrix = [&](const std::string& name, PackedMatrix& to) {
    if (const GgufTensor* t = file.find_tensor(name)) items.push_back({t, &to, nullptr});
  };
  const auto vector = [&](const std::string& name, const float*& to) {
    if (const GgufTensor* t = file.find_tensor(name)) items.push_back({t, nullptr, &to});
  };
  matrix("token_embd.weight", weights.token_embd);
  matrix("output.weight", weights.output);
  vector("output_norm.weight", weights.output_norm);
  vector("rope_freqs.weight", weights.rope_freqs);
  weights.layers.resize(spec.n_layers);
  for (int64_t i = 0; i < spec.n_layers; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    LayerWeights& layer = weights.layers[i];
    vector(block + "attn_norm.weight", layer.attn_norm);
    matrix(block + "attn_q.weight", layer.attn_q);
    matrix(block + "attn_k.weight", layer.attn_k);
    matrix(block + "attn_v.weight", layer.attn_v);
    vector(block + "attn_q.bias", layer.attn_q_bias);
    vector(block + "attn_k.bias", layer.attn_k_bias);
    vector(block + "attn_v.bias", layer.attn_v_bias);
    if (spec.qk_norm) {
      vector(block + "attn_q_norm.weight", layer.attn_q_norm);
      vector(block + "attn_k_norm.weight", layer.attn_k_norm);
    }
    matrix(block + "attn_output.weight", layer.attn_output);
    vector(block + "ffn_norm.weight", layer.ffn_norm);
    matrix(block + "ffn_gate.weight", layer.ffn_gate);
    matrix(block + "ffn_up.weight", layer.ffn_up);
    matrix(block + "ffn_down.weight", layer.ffn_down);
    if (spec.post_norms) {
      vector(block + "post_attention_norm.weight", layer.post_attention_norm);
      vector(block + "post_ffw_norm.weight", layer.post_ffw_norm);
    }
  }
  return items;
}

uint64_t total_bytes(const std::vector<Item>& items) {
  uint64_t total = 0;
  for (const Item& item : items) total += item.bytes();
  return total;
}

class Loader {
 public:
  Loader(const GgufFile& file, ThreadPool& pool, Buffer slice)
      : file_(file), pool_(pool), slice_(std::move(slice)) {}

  Status load(const Item& item, std::byte* to) {
    const Status status = item.matrix != nullptr ? pack(*item.tensor, *item.matrix, to)
                                                 : widen(*item.tensor, *item.vector, to);
    file_.file().drop_cache(item.tensor->offset, item.tensor->bytes);
    return status.with_context("loading " + item.tensor->name);
  }

 private:
  // As many panels at a time as the slice holds.
  Status pack(const GgufTensor& tensor, PackedMatrix& matrix, std::byte* to) {
    matrix = {tensor.type, static_cast<int64_t>(tensor.n_rows()),
              static_cast<int64_t>(tensor.n_cols()), to};
    const uint64_t row_bytes = tensor.row_bytes();
    const uint64_t panel_bytes = packed_panel_bytes(tensor.type, matrix.n_cols);
    const int64_t panels_at_once = slice_.size() / (row_bytes * kPanelRows);
    for (int64_t panel = 0; panel < matrix.n_panels(); panel += panels_at_once) {
      const int64_t row = panel * kPanelRows;
      const int64_t n_rows = std::min(panels_at_once * kPanelRows, matrix.n_rows - row);
      TIERKV_RETURN_IF_ERROR(file_.file().read_at(tensor.offset + row * row_bytes,
                                                  {slice_.data(), n_rows * row_bytes}));
      pool_.parallel_for((n_rows + kPanelRows - 1) / kPanelRows, [&](int64_t i, int) {
        pack_panel(tensor.type, slice_.data() + i * kPanelRows * row_bytes,
                   std::min<int64_t>(kPanelRows, n_rows - i * kPanelRows), matrix.n_cols,
                   to + (panel + i) * panel_bytes);
      });
    }
    return {};
  }

  Status widen(const GgufTensor& tensor, const float*& vector, std::byte* to) {
    TIERKV_RETURN_IF_ERROR(file_.file().read_at(tensor.offset, {slice_.data(), tensor.bytes}));
    dequantize(tensor.type, slice_.data(), tensor.n_cols(), reinterpret_cast<float*>(to));
    vector = reinterpret_cast<const float*>(to);
    return {};
  }

  const GgufFile& file_;
  ThreadPool& pool_;
  Buffer slice_;
};

// A slice that holds the largest panel and the largest vector, and kLoadSliceBytes.
uint64_t slice_bytes(const std::vector<Item>& items) {
  uint64_t bytes = Weights::kLoadSliceBytes;
  for (const Item& item : items) {
    const uint64_t least =
        item.matrix != nullptr ? item.tensor->row_bytes() * kPanelRows : item.tensor->bytes;
    bytes = std::max(bytes, least);
  }
  return bytes;
}

}  // namespace

uint64_t Weights::resident_bytes(const GgufFile& file, const ModelSpec& spec) {
  Weights unused;
  return buffer_footprint(total_bytes(list_items(file, spec, unused)));
}

Result<Weights> Weights::load(const GgufFile& file, const ModelSpec& spec, MemoryBudget& budget,
                              ThreadPool& pool, const LoadProgress& progress) {
  Weights weights;
  const std::vector<Item> items = list_items(file, spec, weights);
  const uint64_t total = total_bytes(items);
  TIERKV_ASSIGN_OR_RETURN(weights.memory_,
                          Buffer::allocate(budget, MemoryKind::kWeights, total, true));
  TIERKV_ASSIGN_OR_RETURN(Buffer slice,
                          Buffer::allocate(budget, MemoryKind::kScratch, slice_bytes(items)));
  Loader loader(file, pool, std::move(slice));
  uint64_t done = 0;
  for (const Item& item : items) {
    TIERKV_RETURN_IF_ERROR(loader.load(item, weights.memory_.data() + done));
    done += item.bytes();
    if (progress && !progress(done, total)) return cancelled("loading the model was cancelled");
  }
  if (spec.tied_embeddings) weights.output = weights.token_embd;
  return weights;
}

}  // namespace tierkv
