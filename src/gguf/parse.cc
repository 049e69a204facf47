// GgufFile::parse: the fixed start of a GGUF file, then metadata, then tensors.
#include <bit>
#include <cstring>
#include <new>

#include "gguf/gguf.h"
#include "gguf/metadata.h"
#include "gguf/reader.h"
#include "gguf/tensors.h"

namespace tierkv {
namespace {

constexpr uint64_t kDefaultAlignment = 32, kMinAlignment = 8, kMaxAlignment = 1 << 20;

struct Header {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
};

// What people open by mistake, by its first four bytes.
struct ForeignMagic {
  char magic[5];
  const char* what;
};
constexpr ForeignMagic kForeignMagics[] = {
    {"FUGG", "a big-endian GGUF file; get or convert a little-endian one"},
    {"lmgg", "an old GGML file, from before GGUF; get the model as GGUF"},
    {"fmgg", "an old GGMF file, from before GGUF; get the model as GGUF"},
    {"tjgg", "an old GGJT file, from before GGUF; get the model as GGUF"},
    {"algg", "an old GGLA adapter, from before GGUF; get it as GGUF"},
    {"GGML", "an old GGML file, from before GGUF; get the model as GGUF"},
    {"GGMF", "an old GGMF file, from before GGUF; get the model as GGUF"},
    {"GGJT", "an old GGJT file, from before GGUF; get the model as GGUF"},
    {"PK\3\4", "a PyTorch or zip file; get the model as GGUF"},
    {"vers", "perhaps a Git LFS pointer and not the model itself; run git lfs pull"},
};

Status check_magic(GgufReader& reader) {
  if (reader.file_bytes() == 0) return corrupt("the file is empty");
  std::byte raw[4];
  TIERKV_RETURN_IF_ERROR(reader.read(raw).with_context("the magic number"));
  if (std::memcmp(raw, "GGUF", 4) == 0) return {};
  for (const ForeignMagic& foreign : kForeignMagics) {
    if (std::memcmp(raw, foreign.magic, 4) == 0) {
      return unsupported(std::string("not a GGUF file but ") + foreign.what);
    }
  }
  const std::string_view seen(reinterpret_cast<const char*>(raw), 4);
  return corrupt("not a GGUF file: it begins with " + quoted(seen) + " instead of 'GGUF'");
}

Status check_version(uint32_t version) {
  if (version == 2 || version == 3) return {};
  if (version == 1) return unsupported("GGUF version 1; convert the model again, to version 3");
  if ((version & 0xffff) == 0 && version != 0) {
    return unsupported("a big-endian GGUF file; get or convert a little-endian one");
  }
  return unsupported(format("GGUF version %u; this program reads 2 and 3", version));
}

Status check_count(const GgufReader& reader, const char* what, uint64_t count, uint64_t min_bytes) {
  if (count <= reader.remaining() / min_bytes) return {};
  return corrupt(
      format("claims %llu %s, more than its %llu bytes can hold: the file is truncated "
             "or damaged, fetch it again",
             llu(count), what, llu(reader.file_bytes())));
}

Result<uint64_t> find_alignment(const GgufMetadata& metadata) {
  const auto entry = metadata.find("general.alignment");
  if (entry == metadata.end()) return kDefaultAlignment;
  const auto* alignment = std::get_if<uint64_t>(&entry->second);
  if (alignment == nullptr) {
    return corrupt(std::string("general.alignment is ") + value_kind_name(entry->second) +
                   ", not an unsigned integer");
  }
  if (!std::has_single_bit(*alignment) || *alignment < kMinAlignment ||
      *alignment > kMaxAlignment) {
    return corrupt(format("general.alignment is %llu, not a power of two from %llu to %llu",
                          llu(*alignment), llu(kMinAlignment), llu(kMaxAlignment)));
  }
  return *alignment;
}

Status read_header(GgufReader& reader, Header& header) {
  TIERKV_RETURN_IF_ERROR(check_magic(reader));
  std::byte raw[4 + 8 + 8];
  TIERKV_RETURN_IF_ERROR(reader.read(raw).with_context("the version and counts"));
  header.version = GgufReader::from_little_endian<uint32_t>(raw);
  const auto n_tensors = GgufReader::from_little_endian<uint64_t>(raw + 4);
  const auto n_metadata = GgufReader::from_little_endian<uint64_t>(raw + 12);
  TIERKV_RETURN_IF_ERROR(check_version(header.version));
  TIERKV_RETURN_IF_ERROR(check_count(reader, "metadata entries", n_metadata, kMinMetadataBytes));
  TIERKV_RETURN_IF_ERROR(check_count(reader, "tensors", n_tensors, kMinTensorBytes));
  TIERKV_ASSIGN_OR_RETURN(header.metadata, read_metadata(reader, n_metadata));
  TIERKV_ASSIGN_OR_RETURN(const uint64_t alignment, find_alignment(header.metadata));
  TIERKV_ASSIGN_OR_RETURN(header.tensors, read_tensors(reader, n_tensors, alignment));
  const uint64_t data_start = (reader.position() + alignment - 1) / alignment * alignment;
  return place_tensors(header.tensors, data_start, reader.file_bytes());
}

}  // namespace

Result<GgufFile> GgufFile::open(FileSystem& file_system, const std::string& path) {
  TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<File> file, file_system.open_read(path));
  return parse(std::move(file));
}

Result<GgufFile> GgufFile::parse(std::unique_ptr<File> file) {
  const std::string name = file->name();
  try {
    GgufFile gguf;
    TIERKV_ASSIGN_OR_RETURN(gguf.file_bytes_, file->size());
    Header header;
    GgufReader reader(*file, gguf.file_bytes_);
    TIERKV_RETURN_IF_ERROR(read_header(reader, header).with_context(name));
    for (const GgufTensor& tensor : header.tensors) {
      if (!gguf.tensor_index_.try_emplace(tensor.name, gguf.tensor_index_.size()).second) {
        return corrupt(name + ": tensor " + quoted(tensor.name) + " appears twice");
      }
    }
    gguf.file_ = std::move(file);
    gguf.version_ = header.version;
    gguf.metadata_ = std::move(header.metadata);
    gguf.tensors_ = std::move(header.tensors);
    return gguf;
  } catch (const std::bad_alloc&) {
    return resource_exhausted(name + ": not enough memory for the file's header");
  }
}

}  // namespace tierkv
