// One conversation: reads prompts, plans where their KV goes, generates answers. The way of a
// request is in docs/architecture.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/tiered_cache.h"
#include "model/decoder.h"
#include "runtime/engine.h"
#include "runtime/forecast.h"
#include "runtime/history.h"
#include "runtime/kv_request.h"
#include "runtime/prompt_fingerprint.h"
#include "runtime/sampler.h"
#include "runtime/session_resume.h"

namespace tierkv {

struct SessionOptions {
  KvRequest request;
  int64_t n_context = 0;  // most tokens; 0: the model's own limit
  int64_t max_chunk = 0;  // tokens of a prefill chunk; 0: what the budget allows, up to 512
  uint64_t kv_ram_bytes = MemoryBudget::kUnlimited;  // most for KV, within the budget: measurement
  Activations activations = Activations::kInt8;
  AttentionMath attention = AttentionMath::kBf16;
  History* history = nullptr;  // learns from every answer; null: off. Must outlive the session
  FingerprintRule fingerprint = FingerprintRule::kTail;
  bool expected_given = false;  // request.n_expected is what the user says: nothing is predicted
  int64_t least_predicted = 1;  // bounds of a prediction
  int64_t most_predicted = INT64_MAX;
  Trace* trace = nullptr;     // must outlive the session
  int64_t save_every = 1024;  // tokens between the points of a saved session
};

// Tokens read so far and in all.
using PrefillProgress = std::function<void(int64_t done, int64_t total)>;
// A piece of text, whole characters; the token it came with. Returning false stops.
using TextCallback = std::function<bool(std::string_view text, int32_t token)>;

enum class StopReason {
  kEndOfText,
  kStopString,
  kLength,
  kContextFull,
  kRamFull,
  kCancelled,
  kCallback
};
const char* stop_reason_name(StopReason reason);  // "stop", "length", ...

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until the model stops or the context is full
  SamplingOptions sampling;
  std::vector<std::string> stop;  // texts that end the answer, which does not show them
  bool ignore_eos = false;
};

struct Generation {
  std::vector<int32_t> tokens;  // without the one that ended the text; with those of a stop string
  std::string text;
  StopReason stop = StopReason::kEndOfText;
  std::string stop_detail;  // a sentence, when the reason needs one
};

// What a saved session did for this one.
struct SavedReport {
  int64_t n_resumed = 0;  // tokens that were not read again
  int64_t n_shared = 0;   // that the session held; more than n_resumed: a window reached too far
  double resume_seconds = 0;
  int64_t n_saved = 0;  // tokens up to the latest complete point
  int64_t n_points = 0;
  double save_seconds = 0;
  Status failure;  // why the latest save failed, or that a newer point was damaged
};

// Counts and seconds, as llama.cpp's server names them.
struct Timings {
  int64_t prompt_n = 0, predicted_n = 0;
  double prompt_seconds = 0, settle_seconds = 0, predicted_seconds = 0;
  FlashStats predicted_flash;  // what came and went while the answer was generated

  // Of that time, what was spent waiting for flash.
  double stall_share() const {
    return predicted_seconds > 0 ? predicted_flash.stall_seconds / predicted_seconds : 0;
  }
};

class Session {
 public:
  // Refuses what can't fit, before anything is allocated, with the least budget that would do.
  // `engine` must be loaded and outlive the session. With `saved` the first prefill() goes on from
  // what that holds, and everything is saved in it (options.request.saved must be set).
  static Result<std::unique_ptr<Session>> create(Engine& engine, const SessionOptions& options,
                                                 std::unique_ptr<SessionFile> saved = nullptr);

  // Checks the budget for a session without loading weights: OK, or what create() would answer.
  static Status check_fits(Engine& engine, const SessionOptions& options);
  // The least --ram with which check_fits succeeds.
  static uint64_t least_ram(Engine& engine, const SessionOptions& options);
  // What create(), a prompt of request.n_prompt tokens and its settling would come to, answer of
  // request.n_expected tokens included; or what check_fits answers. No weights needed.
  static Result<Forecast> forecast(Engine& engine, const SessionOptions& options);

  // Reads tokens after those so far. The first call plans and settles at its end, for an answer as
  // long as the history predicts. On an error or cancellation the tokens that were committed stay.
  Status prefill(std::span<const int32_t> tokens, const PrefillProgress& progress = {},
                 const std::atomic<bool>* cancel = nullptr);
  // The reading alone, of a prompt that goes on: measurement.
  Status read(std::span<const int32_t> tokens, const PrefillProgress& progress = {},
              const std::atomic<bool>* cancel = nullptr);
  // Forgets the tokens from n_tokens on, settled or not. False, and nothing changes, when the cache
  // can't be as it was then (TieredCache::rewind): measurement.
  bool rewind(int64_t n_tokens);

