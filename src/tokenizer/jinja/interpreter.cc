#include "tokenizer/jinja/interpreter.h"

#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/frame.h"
#include "tokenizer/jinja/loop.h"

namespace tierkv::jinja {

namespace {

using FramePtr = std::shared_ptr<Frame>;

// Why a block ended.
enum class Flow { kEnd, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(const Limits& limits, const std::tm& now)
      : runtime_{Meter(limits), now, {}},
        max_output_bytes_(static_cast<uint64_t>(std::max<int64_t>(limits.max_output_bytes, 0))),
        frame_(std::make_shared<Frame>(nullptr)) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter() {
    for (const auto& space : runtime_.namespaces) space->clear();
  }

  std::string run(const Block& block, const Variables& variables) {
    for (const auto& [name, value] : global_functions()) frame_->set(name, value);
    for (const auto& [name, value] : variables) frame_->set(name, value);
    try {
      return capture(block);
    } catch (Error& error) {
      if (error.line == 0) error.line = line_;
      throw;
    }
  }

  // Runs a macro's (or a call block's) body with `args`, among the variables of `home`.
  Value call_macro(const Stmt& macro, const FramePtr& home, const CallArgs& args);

 private:
  // A scope for as long as it lives.
  class Scope {
   public:
    Scope(Interpreter& interpreter, const FramePtr& parent)
        : interpreter_(interpreter), outer_(interpreter.frame_) {
      interpreter.frame_ = std::make_shared<Frame>(parent);
    }
    explicit Scope(Interpreter& interpreter) : Scope(interpreter, interpreter.frame_) {}
    ~Scope() { interpreter_.frame_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interpreter& interpreter_;
    const FramePtr outer_;
  };

  Meter& meter() { return runtime_.meter; }

  // --- output

  void emit(std::string_view text) {
    meter().allocate(text.size());
    if (text.size() > max_output_bytes_ - out_->size()) {
      fail(StatusCode::kResourceExhausted, "the template's output is longer than allowed");
    }
    *out_ += text;
  }

  // What `block` writes, in the scope at hand. `flow`, if wanted, says how it ended.
  std::string capture(const Block& block, Flow* flow = nullptr) {
    std::string text;
    std::string* const outer = std::exchange(out_, &text);
    const Flow end = execute(block);
    out_ = outer;
    if (flow != nullptr) *flow = end;
    return text;
  }

  // --- statements

  Flow execute(const Block& block) {
    const DepthGuard guard(meter());
    for (const Stmt& stmt : block) {
      const Flow flow = execute(stmt);
      if (flow != Flow::kEnd) return flow;
    }
    return Flow::kEnd;
  }

  Flow execute(const Stmt& stmt);
  Flow print(const Stmt& stmt);
  Flow branch(const Stmt& stmt);
  Flow loop(const Stmt& stmt);
  Flow set(const Stmt& stmt);
  Flow filtered_block(const Stmt& stmt);
  Flow with(const Stmt& stmt);
  Flow define_macro(const Stmt& stmt);
  Flow call_block(const Stmt& stmt);
  Flow generation(const Stmt& stmt);

  std::shared_ptr<const List> loop_items(const Stmt& stmt);
  void assign(const Expr& target, const Value& value);
  Value make_macro(const Stmt& stmt);
  Value bind_parameter(const Binding& parameter, size_t index, const CallArgs& args);
  void bind_rest(const Stmt& macro, const CallArgs& args);

  // --- expressions

  Value evaluate(const Expr& expr);
  Value evaluate_node(const Expr& expr);
  Value name(const Expr& expr);
  Value sequence(const Expr& expr);
  Value dict(const Expr& expr);
  Value slice_of(const Expr& expr);
  Value call(const Expr& expr, const Value* caller = nullptr);
  CallArgs arguments(const Expr& expr);
  Value filter(const Expr& expr);
  Value test(const Expr& expr);
  Value plus(const Expr& expr);
  Value arithmetic_chain(const Expr& expr);
  Value comparison_chain(const Expr& expr);
  Value logical(const Expr& expr);
  Value concatenation(const Expr& expr);
  Value conditional(const Expr& expr);

