// The variable `loop` inside a for loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tokenizer/jinja/value.h"

namespace tierkv::jinja {

class Loop : public Object {
 public:
  explicit Loop(std::shared_ptr<const List> items) : items_(std::move(items)) {}
  void advance_to(size_t index) { index_ = index; }

  std::string describe(Meter&) const override;
  const char* type_name() const override { return "loop"; }
  std::optional<Value> attribute(const std::string& name) const override;
  int depth() const override { return items_->depth + 1; }

 private:
  std::shared_ptr<const List> items_;
  size_t index_ = 0;
};

}  // namespace tierkv::jinja
