// Whether a saved session can be relied on.
#pragma once

#include <cstdint>

#include "kv/session_file.h"
#include "runtime/engine.h"

namespace tierkv {

// Reads everything that the newest point of a session relies on. OK: it can be resumed as it is.
struct SessionCheck {
  int64_t n_tokens = 0, n_extents = 0;
  uint64_t bytes = 0;
};
// `engine`: also that its model is the session's; null: the session alone.
Result<SessionCheck> verify_session(SessionFile& session, const Engine* engine);

}  // namespace tierkv
