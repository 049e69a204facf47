// A decode step that reads only some of Tier-2: every flash page is met through its copy first; of
// the extents that this shows to matter the originals then take the copies' place. States are those
// of attend_few(), merged in the same order: with all extents read the result is its result, to the
// bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kv/attention_call.h"

namespace tierkv {
namespace {

// What the states of all splits know of one KV head's rows: [split][plain, packed][row].
class Masses {
 public:
  Masses(size_t n_splits, int64_t n_rows)
      : n_rows_(static_cast<size_t>(n_rows)), max_(2 * n_splits * n_rows_, kNoScore) {
    sum_.resize(max_.size());
  }
  void set(size_t split, size_t kind, const SplitState& state) {
    std::copy_n(state.max, n_rows_, &max_[(2 * split + kind) * n_rows_]);
    std::copy_n(state.sum, n_rows_, &sum_[(2 * split + kind) * n_rows_]);
  }
  // Of each split's packed pages: mass times largest weight, mean over the rows.
  std::vector<double> weights() const {
    std::vector<double> weights(max_.size() / (2 * n_rows_));
    for (size_t row = 0; row < n_rows_; ++row) {
      double top = kNoScore, total = 0;
      for (size_t i = row; i < max_.size(); i += n_rows_) top = std::max<double>(top, max_[i]);
      for (size_t i = row; i < max_.size(); i += n_rows_)
        total += sum_[i] * std::exp(max_[i] - top);
      for (size_t split = 0; split < weights.size(); ++split) {
        const size_t i = (2 * split + 1) * n_rows_ + row;
        const double largest = std::exp(max_[i] - top) / total;
        weights[split] += largest * largest * sum_[i] / static_cast<double>(n_rows_);
      }
    }
    return weights;
  }

 private:
  size_t n_rows_;
  std::vector<float> max_, sum_;
};

}  // namespace

Status TieredAttention::attend_selective(const Call& call, SelectiveRead& rule) {
  start_packed(call);
  std::vector<Split> splits = splits_of(call);
  const std::vector<int64_t> chosen = judge(call, splits, rule);
  call.pages.choose_extents(call.layer, chosen);
  const bool all_are_there = splits.size() <= most_splits(call);
  for (Split& split : splits) {
    split.reads = std::binary_search(chosen.begin(), chosen.end(), split.extent);
  }
  TIERKV_RETURN_IF_ERROR(all_are_there ? replace_states(call, splits)
                                       : attend_splits(call, splits));
  if (call.is_packed()) merge_packed(call);
  return {};
}

// Chooses the extents that are to be read, ascending, by the states of all splits with flash pages
// taken from their copies. These states stay in their slots if there is room for all.
std::vector<int64_t> TieredAttention::judge(const Call& call, std::vector<Split>& splits,
                                            SelectiveRead& rule) {
  std::vector<Masses> masses(static_cast<size_t>(call.shape.n_kv_heads),
                             Masses(splits.size(), call.head_rows()));
  const size_t wave = most_splits(call);
  for (size_t begin = 0; begin < splits.size(); begin += wave) {
    std::vector<Split> ready;
    for (size_t i = begin; i < std::min(begin + wave, splits.size()); ++i) {
      splits[i].slot = static_cast<int64_t>(i - begin);
      if (call.has_copies(splits[i])) ready.push_back(splits[i]);
    }
    form_states(call, ready);
    for (const Split& split : ready) {
      for (size_t head = 0; head < masses.size(); ++head) {
        const int64_t state = 2 * (split.slot * call.shape.n_kv_heads + static_cast<int64_t>(head));
        const size_t at = begin + static_cast<size_t>(split.slot);
        masses[head].set(at, 0, call.split_state(state));
        if (call.is_packed()) masses[head].set(at, 1, call.split_state(state + 1));
      }
    }
  }
  std::vector<double> effects(splits.size());  // of splits
  for (size_t head = 0; head < masses.size(); ++head) {
    const std::vector<double> weights = masses[head].weights();
    const double weight = rule.weight(call.layer, static_cast<int>(head));
    for (size_t i = 0; i < splits.size(); ++i) effects[i] += weight * weights[i];
  }
  return choose(call, splits, effects, rule);
}

// From the effects of splits to extents: those with a page that has no copy are always read.
std::vector<int64_t> TieredAttention::choose(const Call& call, std::span<const Split> splits,
                                             std::span<const double> effects, SelectiveRead& rule) {
  constexpr double kAlways = std::numeric_limits<double>::infinity();
  std::vector<int64_t> extents, chosen;
  std::vector<double> of_extents;
  for (size_t i = 0; i < splits.size(); ++i) {
    if (splits[i].extent < 0) continue;
    if (extents.empty() || extents.back() != splits[i].extent) {
      extents.push_back(splits[i].extent);
      of_extents.push_back(0);
    }
    of_extents.back() += call.has_copies(splits[i]) ? effects[i] : kAlways;
  }
  for (const size_t i : rule.choose(call.layer, of_extents)) chosen.push_back(extents[i]);
  return chosen;
}

// As attend_splits(), where judge() has left the states of all splits that aren't read.
Status TieredAttention::replace_states(const Call& call, std::vector<Split>& splits) {
  size_t n_read = 0;
  for (size_t begin = 0; begin < splits.size();) {
    size_t end = begin + 1;
    if (splits[begin].reads) {
      while (end < splits.size() && splits[end].extent == splits[begin].extent) ++end;
      TIERKV_ASSIGN_OR_RETURN(const std::byte* payload,
                              call.pages.read_extent(call.layer, n_read++));
      for (size_t i = begin; i < end; ++i) splits[i].payload = payload;
      form_states(call, std::span(splits).subspan(begin, end - begin));
    }
    begin = end;
  }
  merge_states(call, splits.size());
  return {};
}

}  // namespace tierkv
