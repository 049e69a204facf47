// What a template's code can see: the variables of one scope, and those of the scopes around it.
// A macro keeps the frame that it was defined in, which may hold the macro: FrameKeeper breaks such
// circles when the render ends.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace tierkv::jinja {

class Frame {
 public:
  explicit Frame(std::shared_ptr<Frame> parent) : parent_(std::move(parent)) {}

  const Value* find(const std::string& name) const {
    for (const Frame* frame = this; frame != nullptr; frame = frame->parent_.get()) {
      const auto it = frame->variables_.find(name);
      if (it != frame->variables_.end()) return &it->second;
    }
    return nullptr;
  }
  void set(const std::string& name, Value value) { variables_[name] = std::move(value); }
  void clear() { variables_.clear(); }
  const std::shared_ptr<Frame>& parent() const { return parent_; }

 private:
  std::unordered_map<std::string, Value> variables_;
  std::shared_ptr<Frame> parent_;
};

// The frames that macros hold, kept until the end so that no destructor runs through a chain of
// them.
class FrameKeeper {
 public:
  FrameKeeper() = default;
  FrameKeeper(const FrameKeeper&) = delete;
  FrameKeeper& operator=(const FrameKeeper&) = delete;
  ~FrameKeeper() {
    for (const auto& kept : frames_) {
      for (std::shared_ptr<Frame> frame = kept; frame != nullptr; frame = frame->parent()) {
        frame->clear();
      }
    }
  }
  void keep(std::shared_ptr<Frame> frame) { frames_.push_back(std::move(frame)); }

 private:
  std::vector<std::shared_ptr<Frame>> frames_;
};

}  // namespace tierkv::jinja