  Result<Generation> generate(const GenerateOptions& options, const TextCallback& on_text = {},
                              const std::atomic<bool>* cancel = nullptr);

  // Logits of the last token read. Valid until the next call.
  std::span<float> logits() { return logits_.span<float>(); }
  // Of those: tells whether two runs computed the very same numbers.
  uint32_t logits_crc32c() const;
  // Reads tokens already known and gives their logits [n, n_vocab] to `sink` in batches:
  // evaluation.
  Status score(std::span<const int32_t> tokens, int64_t batch,
               const std::function<void(int64_t first, int64_t n, const float* logits)>& sink);

  // Saves what has been read, if there is a saved session: so do prefill and generate themselves,
  // from time to time, at the end of an answer and on cancellation. Never fails the request; what
  // went wrong is in saved_report().
  void save();
  SavedReport saved_report() const { return saved_report_; }
  const SessionFile* saved() const { return saved_.get(); }

  // A new ceiling for the whole process, at once: plans anew and moves tokens to the tiers that
  // this gives them; RAM that is no longer needed goes back to the system. For an app that is told
  // that memory is short; to be called between two calls or from a callback, not from another
  // thread. On an error nothing has changed, except for kIo and kCorrupt (flash failed: the session
  // is as usable as after any failed read).
  Status set_ram_budget(uint64_t bytes);

  int64_t length() const { return cache_->length(); }
  int64_t n_context() const { return n_context_; }
  const Plan& plan() const { return plan_; }
  // What the KV comes to at the end of the expected answer.
  uint64_t expected_kv_bytes() const;
  // What the last plan was given for all KV, in bytes.
  uint64_t kv_ram_bytes() const { return plan_input_.ram_bytes; }
  int64_t n_replans() const { return n_replans_; }  // how often the plan was made anew
  TierReport tiers() const { return cache_->report(); }
  const Timings& timings() const { return timings_; }
  // What was expected of the first answer once its prompt had been read, and what was planned for:
  // request.n_expected where a plan for the prediction would not do.
  const Prediction& prediction() const { return prediction_; }
  int64_t planned_output() const { return planned_output_; }
  const AccuracyChoice& accuracy() const { return options_.request.accuracy; }
  const std::string& flash_directory() const { return options_.request.flash_directory; }
  FlashOverlap flash_overlap() const { return options_.request.flash_overlap; }
  // Keeps every further token exact in RAM, beyond the plan: evaluation.
  void hold_new_tokens() { cache_->set_exact_limit(INT64_MAX); }

 private:
  Session(Engine& engine, const SessionOptions& options) : engine_(engine), options_(options) {}
  Status allocate();
  Status read_chunks(std::span<const int32_t> todo, const PrefillProgress& progress,
                     const std::atomic<bool>* cancel);
  // session_saving.cc
  Result<int64_t> resume(std::span<const int32_t> tokens);
  Result<int64_t> restore(const Resume& from, std::span<const int32_t> tokens);
  Status settle_before(int64_t n_more);
  void save_while_reading(int64_t n_left);
  void save_while_answering();

  Status give_scratch_to_tiers();
  Status read_sampled(const std::atomic<bool>* cancel);
  void predict();
  Status settle();
  // replan.cc
  uint64_t kv_ram(uint64_t limit) const;
  Result<Plan> plan_anew(PlanInput& input) const;
  Status extend_plan();
  Status adopt(Plan plan, PlanInput input);
  Status settle_for(int64_t n_expected);
  uint64_t history_key() const;
  bool flash_works();
  void learn(const Generation& answer);

  Engine& engine_;
  SessionOptions options_;
  int64_t n_context_ = 0;
  int64_t chunk_ = 0;    // tokens that the first prompt is read in
  int64_t at_once_ = 0;  // most tokens of a chunk now
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<SessionFile> saved_;
  std::unique_ptr<TieredCache> cache_;
  Buffer logits_;
  PlanInput plan_input_;
  Plan plan_;
  bool settled_ = false;
  int64_t n_replans_ = 0;
  std::unique_ptr<PromptFingerprint> fingerprint_;  // with a history
  Prediction prediction_;
  int64_t planned_output_ = 0;
  int64_t expected_output_ = 0;  // by the last plan
  int64_t n_unanswered_ = 0;     // tokens of the prompt that awaits its answer
  std::vector<int32_t> tokens_;  // all so far
  int64_t n_answered_ = 0;       // of these, up to the end of the latest answer
  bool on_grid_ = false;         // resumed within a prompt: chunks end where they always do
  bool save_due_ = false;        // the prompt has been read, but not saved since
  SavedReport saved_report_;
  Timings timings_;
};

}  // namespace tierkv