  Runtime runtime_;
  const uint64_t max_output_bytes_;
  FrameKeeper kept_frames_;
  FramePtr frame_;
  std::string* out_ = nullptr;
  Value block_text_;  // for the kBlockText that is evaluated next
  int line_ = 1;
};

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Stmt& stmt, FramePtr home)
      : interpreter_(interpreter), stmt_(stmt), home_(std::move(home)) {}
  std::string describe(Meter&) const override { return "<Macro '" + stmt_.text + "'>"; }
  const char* type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value call(Runtime&, const CallArgs& args) override {
    return interpreter_.call_macro(stmt_, home_, args);
  }

 private:
  Interpreter& interpreter_;
  const Stmt& stmt_;
  const FramePtr home_;
};

// --- statements

Flow Interpreter::execute(const Stmt& stmt) {
  meter().step();
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      emit(stmt.text);
      return Flow::kEnd;
    case StmtKind::kPrint:
      return print(stmt);
    case StmtKind::kIf:
      return branch(stmt);
    case StmtKind::kFor:
      return loop(stmt);
    case StmtKind::kSet:
      return set(stmt);
    case StmtKind::kSetBlock:
    case StmtKind::kFilter:
      return filtered_block(stmt);
    case StmtKind::kWith:
      return with(stmt);
    case StmtKind::kMacro:
      return define_macro(stmt);
    case StmtKind::kCall:
      return call_block(stmt);
    case StmtKind::kGeneration:
      return generation(stmt);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kEnd;
}

Flow Interpreter::print(const Stmt& stmt) {
  const Value value = evaluate(*stmt.value);
  if (const std::string* text = value.string()) {
    emit(*text);
  } else {
    emit(to_text(meter(), value));
  }
  return Flow::kEnd;
}

Flow Interpreter::branch(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr || evaluate(*branch.condition).truthy()) {
      return execute(branch.body);
    }
  }
  return Flow::kEnd;
}

// The items that the loop's "if" leaves; it sees the loop's variables, but no `loop`.
std::shared_ptr<const List> Interpreter::loop_items(const Stmt& stmt) {
  auto all = iterate(meter(), evaluate(*stmt.value));
  if (stmt.condition == nullptr) return all;
  std::vector<Value> items;
  for (const Value& item : all->items) {
    const Scope scope(*this);
    frame_->set("loop", Value::undefined("a loop's if has no 'loop'"));
    assign(*stmt.target, item);
    if (evaluate(*stmt.condition).truthy()) items.push_back(item);
  }
  return make_list(meter(), std::move(items)).shared_list();
}

Flow Interpreter::loop(const Stmt& stmt) {
  const auto list = loop_items(stmt);
  if (list->items.empty()) {
    const Scope scope(*this);
    return execute(stmt.otherwise);
  }
  const auto state = std::make_shared<Loop>(list);
  for (size_t i = 0; i < list->items.size(); ++i) {
    meter().step();
    const Scope scope(*this);
    state->advance_to(i);
    frame_->set("loop", Value(std::shared_ptr<Object>(state)));
    assign(*stmt.target, list->items[i]);
    if (execute(stmt.body) == Flow::kBreak) break;
  }
  return Flow::kEnd;
}

void Interpreter::assign(const Expr& target, const Value& value) {
  meter().step();
  if (target.kind == ExprKind::kName) return frame_->set(target.name, value);
  if (target.kind == ExprKind::kTuple) {
    const auto parts = iterate(meter(), value);
    if (parts->items.size() != target.children.size()) {
      fail(format("can't unpack %zu values into %zu names", parts->items.size(),
                  target.children.size()));
    }
    for (size_t i = 0; i < parts->items.size(); ++i) assign(*target.children[i], parts->items[i]);
    return;
  }
  const Value object = name(*target.children[0]);
  auto* const space = dynamic_cast<Namespace*>(object.object());
  if (space == nullptr) fail("only a namespace's attributes can be set");
  space->set(target.name, value);
}

Flow Interpreter::set(const Stmt& stmt) {
  const Value value = evaluate(*stmt.value);
  assign(*stmt.target, value);
  return Flow::kEnd;
}

// {% filter ... %} and {% set x %}: a body whose text goes through filters.
Flow Interpreter::filtered_block(const Stmt& stmt) {
  Flow flow = Flow::kEnd;
  {
    const Scope scope(*this);
    block_text_ = Value(capture(stmt.body, &flow));
  }
  if (flow != Flow::kEnd) return flow;
  const Value value = evaluate(*stmt.value);
  if (stmt.kind == StmtKind::kSetBlock) {
    assign(*stmt.target, value);
  } else {
    emit(to_text(meter(), value));
  }
  return Flow::kEnd;
}

