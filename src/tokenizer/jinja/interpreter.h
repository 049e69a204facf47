// Runs a parsed template: interpreter.cc its tags, evaluator.cc its expressions.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/frame.h"

namespace tierkv::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// The text that `block` gives with `variables` and the global functions in sight; `now` is what
// strftime_now sees. Faults are thrown as Error, with the line that was being run.
std::string render(const Block& block, const Variables& variables, const Limits& limits,
                   const std::tm& now);

using FramePtr = std::shared_ptr<Frame>;

// Why a block ended.
enum class Flow { kEnd, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(const Limits& limits, const std::tm& now);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  std::string run(const Block& block, const Variables& variables);

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

  void emit(std::string_view text);
  // What `block` writes, in the scope at hand. `flow`, if wanted, says how it ended.
  std::string capture(const Block& block, Flow* flow = nullptr);

  // --- statements

  Flow execute(const Block& block);
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

}  // namespace tierkv::jinja
