// Making stores: the file and its header; the backends are in flash_pool.cc and flash_uring.cc.
#include "kv/flash_store.h"

#include <array>
#include <utility>

#include "kv/flash_format.h"
#include "kv/flash_requests.h"

namespace tierkv {
namespace {

Result<std::unique_ptr<FlashStore>> start_backend(std::unique_ptr<File> file,
                                                  FlashGeometry geometry,
                                                  const FlashStoreOptions& options) {
  if (options.backend != FlashBackend::kPool) {
    Result<std::unique_ptr<FlashStore>> store = start_flash_uring(file, geometry, options);
    if (store.ok() || options.backend == FlashBackend::kUring) return store;
  }
  return start_flash_pool(std::move(file), std::move(geometry), options);
}

}  // namespace

const char* flash_backend_name(FlashBackend backend) {
  switch (backend) {
    case FlashBackend::kAuto:
      return "auto";
    case FlashBackend::kUring:
      return "uring";
    case FlashBackend::kPool:
      return "pool";
  }
  return "unknown";
}

Result<std::unique_ptr<FlashStore>> FlashStore::create(FileSystem& file_system,
                                                       const std::string& directory,
                                                       const FlashLayout& layout,
                                                       const FlashStoreOptions& options) {
  TIERKV_RETURN_IF_ERROR(FlashGeometry::create(layout).status());  // before a file is made
  TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<File> file, file_system.create_scratch(directory));
  Result<std::unique_ptr<FlashStore>> store = create(std::move(file), layout, options);
  if (store.ok()) return store;
  return store.status().with_context("preparing the flash store in " + directory);
}

Result<std::unique_ptr<FlashStore>> FlashStore::create(std::unique_ptr<File> file,
                                                       const FlashLayout& layout,
                                                       const FlashStoreOptions& options) {
  TIERKV_ASSIGN_OR_RETURN(FlashGeometry geometry, FlashGeometry::create(layout));
  alignas(kFlashBlock) std::array<std::byte, kFlashBlock> block;
  encode_file_header(layout, block);
  TIERKV_RETURN_IF_ERROR(file->write_at(0, block));
  return start_backend(std::move(file), std::move(geometry), options);
}

Result<FlashLayout> FlashStore::read_layout(File& file) {
  alignas(kFlashBlock) std::array<std::byte, kFlashBlock> block;
  TIERKV_RETURN_IF_ERROR(file.read_at(0, block));
  Result<FlashLayout> layout = decode_file_header(block);
  return layout.ok() ? layout : layout.status().with_context(file.name());
}

Result<std::unique_ptr<FlashStore>> FlashStore::open(std::unique_ptr<File> file,
                                                     const FlashLayout& layout,
                                                     const FlashStoreOptions& options) {
  TIERKV_ASSIGN_OR_RETURN(const FlashLayout found, read_layout(*file));
  TIERKV_RETURN_IF_ERROR(check_same_layout(found, layout).with_context(file->name()));
  TIERKV_ASSIGN_OR_RETURN(FlashGeometry geometry, FlashGeometry::create(layout));
  return start_backend(std::move(file), std::move(geometry), options);
}

}  // namespace tierkv
