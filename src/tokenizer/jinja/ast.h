// A parsed template. Trees are never deeper than Limits::max_depth, so recursion over them is safe;
// operators of one rank in a row are one node with many children for the same reason.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/value.h"

namespace tierkv::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kLiteral,     // value
  kName,        // name
  kList,        // [children...]
  kTuple,       // (children...)
  kDict,        // {child: child, ...}
  kAttribute,   // child.name
  kItem,        // child[child]
  kSlice,       // child[child:child:child], the last three may be null
  kCall,        // child(children..., named...)
  kFilter,      // child | name(children..., named...)
  kTest,        // child is name(children..., named...)
  kNot,         // not child
  kNegate,      // -child
  kPlus,        // +child
  kArithmetic,  // child op child op ..., from the left
  kComparison,  // child op child op ..., each with its neighbour, all must hold
  kAnd,
  kOr,           // children: the first that decides
  kConcat,       // child ~ child ~ ...
  kConditional,  // child if child else child, the last may be null
  kBlockText,    // what a filter block or a set block rendered
};

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<Op> ops;
};

struct Stmt;
using Block = std::vector<Stmt>;

enum class StmtKind {
  kText,        // text
  kPrint,       // {{ value }}
  kIf,          // branches; the one without a condition is the else
  kFor,         // for target in value if condition: body; else: otherwise
  kSet,         // target = value
  kSetBlock,    // target = value of body; value has a kBlockText at its bottom
  kFilter,      // value of body, likewise
  kWith,        // bindings, then body
  kMacro,       // text is its name; bindings are its parameters, with null for no default
  kCall,        // value is a call, which gets body as its caller, with bindings as parameters
  kGeneration,  // body, whose assignments stay inside
  kBreak,
  kContinue,
};

struct Binding {
  ExprPtr target;
  ExprPtr value;
};

struct Branch {
  ExprPtr condition;
  Block body;
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;
  ExprPtr target, value, condition;
  std::vector<Binding> bindings;
  std::vector<Branch> branches;
  Block body, otherwise;
  // Which of a macro's implicit names its body mentions: they decide what a call may pass.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

}  // namespace tierkv::jinja