Flow Interpreter::with(const Stmt& stmt) {
  std::vector<Value> values;
  for (const Binding& binding : stmt.bindings) values.push_back(evaluate(*binding.value));
  const Scope scope(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.bindings[i].target, values[i]);
  return execute(stmt.body);
}

Value Interpreter::make_macro(const Stmt& stmt) {
  constexpr uint64_t kMacroBytes = 256;
  meter().allocate(kMacroBytes);
  kept_frames_.keep(frame_);
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(*this, stmt, frame_)));
}

Flow Interpreter::define_macro(const Stmt& stmt) {
  frame_->set(stmt.text, make_macro(stmt));
  return Flow::kEnd;
}

Flow Interpreter::call_block(const Stmt& stmt) {
  const Value caller = make_macro(stmt);
  emit(to_text(meter(), call(*stmt.value, &caller)));
  return Flow::kEnd;
}

Flow Interpreter::generation(const Stmt& stmt) {
  const Scope scope(*this);
  return execute(stmt.body);
}

// --- macros

Value Interpreter::bind_parameter(const Binding& parameter, size_t index, const CallArgs& args) {
  const std::string& name = parameter.target->name;
  const auto named = std::find_if(args.named.begin(), args.named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  const bool positional = index < args.positional.size();
  if (named != args.named.end() && positional) fail("a macro got '" + name + "' twice");
  if (positional) return args.positional[index];
  if (named != args.named.end()) return named->second;
  if (parameter.value != nullptr) return evaluate(*parameter.value);
  return Value::undefined("the parameter '" + name + "' was not given");
}

// Arguments that no parameter takes: varargs, kwargs and caller, if the macro speaks of them.
void Interpreter::bind_rest(const Stmt& macro, const CallArgs& args) {
  const size_t n = macro.bindings.size();
  std::vector<Value> varargs;
  for (size_t i = n; i < args.positional.size(); ++i) varargs.push_back(args.positional[i]);
  if (!varargs.empty() && !macro.uses_varargs) {
    fail(format("the macro '%s' takes at most %zu arguments", macro.text.c_str(), n));
  }
  if (macro.uses_varargs) frame_->set("varargs", make_list(meter(), std::move(varargs), true));
  Dict kwargs;
  if (macro.uses_caller) frame_->set("caller", Value::undefined("no caller is defined"));
  for (const auto& argument : args.named) {
    const std::string& name = argument.first;
    const bool taken = std::any_of(macro.bindings.begin(), macro.bindings.end(),
                                   [&](const Binding& b) { return b.target->name == name; });
    if (taken) continue;
    if (name == "caller" && macro.uses_caller) {
      frame_->set(name, argument.second);
    } else if (macro.uses_kwargs) {
      kwargs.set(Value(name), argument.second);
    } else {
      fail(format("the macro '%s' has no parameter '%s'", macro.text.c_str(), name.c_str()));
    }
  }
  if (macro.uses_kwargs) frame_->set("kwargs", make_dict(meter(), std::move(kwargs)));
}

Value Interpreter::call_macro(const Stmt& macro, const FramePtr& home, const CallArgs& args) {
  const DepthGuard guard(meter());
  const Scope scope(*this, home);
  bind_rest(macro, args);
  for (size_t i = 0; i < macro.bindings.size(); ++i) {
    const Binding& parameter = macro.bindings[i];
    frame_->set(parameter.target->name, bind_parameter(parameter, i, args));
  }
  return Value(capture(macro.body));
}

// --- expressions

Value Interpreter::evaluate(const Expr& expr) {
  const DepthGuard guard(meter());
  meter().step();
  line_ = expr.line;
  return evaluate_node(expr);
}

Value Interpreter::evaluate_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.value;
    case ExprKind::kName:
      return name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return sequence(expr);
    case ExprKind::kDict:
      return dict(expr);
    case ExprKind::kAttribute:
      return get_attribute(meter(), evaluate(*expr.children[0]), expr.name);
    case ExprKind::kItem: {
      const Value object = evaluate(*expr.children[0]);
      return get_item(meter(), object, evaluate(*expr.children[1]));
    }
    case ExprKind::kSlice:
      return slice_of(expr);
    case ExprKind::kCall:
      return call(expr);
    case ExprKind::kFilter:
      return filter(expr);
    case ExprKind::kTest:
      return test(expr);
    case ExprKind::kNot:
      return !evaluate(*expr.children[0]).truthy();
    case ExprKind::kNegate:
      return negate(evaluate(*expr.children[0]));
    case ExprKind::kPlus:
      return plus(expr);
    case ExprKind::kArithmetic:
      return arithmetic_chain(expr);
    case ExprKind::kComparison:
      return comparison_chain(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return logical(expr);
    case ExprKind::kConcat:
      return concatenation(expr);
    case ExprKind::kConditional:
      return conditional(expr);
    case ExprKind::kBlockText:
      return std::exchange(block_text_, Value());
  }
  return Value();
}

