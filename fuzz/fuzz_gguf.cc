// Any bytes as a GGUF file: parsing and every getter must neither crash, hang nor take memory out
// of proportion, and what is accepted must keep the promises of gguf.h.
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/memory_file.h"
#include "gguf/gguf.h"

namespace tierkv {
namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

void touch_scalars(const GgufFile& file, const std::string& key) {
  (void)file.get_uint(key);
  (void)file.get_uint(key, 1);
  (void)file.get_float(key);
  (void)file.get_float(key, 1);
  (void)file.get_bool(key, true);
  (void)file.get_string(key);
  (void)file.get_string(key, "");
  require(file.find(key) != nullptr);
}

void touch_metadata(GgufFile& file) {
  std::vector<std::string> keys{"no such key"};
  for (const auto& [key, value] : file.metadata()) {
    touch_scalars(file, key);
    keys.push_back(key);
  }
  for (const std::string& key : keys) {
    (void)file.take_strings(key);
    (void)file.take_floats(key);
    (void)file.take_integers(key);
  }
}

void touch_tensors(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    require(tensor.offset <= file.file_bytes());
    require(tensor.bytes <= file.file_bytes() - tensor.offset);
    require(tensor.n_cols() != 0 && tensor.n_rows() != 0);
    require(tensor.row_bytes() * tensor.n_rows() == tensor.bytes);
    require(file.find_tensor(tensor.name) == &tensor);
    std::vector<std::byte> row(tensor.row_bytes());
    require(file.file().read_at(tensor.offset, row).ok());
  }
}

}  // namespace
}  // namespace tierkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  auto file = tierkv::GgufFile::parse(
      std::make_unique<tierkv::MemoryFile>(std::vector<std::byte>(bytes, bytes + size), "fuzz"));
  if (!file.ok()) {
    tierkv::require(file.status().message().starts_with("fuzz: "));
    return 0;
  }
  tierkv::touch_tensors(*file);
  tierkv::touch_metadata(*file);
  return 0;
}
