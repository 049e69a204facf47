#include "plan/hull.h"

#include <algorithm>

namespace tierkv {
namespace {

double saved_bytes(const CodecOption& from, const CodecOption& to) {
  return static_cast<double>(from.page_bytes - to.page_bytes);
}

// Whether going a -> b pays more KLD per byte than b -> c: then b lies above the line from a to c.
bool above_line(const CodecOption& a, const CodecOption& b, const CodecOption& c) {
  return (b.kld - a.kld) * saved_bytes(b, c) > (c.kld - b.kld) * saved_bytes(a, b);
}

// Most bytes first; among equals the best first.
bool precedes(const CodecOption& a, const CodecOption& b) {
  if (a.page_bytes != b.page_bytes) return a.page_bytes > b.page_bytes;
  if (a.kld != b.kld) return a.kld < b.kld;
  return a.seconds_per_token < b.seconds_per_token;
}

}  // namespace

CodecOption exact_option(const PlanHead& head) {
  return {{}, head.exact_page_bytes, 0, head.exact_seconds_per_token};
}

std::vector<CodecOption> lower_hull(const PlanHead& head) {
  const CodecOption exact = exact_option(head);
  std::vector<CodecOption> points{exact};
  for (const CodecOption& option : head.options) {
    if (option.page_bytes < exact.page_bytes) points.push_back(option);
  }
  std::stable_sort(points.begin(), points.end(), precedes);
  std::vector<CodecOption> hull;
  for (const CodecOption& point : points) {
    if (!hull.empty() && hull.back().page_bytes == point.page_bytes) continue;
    // What has more bytes and no less KLD is never better.
    while (!hull.empty() && hull.back().kld >= point.kld && hull.back().kld > 0) hull.pop_back();
    while (hull.size() >= 2 && above_line(hull[hull.size() - 2], hull.back(), point)) {
      hull.pop_back();
    }
    hull.push_back(point);
  }
  return hull;
}

std::vector<int> hull_steps(const std::vector<std::vector<CodecOption>>& hulls) {
  struct Step {
    int head;
    double price;  // KLD per byte saved
  };
  std::vector<Step> steps;
  for (size_t head = 0; head < hulls.size(); ++head) {
    const std::vector<CodecOption>& hull = hulls[head];
    for (size_t i = 1; i < hull.size(); ++i) {
      const double price = (hull[i].kld - hull[i - 1].kld) / saved_bytes(hull[i - 1], hull[i]);
      steps.push_back({static_cast<int>(head), price});
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.price < b.price; });
  std::vector<int> order;
  order.reserve(steps.size());
  for (const Step& step : steps) order.push_back(step.head);
  return order;
}

}  // namespace tierkv
