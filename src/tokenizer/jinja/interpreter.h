// Runs a parsed template.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"

namespace tierkv::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// The text that `block` gives with `variables` and the global functions in sight; `now` is what
// strftime_now sees. Faults are thrown as Error, with the line that was being run.
std::string render(const Block& block, const Variables& variables, const Limits& limits,
                   const std::tm& now);

}  // namespace tierkv::jinja
