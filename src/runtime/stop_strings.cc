#include "runtime/stop_strings.h"

#include <algorithm>
#include <utility>

namespace tierkv {
namespace {

// Bytes at the end of `text` that are a beginning of `stop`, and not all of it.
size_t begun(std::string_view text, std::string_view stop) {
  size_t n = std::min(text.size(), stop.size() - 1);
  while (n > 0 && text.substr(text.size() - n) != stop.substr(0, n)) --n;
  return n;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> texts) : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const std::string& text) { return text.empty(); });
}

std::string StopStrings::push(std::string_view text) {
  if (found_) return "";
  std::string all = std::exchange(held_, "");
  all += text;
  size_t end = std::string::npos, held = 0;
  for (const std::string& stop : texts_) {
    end = std::min(end, all.find(stop));
    held = std::max(held, begun(all, stop));
  }
  found_ = end != std::string::npos;
  if (found_) {
    all.resize(end);
  } else {
    held_ = all.substr(all.size() - held);
    all.resize(all.size() - held);
  }
  return all;
}

std::string StopStrings::flush() { return std::exchange(held_, ""); }

}  // namespace tierkv
