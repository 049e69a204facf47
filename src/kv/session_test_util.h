// What the tests of saved sessions share: a disk that remembers what was done to it and can be cut
// off at any moment, and caches whose K and V depend on the token alone, so that a cache is right
// when it answers as one that read the same tokens.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "kv/session_file.h"
#include "kv/tiered_cache.h"

namespace tierkv {

// One thing that was done to a disk.
struct DiskAction {
  enum Kind { kWrite, kDiscard, kSync } kind;
  uint64_t offset;
  std::vector<std::byte> data;  // kDiscard: zeros
};

class LoggedDisk : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open_read(const std::string&) override {
    return not_found("no such file");
  }
  Result<std::unique_ptr<File>> create_scratch(const std::string&) override {
    return unsupported("no scratch files here");
  }
  Result<std::unique_ptr<File>> open_exclusive(const std::string&) override { return open(); }
  Result<std::unique_ptr<File>> create_exclusive(const std::string&) override {
    content.clear();
    return open();
  }

  std::vector<DiskAction> log;
  std::vector<std::byte> content;

 private:
  class Handle : public File {
   public:
    explicit Handle(LoggedDisk& disk) : disk_(disk) {}
    Status read_at(uint64_t offset, std::span<std::byte> out) override {
      const std::lock_guard lock(disk_.mutex_);
      if (offset + out.size() > disk_.content.size()) return corrupt("the disk is truncated");
      std::memcpy(out.data(), disk_.content.data() + offset, out.size());
      return {};
    }
    Status write_at(uint64_t offset, std::span<const std::byte> data) override {
      disk_.act({DiskAction::kWrite, offset, {data.begin(), data.end()}});
      return {};
    }
    Status sync() override {
      disk_.act({DiskAction::kSync, 0, {}});
      return {};
    }
    void discard(uint64_t offset, uint64_t length) override {
      disk_.act({DiskAction::kDiscard, offset, std::vector<std::byte>(length)});
    }
    Status publish() override { return {}; }
    Result<uint64_t> size() override {
      const std::lock_guard lock(disk_.mutex_);
      return disk_.content.size();
    }
    void drop_cache(uint64_t, uint64_t) override {}
    const std::string& name() const override { return disk_.name_; }

   private:
    LoggedDisk& disk_;
  };

  std::unique_ptr<File> open() { return std::make_unique<Handle>(*this); }
  void act(DiskAction action) {
    const std::lock_guard lock(mutex_);
    apply(action, action.data.size(), content);
    log.push_back(std::move(action));
  }

 public:
  // The first `bytes` of an action, done to a disk's content.
  static void apply(const DiskAction& action, size_t bytes, std::vector<std::byte>& content) {
    if (bytes == 0) return;
    content.resize(std::max<size_t>(content.size(), action.offset + bytes));
    std::copy_n(action.data.begin(), bytes,
                content.begin() + static_cast<ptrdiff_t>(action.offset));
  }

 private:
  std::mutex mutex_;
  const std::string name_ = "a session";
};

inline std::vector<KvLayerShape> session_shapes(int n_full, int n_window) {
  std::vector<KvLayerShape> shapes(static_cast<size_t>(n_full + n_window));
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].n_heads = 2;
    shapes[i].n_kv_heads = 2;
    shapes[i].head_dim = 32;
    shapes[i].scale = 1 / std::sqrt(32.0f);
    shapes[i].window = static_cast<int>(i) < n_window ? 100 : 0;
  }
  return shapes;
}

constexpr int64_t kSessionVocab = 1 << 20;
constexpr int64_t kSessionTokens = 4096;

inline SessionShape session_shape(const KvLayout& layout, int n_areas = 4) {
  SessionShape shape;
  shape.flash.model_hash = 42;
  shape.flash.payload_bytes = flash_payload_bytes(layout);
  shape.model = "a model";
  shape.n_vocab = kSessionVocab;
  shape.max_tokens = kSessionTokens;
  shape.extent_pages = layout.extent_pages;
  shape.window_page_bytes = layout.window_page_bytes;
  shape.max_window_pages = layout.window_pages(256);
  shape.n_areas = n_areas;
  shape.flash.max_extents = shape.slots_needed();
  return shape;
}

