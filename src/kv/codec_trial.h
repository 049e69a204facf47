// What a codec does to chosen KV heads, tried on a cache whose pages are exact: their blocks in a
// run of pages are replaced by what decoding the encoded block gives, and put back afterwards. K
// and V apart, so that what each costs can be measured (docs/decisions.md, "Calibration").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "kv/tiered_cache.h"
#include "plan/plan.h"

namespace tierkv {

// K or V of a codec may have 0 bits here: that side stays exact.
struct TrialHead {
  int layer = 0;
  int kv_head = 0;
  CodecId codec;
};

class CodecTrial {
 public:
  // `cache` must outlive the trial. Until restore() it may be read, grown and rewound, but not
  // below the pages that were replaced, and not settled.
  CodecTrial(TieredCache& cache, MemoryBudget& budget) : cache_(cache), budget_(budget) {}
  ~CodecTrial() { restore(); }
  CodecTrial(const CodecTrial&) = delete;
  CodecTrial& operator=(const CodecTrial&) = delete;

  // Replaces pages [page_begin, page_end) of the heads, each of a full-attention layer and given
  // once. Fails, and changes nothing, unless all these pages are exact, in RAM, and full.
  Status replace(std::span<const TrialHead> heads, int64_t page_begin, int64_t page_end);
  // Puts back what the last replace() replaced.
  void restore();

 private:
  Status check(std::span<const TrialHead> heads, int64_t page_begin, int64_t page_end) const;
  // block(head, page, saved): over all blocks that are replaced; `saved` is the place of its copy.
  template <typename Fn>
  void for_blocks(Fn&& fn);

  TieredCache& cache_;
  MemoryBudget& budget_;
  std::vector<TrialHead> heads_;
  int64_t page_begin_ = 0, page_end_ = 0;
  uint64_t block_bytes_ = 0;  // of the largest head
  Buffer saved_, scratch_;
};

}  // namespace tierkv
