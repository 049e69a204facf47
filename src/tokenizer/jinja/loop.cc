#include "tokenizer/jinja/loop.h"

namespace tierkv::jinja {

namespace {

// loop.cycle(a, b, ...): the arguments take turns.
class Cycle : public Object {
 public:
  explicit Cycle(size_t index) : index_(index) {}
  std::string describe(Meter&) const override { return "<method cycle of loop>"; }
  const char* type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Runtime&, const CallArgs& args) override {
    if (args.positional.empty()) fail("loop.cycle needs values to choose from");
    return args.positional[index_ % args.positional.size()];
  }

 private:
  size_t index_;
};

}  // namespace

std::string Loop::describe(Meter&) const {
  return format("<LoopContext %zu/%zu>", index_ + 1, items_->items.size());
}

std::optional<Value> Loop::attribute(const std::string& name) const {
  const size_t n = items_->items.size();
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "revindex") return Value(n - index_);
  if (name == "revindex0") return Value(n - index_ - 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == n);
  if (name == "length") return Value(n);
  if (name == "depth") return Value(1);
  if (name == "depth0") return Value(0);
  if (name == "cycle") return Value(std::shared_ptr<Object>(std::make_shared<Cycle>(index_)));
  if (name == "previtem") {
    return index_ > 0 ? items_->items[index_ - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index_ + 1 < n ? items_->items[index_ + 1] : Value::undefined("there is no next item");
  }
  return std::nullopt;
}

}  // namespace tierkv::jinja
