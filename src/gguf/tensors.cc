#include "gguf/tensors.h"

#include <algorithm>
#include <string>

#include "gguf/metadata.h"

namespace tierkv {
namespace {

constexpr uint32_t kMaxDimensions = 4;
// A tensor, its entry in an index and the allocator's overhead; the name is counted twice.
constexpr uint64_t kTensorMemory = sizeof(GgufTensor) + 160;

// Types of other programs, so that a refusal can say what the file holds.
struct ForeignType {
  uint32_t number;
  const char* name;
};
constexpr ForeignType kForeignTypes[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
    {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"},  {40, "NVFP4"}, {41, "Q1_0"},
};

Status unknown_type(uint32_t number) {
  std::string ours;
  for (const TensorTypeInfo& info : kTensorTypes) ours += std::string(" ") + info.name;
  for (const ForeignType& foreign : kForeignTypes) {
    if (foreign.number != number) continue;
    return unsupported(
        format("has type %s, which this program cannot run; use a file with", foreign.name) + ours);
  }
  return unsupported(
      format("has unknown type %u: the file is damaged or newer than this program", number));
}

Status read_shape(GgufReader& reader, std::vector<uint64_t>& shape) {
  TIERKV_ASSIGN_OR_RETURN(const uint32_t n_dims, reader.number<uint32_t>());
  if (n_dims < 1 || n_dims > kMaxDimensions) {
    return corrupt(format("has %u dimensions, not 1 to %u", n_dims, kMaxDimensions));
  }
  TIERKV_ASSIGN_OR_RETURN(shape, (reader.numbers<uint64_t, uint64_t>(n_dims)));
  if (std::count(shape.begin(), shape.end(), uint64_t{0}) != 0)
    return corrupt("has a dimension of 0");
  return {};
}

// Elements fit int64, so that loops over them may be signed.
Result<uint64_t> count_elements(const std::vector<uint64_t>& shape) {
  uint64_t elements = 1;
  for (const uint64_t n : shape) {
    if (n > static_cast<uint64_t>(INT64_MAX) / elements)
      return corrupt("has more elements than 63 bits can count");
    elements *= n;
  }
  return elements;
}

Result<uint64_t> count_bytes(const TensorTypeInfo& info, const std::vector<uint64_t>& shape) {
  TIERKV_ASSIGN_OR_RETURN(const uint64_t elements, count_elements(shape));
  if (shape[0] % info.block != 0) {
    return corrupt(format("has rows of %llu elements, not a multiple of the %u of a %s block",
                          llu(shape[0]), info.block, info.name));
  }
  const uint64_t blocks = elements / info.block;
  if (blocks > static_cast<uint64_t>(INT64_MAX) / info.bytes)
    return corrupt("has more bytes than 63 bits can count");
  return blocks * info.bytes;
}

Status read_tensor(GgufReader& reader, uint64_t alignment, GgufTensor& tensor) {
  TIERKV_ASSIGN_OR_RETURN(tensor.name, reader.string(kMaxNameBytes));
  TIERKV_RETURN_IF_ERROR(reader.charge(kTensorMemory + tensor.name.size()));
  if (tensor.name.empty()) return corrupt("has an empty name");
  TIERKV_RETURN_IF_ERROR(read_shape(reader, tensor.shape));
  TIERKV_ASSIGN_OR_RETURN(const uint32_t type, reader.number<uint32_t>());
  TIERKV_ASSIGN_OR_RETURN(tensor.offset, reader.number<uint64_t>());
  const TensorTypeInfo* info = find_tensor_type(type);
  if (info == nullptr) return unknown_type(type);
  tensor.type = info->type;
  TIERKV_ASSIGN_OR_RETURN(tensor.bytes, count_bytes(*info, tensor.shape));
  if (tensor.offset % alignment != 0) {
    return corrupt(format("starts at offset %llu, not a multiple of the alignment %llu",
                          llu(tensor.offset), llu(alignment)));
  }
  return {};
}

Status overlap(const GgufTensor& a, const GgufTensor& b) {
  return corrupt("the data of tensors " + quoted(a.name) + " and " + quoted(b.name) +
                 " overlap: the file is damaged");
}

}  // namespace

Result<std::vector<GgufTensor>> read_tensors(GgufReader& reader, uint64_t count,
                                             uint64_t alignment) {
  std::vector<GgufTensor> tensors;
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    if (const Status status = read_tensor(reader, alignment, tensor); !status.ok()) {
      const std::string name = tensor.name.empty() ? "" : " " + quoted(tensor.name);
      return status.with_context(format("tensor %llu", llu(i)) + name);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Status place_tensors(std::vector<GgufTensor>& tensors, uint64_t data_start, uint64_t file_bytes) {
  std::vector<const GgufTensor*> by_offset;
  for (GgufTensor& tensor : tensors) {
    if (data_start > file_bytes || tensor.offset > file_bytes - data_start ||
        tensor.bytes > file_bytes - data_start - tensor.offset) {
      return corrupt("the data of tensor " + quoted(tensor.name) +
                     format(" (%llu bytes) runs past the end of the file: the file is truncated or "
                            "damaged, fetch it again",
                            llu(tensor.bytes)));
    }
    tensor.offset += data_start;
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor &a = *by_offset[i - 1], &b = *by_offset[i];
    if (b.offset - a.offset < a.bytes) return overlap(a, b);
  }
  return {};
}

}  // namespace tierkv