Value Interpreter::name(const Expr& expr) {
  if (const Value* value = frame_->find(expr.name)) return *value;
  meter().allocate(expr.name.size());
  return Value::undefined("'" + expr.name + "' is undefined");
}

Value Interpreter::sequence(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& child : expr.children) items.push_back(evaluate(*child));
  return make_list(meter(), std::move(items), expr.kind == ExprKind::kTuple);
}

Value Interpreter::dict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i]);
    if (key.string() != nullptr) meter().allocate(key.string()->size());
    dict.set(key, evaluate(*expr.children[i + 1]));
  }
  return make_dict(meter(), std::move(dict));
}

Value Interpreter::slice_of(const Expr& expr) {
  const Value object = evaluate(*expr.children[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExprPtr& bound = expr.children[i + 1];
    bounds[i] = bound == nullptr ? Value(None{}) : evaluate(*bound);
  }
  return slice(meter(), object, bounds[0], bounds[1], bounds[2]);
}

// The arguments of a call, a filter or a test; the first child is what they are applied to.
CallArgs Interpreter::arguments(const Expr& expr) {
  CallArgs args;
  for (size_t i = 1; i < expr.children.size(); ++i) {
    args.positional.push_back(evaluate(*expr.children[i]));
  }
  for (const auto& [name, value] : expr.named) args.named.emplace_back(name, evaluate(*value));
  return args;
}

Value Interpreter::call(const Expr& expr, const Value* caller) {
  const Value callee = evaluate(*expr.children[0]);
  CallArgs args = arguments(expr);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  line_ = expr.line;
  callee.require_defined();
  if (callee.object() == nullptr) fail(format("a %s can't be called", callee.type_name()));
  return callee.object()->call(runtime_, args);
}

Value Interpreter::filter(const Expr& expr) {
  const Value input = evaluate(*expr.children[0]);
  const CallArgs args = arguments(expr);
  line_ = expr.line;
  return find_filter(expr.name)(runtime_, input, args);
}

Value Interpreter::test(const Expr& expr) {
  const Value input = evaluate(*expr.children[0]);
  const CallArgs args = arguments(expr);
  line_ = expr.line;
  return find_test(expr.name)(runtime_, input, args);
}

Value Interpreter::plus(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  return arithmetic(meter(), Op::kMultiply, value.number() ? Value(1) : Value(None{}), value);
}

Value Interpreter::arithmetic_chain(const Expr& expr) {
  Value total = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value operand = evaluate(*expr.children[i + 1]);
    line_ = expr.line;
    total = arithmetic(meter(), expr.ops[i], total, operand);
  }
  return total;
}

Value Interpreter::comparison_chain(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    line_ = expr.line;
    if (!compare(meter(), expr.ops[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

// As in Python the operand that decides is the value.
Value Interpreter::logical(const Expr& expr) {
  const bool decisive = expr.kind == ExprKind::kOr;
  Value value;
  for (const ExprPtr& child : expr.children) {
    value = evaluate(*child);
    if (value.truthy() == decisive) break;
  }
  return value;
}

Value Interpreter::concatenation(const Expr& expr) {
  std::string text;
  for (const ExprPtr& child : expr.children) text += to_text(meter(), evaluate(*child));
  return text;
}

Value Interpreter::conditional(const Expr& expr) {
  const bool holds = evaluate(*expr.children[1]).truthy();
  if (holds) return evaluate(*expr.children[0]);
  if (expr.children[2] != nullptr) return evaluate(*expr.children[2]);
  return Value::undefined("an inline if is false and has no else");
}

}  // namespace

std::string render(const Block& block, const Variables& variables, const Limits& limits,
                   const std::tm& now) {
  return Interpreter(limits, now).run(block, variables);
}

}  // namespace tierkv::jinja
