// The loop that byte-level BPE and SentencePiece's BPE share: begin with small symbols, and join
// the best adjacent pair again and again; of equally good pairs the leftmost. O(n log n) in the
// number of symbols: pairs wait in a heap, and a pair whose parts have changed since is recognised
// and dropped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tokenizer/vocab.h"

namespace tierkv {

struct MergeSymbol {
  int32_t previous, next;  // -1: none
  uint32_t start, length;  // bytes; length 0: has become part of its left neighbour
  TokenId id;              // kNoToken: no token is spelt like this
};

struct MergeStep {
  uint32_t priority;  // the least is done first
  TokenId id;         // what the pair becomes
};

class Merger {
 public:
  void clear() { symbols_.clear(); }

  void add(uint32_t length, TokenId id) {
    const int32_t at = static_cast<int32_t>(symbols_.size());
    uint32_t start = 0;
    if (at > 0) {
      symbols_.back().next = at;
      start = symbols_.back().start + symbols_.back().length;
    }
    symbols_.push_back({at - 1, -1, start, length, id});
  }

  // `rate(left, right)`, two MergeSymbols, gives an optional MergeStep.
  template <typename Rate>
  void run(Rate&& rate) {
    heap_.clear();
    for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols_.size()); ++i) consider(i, rate);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Pair pair = heap_.back();
      heap_.pop_back();
      if (!is_current(pair)) continue;
      join(pair);
      const MergeSymbol& joined = symbols_[pair.left()];
      if (joined.previous >= 0 && consider(joined.previous, rate)) sift_up();
      if (consider(pair.left(), rate)) sift_up();
    }
  }

  // Calls visit(symbol) for what is left, from left to right.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[i].next) visit(symbols_[i]);
  }

 private:
  struct Pair {
    uint64_t order;   // priority, then the left symbol's index
    uint32_t length;  // of both together, when the pair was made
    TokenId id;

    int32_t left() const { return static_cast<int32_t>(order & UINT32_MAX); }
    bool operator>(const Pair& other) const { return order > other.order; }
  };

  template <typename Rate>
  bool consider(int32_t left, Rate&& rate) {
    const MergeSymbol& a = symbols_[left];
    if (a.next < 0) return false;
    const MergeSymbol& b = symbols_[a.next];
    const std::optional<MergeStep> step = rate(a, b);
    if (!step) return false;
    heap_.push_back({uint64_t{step->priority} << 32 | static_cast<uint32_t>(left),
                     a.length + b.length, step->id});
    return true;
  }

  void sift_up() { std::push_heap(heap_.begin(), heap_.end(), std::greater<>()); }

  // Symbols only grow, so the pair is the same exactly if its length is.
  bool is_current(const Pair& pair) const {
    const MergeSymbol& a = symbols_[pair.left()];
    return a.length > 0 && a.next >= 0 && a.length + symbols_[a.next].length == pair.length;
  }

  void join(const Pair& pair) {
    MergeSymbol& a = symbols_[pair.left()];
    MergeSymbol& b = symbols_[a.next];
    a.length = pair.length;
    a.id = pair.id;
    a.next = b.next;
    b.length = 0;
    if (a.next >= 0) symbols_[a.next].previous = pair.left();
  }

  std::vector<MergeSymbol> symbols_;
  std::vector<Pair> heap_;
};

}  // namespace tierkv
