// What a session does with a prompt that has been read: predict the answer's length, plan, settle,
// and afterwards learn how long the answer became.
#include <algorithm>

#include "runtime/session.h"

namespace tierkv {
namespace {

// What people call the model: the name in its file, else the file's.
std::string model_name(const Engine& engine) {
  if (!engine.spec().name.empty()) return engine.spec().name;
  const std::string& path = engine.file().path();
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

uint64_t Session::history_key() const {
  return History::key(model_hash(engine_.file()), options_.fingerprint);
}

void Session::predict() {
  const int64_t fallback = options_.request.n_expected;
  prediction_ = {fallback, PredictionSource::kDefault, 0};
  if (options_.expected_given) prediction_.source = PredictionSource::kGiven;
  if (fingerprint_ == nullptr || options_.expected_given) return;
  const Prediction prediction =
      options_.history->predict(history_key(), fingerprint_->finish(), fallback);
  if (prediction.tokens < options_.least_predicted) return;
  prediction_ = prediction;
  prediction_.tokens = std::min(prediction.tokens, options_.most_predicted);
}

// Plans with the prompt's real length, and moves its tokens to their tiers: for the predicted
// answer or, where that can't be, for the one that was accepted before the prompt was read.
Status Session::settle() {
  plan_input_.flash_in_use = cache_->uses_flash();
  predict();
  if (settle_for(prediction_.tokens).ok()) return {};
  return settle_for(options_.request.n_expected);
}

Status Session::settle_for(int64_t n_expected) {
  TIERKV_RETURN_IF_ERROR(give_scratch_to_tiers());
  const KvLayout& layout = engine_.kv_layout();
  const auto total = [&](int64_t output) {
    return std::min(length() + std::max<int64_t>(output, 1), n_context_);
  };
  KvRequest request = options_.request;
  request.n_expected = n_expected;
  PlanInput input = plan_input_;
  input.fixed_bytes = std::max(
      input.fixed_bytes, make_plan_input(layout, request, input.ram_bytes, chunk_).fixed_bytes);
  input.total_tokens = total(n_expected);
  input.answer_tokens = input.total_tokens - length();
  TIERKV_ASSIGN_OR_RETURN(Plan plan, plan_request(request, input));
  // An answer as long as was accepted must fit whatever is predicted: here or on flash.
  const int64_t exact_pages = exact_page_limit(layout, request, input, plan);
  const int64_t room = (exact_pages + plan.tier1_pages) * kPageTokens;
  if (room < total(options_.request.n_expected) && n_expected < options_.request.n_expected &&
      !flash_works()) {
    return resource_exhausted("flash is not there for an answer that is longer than predicted");
  }
  TIERKV_RETURN_IF_ERROR(adopt(std::move(plan), std::move(input)));
  planned_output_ = expected_output_ = n_expected;
  settled_ = true;
  return {};
}

uint64_t Session::expected_kv_bytes() const {
  return tierkv::expected_kv_bytes(engine_.kv_layout(), plan_input_, plan_);
}

bool Session::flash_works() {
  const std::string& directory = options_.request.flash_directory;
  return cache_->uses_flash() ||
         (!directory.empty() && engine_.file_system().create_scratch(directory).ok());
}

void Session::learn(const Generation& answer) {
  if (n_unanswered_ == 0) return;  // more of an answer that is in the history already
  HistoryEntry entry;
  entry.model = history_key();
  entry.model_name = model_name(engine_);
  entry.seen.fingerprint = fingerprint_->finish();
  entry.seen.prompt_tokens = static_cast<int32_t>(n_unanswered_);
  entry.seen.output_tokens = static_cast<int32_t>(answer.tokens.size());
  entry.stop = stop_reason_name(answer.stop);
  options_.history->add(std::move(entry));
  n_unanswered_ = 0;
}

}  // namespace tierkv
