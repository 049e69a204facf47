// How much of a saved session a prompt can go on from. Pure: points and tokens in, a choice out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/kv_layout.h"
#include "kv/session_format.h"

namespace tierkv {

struct Resume {
  const SessionPoint* point = nullptr;  // null: nothing can be kept
  int64_t n_tokens = 0;                 // of the prompt, that need not be read
  int64_t n_shared = 0;                 // that the session holds; more where windows reach too far
  // The prompt is the session and what comes next: read as in a process that never ended, after
  // the tokens before have been settled. Else the rest is read as the end of any prompt.
  bool next_turn = false;
};

// At least one token of `tokens` is left to read, since the answer needs its logits. Prompts are
// read in chunks [k * chunk, (k + 1) * chunk); so that the rest is computed as it would be without
// a session, it has enough tokens for the arithmetic of chunks if its chunk has (few_tokens + 1).
Resume choose_resume(const KvLayout& layout, std::span<const SessionPoint* const> points,
                     std::span<const int32_t> tokens, int64_t chunk, int64_t few_tokens);

}  // namespace tierkv