// A cache on a session's file, or on none.
class SessionRig {
 public:
  SessionRig(const KvLayout& layout, SessionFile* session, uint64_t ram = MemoryBudget::kUnlimited)
      : layout_(layout), budget_(ram), pool_(1) {
    FlashOptions flash;
    flash.session = session;
    flash.max_tokens = kSessionTokens;
    auto made = TieredCache::create(layout_, budget_, kernels_for(available_isas().back()), pool_,
                                    256, flash);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) cache = std::move(*made);
  }

  // Reads tokens[from, to), `chunk` at once. The last layer's outputs go to `out`.
  Status feed(const std::vector<int32_t>& tokens, int64_t from, int64_t to, int64_t chunk,
              std::vector<float>* out = nullptr) {
    for (int64_t at = from; at < to; at += chunk) {
      TIERKV_RETURN_IF_ERROR(
          feed_chunk({tokens.data() + at, static_cast<size_t>(std::min(chunk, to - at))}, out));
    }
    return {};
  }

  std::unique_ptr<TieredCache> cache;

 private:
  Status feed_chunk(std::span<const int32_t> tokens, std::vector<float>* out) {
    TIERKV_RETURN_IF_ERROR(cache->begin(static_cast<int64_t>(tokens.size())));
    for (size_t layer = 0; layer < layout_.shapes.size(); ++layer) {
      const KvLayerShape& s = layout_.shapes[layer];
      std::vector<float> q, k, v;
      for (const int32_t token : tokens) {
        std::minstd_rand random(static_cast<uint32_t>(token) * 31 + 7 +
                                static_cast<uint32_t>(layer));
        std::uniform_real_distribution<float> number(-1, 1);
        for (int i = 0; i < s.n_heads * s.head_dim; ++i) q.push_back(number(random));
        for (int i = 0; i < s.n_kv_heads * s.head_dim; ++i) k.push_back(number(random));
        for (int i = 0; i < s.n_kv_heads * s.head_dim; ++i) v.push_back(number(random));
      }
      std::vector<float> result(q.size());
      const Status status =
          cache->attend(static_cast<int>(layer), q.data(), k.data(), v.data(), {}, result.data());
      if (!status.ok()) {
        cache->abandon();
        return status;
      }
      if (out != nullptr) out->insert(out->end(), result.begin(), result.end());
    }
    return cache->commit();
  }

  const KvLayout& layout_;
  MemoryBudget budget_;
  ThreadPool pool_;
};

inline std::vector<int32_t> counted(int64_t n, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// What a cache that has read `tokens` answers to three more.
inline std::vector<float> answer(SessionRig& rig, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> all = tokens;
  for (const int32_t next : {900001, 900002, 900003}) all.push_back(next);
  std::vector<float> out;
  const int64_t n = static_cast<int64_t>(tokens.size());
  EXPECT_TRUE(rig.feed(all, n, n + 3, 1, &out).ok());
  return out;
}

// The same from a cache that has just read them.
inline std::vector<float> expected_answer(const KvLayout& layout,
                                          const std::vector<int32_t>& tokens) {
  SessionRig rig(layout, nullptr);
  EXPECT_TRUE(rig.feed(tokens, 0, static_cast<int64_t>(tokens.size()), 200).ok());
  return answer(rig, tokens);
}

inline std::vector<int32_t> first_tokens(const SessionPoint& point, int64_t n) {
  return {point.tokens.begin(), point.tokens.begin() + n};
}

inline SessionPoint point_of(const std::vector<int32_t>& tokens, int64_t n) {
  SessionPoint point;
  point.tokens = {tokens.begin(), tokens.begin() + n};
  return point;
}

}  // namespace tierkv
