#include "kv/selective_read.h"

#include <algorithm>
#include <numeric>

namespace tierkv {

std::vector<size_t> worth_reading(std::span<const double> effects, double allowance) {
  std::vector<size_t> order(effects.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!(allowance > 0)) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return effects[a] > effects[b]; });
  double left_alone = 0;
  while (!order.empty() && left_alone + effects[order.back()] <= allowance) {
    left_alone += effects[order.back()];
    order.pop_back();
  }
  std::sort(order.begin(), order.end());
  return order;
}

SelectiveRead::SelectiveRead(std::vector<std::vector<double>> head_kld, double kld_budget)
    : head_kld_(std::move(head_kld)), kld_budget_(kld_budget) {}

std::vector<size_t> SelectiveRead::choose(int layer, std::span<const double> effects) {
  const auto later = head_kld_.begin() + layer;
  const auto has_heads = [](const std::vector<double>& heads) { return !heads.empty(); };
  if (std::none_of(head_kld_.begin(), later, has_heads)) left_ = kld_budget_;
  const auto n_layers = std::count_if(later, head_kld_.end(), has_heads);
  std::vector<size_t> chosen = worth_reading(effects, left_ / static_cast<double>(n_layers));
  auto next = chosen.begin();
  for (size_t i = 0; i < effects.size(); ++i) {
    if (next != chosen.end() && *next == i) {
      ++next;
    } else {
      left_ -= effects[i];
    }
  }
  n_judged_ += static_cast<int64_t>(effects.size());
  n_skipped_ += static_cast<int64_t>(effects.size() - chosen.size());
  return chosen;
}

}  // namespace tierkv
