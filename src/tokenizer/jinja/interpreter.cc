#include "tokenizer/jinja/interpreter.h"

#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/loop.h"

namespace tierkv::jinja {

std::string render(const Block& block, const Variables& variables, const Limits& limits,
                   const std::tm& now) {
  return Interpreter(limits, now).run(block, variables);
}

Interpreter::Interpreter(const Limits& limits, const std::tm& now)
    : runtime_{Meter(limits), now, {}},
      max_output_bytes_(static_cast<uint64_t>(std::max<int64_t>(limits.max_output_bytes, 0))),
      frame_(std::make_shared<Frame>(nullptr)) {}

Interpreter::~Interpreter() {
  for (const auto& space : runtime_.namespaces) space->clear();
}

std::string Interpreter::run(const Block& block, const Variables& variables) {
  for (const auto& [name, value] : global_functions()) frame_->set(name, value);
  for (const auto& [name, value] : variables) frame_->set(name, value);
  try {
    return capture(block);
  } catch (Error& error) {
    if (error.line == 0) error.line = line_;
    throw;
  }
}

// --- output

void Interpreter::emit(std::string_view text) {
  meter().allocate(text.size());
  if (text.size() > max_output_bytes_ - out_->size()) {
    fail(StatusCode::kResourceExhausted, "the template's output is longer than allowed");
  }
  *out_ += text;
}

std::string Interpreter::capture(const Block& block, Flow* flow) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const Flow end = execute(block);
  out_ = outer;
  if (flow != nullptr) *flow = end;
  return text;
}

namespace {

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

}  // namespace

// --- statements

Flow Interpreter::execute(const Block& block) {
  const DepthGuard guard(meter());
  for (const Stmt& stmt : block) {
    const Flow flow = execute(stmt);
    if (flow != Flow::kEnd) return flow;
  }
  return Flow::kEnd;
}

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

}  // namespace tierkv::jinja
