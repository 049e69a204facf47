// Session's side of a saved session: going on from what it holds, and saving.
#include <algorithm>
#include <chrono>
#include <ctime>

#include "runtime/session.h"

namespace tierkv {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// Takes as much of the prompt from the saved session as can be had: the number of tokens.
Result<int64_t> Session::resume(std::span<const int32_t> tokens) {
  const double start = now();
  int64_t n_kept = 0;
  for (;;) {
    const auto points = saved_->points();
    const Resume from =
        choose_resume(engine_.kv_layout(), points, tokens, chunk_, TieredAttention::kFewTokens);
    saved_report_.n_shared = from.n_shared;
    if (from.point == nullptr) break;
    const Result<int64_t> kept = restore(from, tokens);
    if (kept.ok()) {
      n_kept = *kept;
      break;
    }
    if (kept.status().code() != StatusCode::kCorrupt || cache_->length() != 0) {
      return kept.status().with_context("resuming " + saved_->path());
    }
    saved_report_.failure = kept.status();  // an older point may do
    saved_->drop(*from.point);
  }
  saved_report_.n_resumed = n_kept;
  saved_report_.resume_seconds = now() - start;
  return n_kept;
}

// A next turn is read after the tokens before it have been settled, as it would have been in the
// process that saved them; the rest of a prompt, before.
Result<int64_t> Session::restore(const Resume& from, std::span<const int32_t> tokens) {
  const int64_t n_prompt = static_cast<int64_t>(tokens.size());
  if (n_prompt > n_context_) return int64_t{0};  // read() says so
  TIERKV_RETURN_IF_ERROR(cache_->restore(*from.point, from.n_tokens));
  tokens_.assign(tokens.begin(), tokens.begin() + from.n_tokens);
  n_answered_ = from.point->n_answered <= from.n_tokens ? from.point->n_answered : 0;
  saved_report_.n_saved = from.n_tokens;
  if (from.next_turn) {
    TIERKV_RETURN_IF_ERROR(settle_before(n_prompt - from.n_tokens));
  } else {
    on_grid_ = true;
    const int64_t n_new =
        (std::min(chunk_, n_prompt - from.n_tokens) + kPageTokens - 1) / kPageTokens;
    TIERKV_RETURN_IF_ERROR(
        cache_->load_newest(prefill_pages(engine_.kv_layout(), plan_input_) - n_new));
  }
  return from.n_tokens;
}

// Plans for so many tokens more and an answer as was asked for: what the next turn is like is not
// known before it has been read.
Status Session::settle_before(int64_t n_more) {
  const double start = now();
  const int64_t n_expected = options_.request.n_expected;
  plan_input_.flash_in_use = cache_->uses_flash();
  prediction_ = {n_expected, PredictionSource::kDefault, 0};
  if (options_.expected_given) prediction_.source = PredictionSource::kGiven;
  TIERKV_RETURN_IF_ERROR(settle_for(n_expected + n_more));
  planned_output_ = expected_output_ = n_expected;
  timings_.settle_seconds = now() - start;
  return {};
}

void Session::save() {
  save_due_ = false;
  if (saved_ == nullptr || length() == 0) return;
  const double start = now();
  SessionPoint point;
  point.tokens = tokens_;
  point.n_answered = std::min(n_answered_, static_cast<int64_t>(tokens_.size()));
  point.saved_at = static_cast<int64_t>(std::time(nullptr));
  saved_report_.failure = cache_->save(std::move(point));
  saved_report_.save_seconds += now() - start;
  if (!saved_report_.failure.ok()) return;
  saved_report_.n_saved = length();
  ++saved_report_.n_points;
}

// With windows also within a chunk of the prompt's end, so that another question finds them as they
// were before this one.
void Session::save_while_reading(int64_t n_left) {
  if (saved_ == nullptr || n_left == 0) return;  // the end is saved when the answer has begun
  const bool near_end = engine_.kv_layout().window_page_bytes > 0 && n_left <= chunk_;
  if (near_end || length() - saved_report_.n_saved >= options_.save_every) save();
}

void Session::save_while_answering() {
  if (saved_ == nullptr) return;
  if (save_due_ || length() - saved_report_.n_saved >= options_.save_every) save();
}

}  // namespace tierkv
