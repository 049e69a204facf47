#include "runtime/session.h"

#include <algorithm>
#include <chrono>

#include "base/size.h"
#include "kv/crc32c.h"
#include "kv/extent_stream.h"
#include "runtime/stop_strings.h"

namespace tierkv {
namespace {

constexpr int64_t kChunks[] = {512, 256, 128, 64, 32};  // prefill chunk sizes, best first
constexpr int64_t kLeastChunk = 32;
// Before the first settlement, which gives the tiers what longer chunks take of scratch: later
// prompts are read in chunks this small.
constexpr int64_t kLaterChunk = 64;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t context_of(const Engine& engine, const SessionOptions& options) {
  return options.n_context > 0 ? options.n_context : engine.spec().n_context;
}

int64_t requested_rank(const Engine& engine, const SessionOptions& options) {
  const KvLayout& layout = engine.kv_layout();
  return largest_rank(layout, low_rank_choices(layout, options.request.kv.codecs));
}

uint64_t codec_scratch(Engine& engine, const SessionOptions& options, int64_t chunk) {
  return PageTable::codec_scratch_bytes(engine.kv_layout(), engine.pool().size(),
                                        options.request.kv.codecs,
                                        context_of(engine, options) + chunk);
}

std::vector<KvRope> kv_ropes(const Engine& engine) {
  const ModelSpec& spec = engine.spec();
  const RopeTable table(spec, engine.weights().rope_freqs);
  std::vector<KvRope> ropes;
  for (int layer = 0; layer < spec.n_layers; ++layer) {
    ropes.push_back({spec.rope_pairing, table.frequencies(layer)});
  }
  return ropes;
}

int64_t later_chunk(int64_t chunk) { return std::min(chunk, kLaterChunk); }

// While chunks have at most `at_once` tokens, in a session whose first prompt is read in `chunk`.
uint64_t fixed_scratch(Engine& engine, const SessionOptions& options, int64_t chunk,
                       int64_t at_once) {
  const int n_threads = engine.pool().size();
  return Decoder::scratch_bytes(engine.spec(), at_once, n_threads, options.activations) +
         TieredAttention::scratch_bytes(engine.kv_layout(), at_once, n_threads,
                                        requested_rank(engine, options)) +
         buffer_footprint(engine.spec().n_vocab * sizeof(float)) +
         (options.history != nullptr
              ? PromptFingerprint::scratch_bytes(engine.spec(), options.fingerprint)
              : 0) +
         codec_scratch(engine, options, chunk);
}

// What is left of the budget for a session, the weights loaded.
uint64_t available(Engine& engine) {
  const uint64_t free = engine.budget().available();
  const uint64_t weights = engine.loaded() ? 0 : engine.weight_bytes();
  return free > weights ? free - weights : 0;
}

uint64_t prefill_scratch(Engine& engine, const SessionOptions& options, int64_t chunk) {
  return fixed_scratch(engine, options, chunk, chunk);
}

bool chunk_fits(Engine& engine, const SessionOptions& options, int64_t chunk) {
  const uint64_t free = available(engine), scratch = prefill_scratch(engine, options, chunk);
  return free >= scratch &&
         free - scratch >= least_kv_ram(engine.kv_layout(), options.request, chunk);
}

// The largest chunk whose scratch is at most 1/share of what is left, or the least one.
int64_t largest_chunk(Engine& engine, const SessionOptions& options, uint64_t share) {
  for (const int64_t chunk : kChunks) {
    if (options.max_chunk > 0 && chunk > options.max_chunk && chunk > kLeastChunk) continue;
    if (chunk > kLeastChunk && chunk / 2 >= options.request.n_prompt) continue;
    if (prefill_scratch(engine, options, chunk) > available(engine) / share) continue;
    if (chunk_fits(engine, options, chunk)) return chunk;
  }
  return kLeastChunk;
}

// What is left for KV beside so much scratch, which fits.
uint64_t kv_ram_beside(Engine& engine, const SessionOptions& options, uint64_t scratch) {
  return std::min(available(engine) - scratch, options.kv_ram_bytes);
}

bool reads_through_flash(Engine& engine, const SessionOptions& options, int64_t chunk) {
  const uint64_t ram = kv_ram_beside(engine, options, prefill_scratch(engine, options, chunk));
  const PlanInput input = make_plan_input(engine.kv_layout(), options.request, ram, chunk);
  return prompt_needs_flash(engine.kv_layout(), options.request, input);
}

// Scratch may take half of what is left, since it goes back before tokens are settled; but a fourth
// only where more would send a prompt through flash that RAM could hold.
int64_t choose_chunk(Engine& engine, const SessionOptions& options) {
  const int64_t large = largest_chunk(engine, options, 2);
  if (!reads_through_flash(engine, options, large)) return large;
  const int64_t small = largest_chunk(engine, options, 4);
  return reads_through_flash(engine, options, small) ? large : small;
}

Status check_context(int64_t n_tokens, int64_t n_context) {
  if (n_tokens <= n_context) return {};
  return invalid_argument(
      format("%lld tokens do not fit in the context of %lld; shorten the text, or "
             "raise -c if the model can use more",
             static_cast<long long>(n_tokens), static_cast<long long>(n_context)));
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "stop";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kLength:
      return "length";
    case StopReason::kContextFull:
      return "context";
    case StopReason::kRamFull:
      return "ram";
    case StopReason::kCancelled:
      return "cancelled";
    case StopReason::kCallback:
      return "callback";
  }
  return "unknown";
}

uint64_t Session::least_ram(Engine& engine, const SessionOptions& options) {
  const uint64_t weights =
      engine.loaded() ? engine.budget().used(MemoryKind::kWeights) : engine.weight_bytes();
  const uint64_t session = prefill_scratch(engine, options, kLeastChunk) +
                           least_kv_ram(engine.kv_layout(), options.request, kLeastChunk);
  return engine.budget().used(MemoryKind::kOverhead) + weights +
         std::max(session, Weights::kLoadSliceBytes);
}

Status Session::check_fits(Engine& engine, const SessionOptions& options) {
  TIERKV_RETURN_IF_ERROR(check_context(options.request.n_prompt, context_of(engine, options)));
  if (chunk_fits(engine, options, kLeastChunk)) return {};
  const uint64_t least = least_ram(engine, options);
  return resource_exhausted(format(
      "the RAM budget of %s is too small: weights %s, the process %s, %lld tokens of prompt and "
      "%lld "
      "of answer; give at least --ram %s",
      format_size(engine.budget().limit()).c_str(), format_size(engine.weight_bytes()).c_str(),
      format_size(engine.budget().used(MemoryKind::kOverhead)).c_str(),
      static_cast<long long>(options.request.n_prompt),
      static_cast<long long>(options.request.n_expected),
      format_size_argument(least + (1 << 20)).c_str()));
}

Result<Forecast> Session::forecast(Engine& engine, const SessionOptions& options) {
  TIERKV_RETURN_IF_ERROR(check_fits(engine, options));
  const KvRequest& request = options.request;
  Forecast forecast;
  forecast.ram_limit = engine.budget().limit();
  forecast.chunk = choose_chunk(engine, options);
  forecast.weight_bytes = engine.weight_bytes();
  forecast.overhead_bytes = engine.budget().used(MemoryKind::kOverhead);
  forecast.prefill_scratch_bytes = prefill_scratch(engine, options, forecast.chunk);
  forecast.scratch_bytes =
      fixed_scratch(engine, options, forecast.chunk, later_chunk(forecast.chunk));
  const uint64_t kv_ram = kv_ram_beside(engine, options, forecast.scratch_bytes);
  PlanInput& input = forecast.input;
  input = make_plan_input(engine.kv_layout(), request, kv_ram, forecast.chunk);
  input.total_tokens = std::min(request.n_prompt + std::max<int64_t>(request.n_expected, 1),
                                context_of(engine, options));
  input.flash_in_use = reads_through_flash(engine, options, forecast.chunk);
  TIERKV_ASSIGN_OR_RETURN(forecast.plan, plan_request(request, input));
  return forecast;
}

Result<std::unique_ptr<Session>> Session::create(Engine& engine, const SessionOptions& options,
                                                 std::unique_ptr<SessionFile> saved) {
  if (!engine.loaded()) return internal_error("the engine's weights are not loaded");
  engine.measure_overhead();
  TIERKV_RETURN_IF_ERROR(check_fits(engine, options));
  std::unique_ptr<Session> session(new Session(engine, options));
  session->n_context_ = context_of(engine, options);
  if (saved != nullptr) {
    session->n_context_ = std::min(session->n_context_, saved->shape().max_tokens);
    session->saved_ = std::move(saved);
  }
  session->chunk_ = session->at_once_ = choose_chunk(engine, options);
  TIERKV_RETURN_IF_ERROR(session->allocate());
  return session;
}

Status Session::allocate() {
  TIERKV_ASSIGN_OR_RETURN(
      decoder_, Decoder::create(engine_.spec(), engine_.weights(), engine_.kernels(),
                                engine_.pool(), engine_.budget(), chunk_, options_.activations));
  FlashOptions flash;
  flash.file_system = &engine_.file_system();
  flash.directory = options_.request.flash_directory;
  flash.model_hash = model_hash(engine_.file());
  flash.max_tokens = n_context_ + chunk_;
  flash.backend = options_.request.flash_io;
  flash.overlap = options_.request.flash_overlap;
  flash.trace = options_.trace;
  flash.session = saved_.get();
  decoder_->set_trace(options_.trace);
  TIERKV_ASSIGN_OR_RETURN(
      cache_, TieredCache::create(engine_.kv_layout(), engine_.budget(), engine_.kernels(),
                                  engine_.pool(), chunk_, std::move(flash), options_.attention,
                                  requested_rank(engine_, options_)));
  cache_->set_ropes(kv_ropes(engine_));
  TIERKV_ASSIGN_OR_RETURN(logits_, Buffer::allocate(engine_.budget(), MemoryKind::kScratch,
                                                    engine_.spec().n_vocab * sizeof(float)));
  if (options_.history != nullptr) {
    TIERKV_ASSIGN_OR_RETURN(fingerprint_, PromptFingerprint::create(
                                              options_.fingerprint, engine_.spec(), *decoder_,
                                              engine_.kernels(), engine_.pool(), engine_.budget()));
  }
  plan_input_ = make_plan_input(engine_.kv_layout(), options_.request,
                                kv_ram(engine_.budget().limit()), chunk_);
  cache_->set_exact_limit(prefill_pages(engine_.kv_layout(), plan_input_));
  return {};
}

// Once: before tokens are settled, which they then are within the RAM that this leaves.
Status Session::give_scratch_to_tiers() {
  if (at_once_ == later_chunk(chunk_)) return {};
  at_once_ = later_chunk(chunk_);
  TIERKV_RETURN_IF_ERROR(decoder_->resize(engine_.budget(), at_once_));
  TIERKV_RETURN_IF_ERROR(cache_->set_max_chunk(at_once_));
  plan_input_.ram_bytes = kv_ram(engine_.budget().limit());
  return {};
}

Status Session::prefill(std::span<const int32_t> tokens, const PrefillProgress& progress,
                        const std::atomic<bool>* cancel) {
  if (saved_ != nullptr && tokens_.empty()) {
    TIERKV_ASSIGN_OR_RETURN(const int64_t n_kept, resume(tokens));
    tokens = tokens.subspan(n_kept);
  }
  TIERKV_RETURN_IF_ERROR(read(tokens, progress, cancel));
  save_due_ = saved_ != nullptr;
  if (settled_) return length() >= plan_input_.total_tokens ? extend_plan() : Status();
  const double settle_start = now();
  TIERKV_RETURN_IF_ERROR(settle());
  timings_.settle_seconds = now() - settle_start;
  return {};
}

Status Session::read(std::span<const int32_t> tokens, const PrefillProgress& progress,
                     const std::atomic<bool>* cancel) {
  // A token that was sampled but not read yet comes first.
  std::vector<int32_t> todo(tokens_.begin() + length(), tokens_.end());
  todo.insert(todo.end(), tokens.begin(), tokens.end());
  if (todo.empty()) return invalid_argument("the prompt is empty");
  TIERKV_RETURN_IF_ERROR(check_context(length() + static_cast<int64_t>(todo.size()), n_context_));
  const int64_t n_sampled = static_cast<int64_t>(tokens_.size()) - length();
  tokens_.resize(length());
  const double start = now();
  const int64_t before = length();
  const Status status = read_chunks(todo, progress, cancel);
  timings_.prompt_n += length() - before;
  timings_.prompt_seconds += now() - start;
  if (!status.ok() && length() == before) {
    tokens_.insert(tokens_.end(), todo.begin(), todo.begin() + n_sampled);
  }
  if (status.code() == StatusCode::kCancelled) save();
  if (status.ok()) n_unanswered_ = static_cast<int64_t>(todo.size());
  return status;
}

Status Session::read_chunks(std::span<const int32_t> todo, const PrefillProgress& progress,
                            const std::atomic<bool>* cancel) {
  const int64_t total = static_cast<int64_t>(todo.size());
  if (fingerprint_ != nullptr) fingerprint_->begin(total);
  for (int64_t done = 0; done < total;) {
    const int64_t first = on_grid_ && !settled_ ? at_once_ - length() % at_once_ : at_once_;
    const int64_t n = std::min(first, total - done);
    const std::span<const int32_t> chunk = todo.subspan(done, n);
    const ChunkTokens outputs =
        fingerprint_ != nullptr ? fingerprint_->wanted(n) : ChunkTokens::last_of(n);
    TIERKV_RETURN_IF_ERROR(decoder_->forward(chunk, *cache_, outputs, cancel));
    tokens_.insert(tokens_.end(), chunk.begin(), chunk.end());
    done += n;
    if (progress) progress(done, total);
    if (fingerprint_ != nullptr) {
      fingerprint_->take(n, logits_.as<float>());
    } else if (done == total) {
      decoder_->logits(0, 1, logits_.as<float>());
    }
    save_while_reading(total - done);
  }
  return {};
}

uint32_t Session::logits_crc32c() const {
  return crc32c({logits_.as<std::byte>(), logits_.size()});
}

bool Session::rewind(int64_t n_tokens) {
  if (!cache_->rewind(n_tokens)) return false;
  tokens_.resize(n_tokens);
  return true;
}

// The token that an answer ended with, or failed at, is read when the conversation goes on.
Status Session::read_sampled(const std::atomic<bool>* cancel) {
  if (length() == static_cast<int64_t>(tokens_.size())) return {};
  const std::vector<int32_t> todo(tokens_.begin() + length(), tokens_.end());
  const ChunkTokens last = ChunkTokens::last_of(static_cast<int64_t>(todo.size()));
  TIERKV_RETURN_IF_ERROR(decoder_->forward(todo, *cache_, last, cancel));
  decoder_->logits(0, 1, logits_.as<float>());
  return {};
}

Result<Generation> Session::generate(const GenerateOptions& options, const TextCallback& on_text,
                                     const std::atomic<bool>* cancel) {
  if (!settled_) return invalid_argument("a prompt must be read before an answer can be generated");
  TIERKV_RETURN_IF_ERROR(validate(options.sampling));
  TIERKV_RETURN_IF_ERROR(read_sampled(cancel));
  Sampler sampler(options.sampling, engine_.kernels());
  Utf8Stream stream;
  StopStrings stop(options.stop);
  Generation result;
  const double start = now();
  const FlashStats flash_before = cache_->report().flash;
  const auto emit = [&](const std::string& text, int32_t token) {
    result.text += text;
    return !on_text || text.empty() || on_text(text, token);
  };
  const auto full = [&] {
    return options.max_tokens >= 0 &&
           static_cast<int64_t>(result.tokens.size()) >= options.max_tokens;
  };
  result.stop = full() ? StopReason::kLength : StopReason::kEndOfText;
  while (!full()) {
    const int32_t token = sampler.sample(logits(), tokens_);
    if (engine_.tokenizer().is_end_of_generation(token) && !options.ignore_eos) break;
    tokens_.push_back(token);
    result.tokens.push_back(token);
    if (!emit(stop.push(stream.push(engine_.tokenizer().token_bytes(token))), token)) {
      result.stop = StopReason::kCallback;
      break;
    }
    if (stop.found()) {
      result.stop = StopReason::kStopString;
      break;
    }
    n_answered_ = static_cast<int64_t>(tokens_.size());
    save_while_answering();
    if (full()) {  // the token is read when the conversation goes on
      result.stop = StopReason::kLength;
      break;
    }
    if (length() + 1 > n_context_) {
      result.stop = StopReason::kContextFull;
      break;
    }
    const Status status = decoder_->forward({&token, 1}, *cache_, {}, cancel);
    if (status.code() == StatusCode::kCancelled ||
        status.code() == StatusCode::kResourceExhausted) {
      result.stop =
          status.code() == StatusCode::kCancelled ? StopReason::kCancelled : StopReason::kRamFull;
      result.stop_detail = status.message();
      break;
    }
    if (!status.ok()) return status;
    decoder_->logits(0, 1, logits_.as<float>());
    if (length() >= plan_input_.total_tokens) TIERKV_RETURN_IF_ERROR(extend_plan());
  }
  emit(stop.push(stream.flush()) + stop.flush(), -1);
  n_answered_ = static_cast<int64_t>(tokens_.size());
  save();
  timings_.predicted_n += static_cast<int64_t>(result.tokens.size());
  timings_.predicted_seconds += now() - start;
  timings_.predicted_flash += cache_->report().flash - flash_before;
  if (fingerprint_ != nullptr && !options.ignore_eos && options.max_tokens != 0) learn(result);
  return result;
}

Status Session::score(std::span<const int32_t> tokens, int64_t batch,
                      const std::function<void(int64_t, int64_t, const float*)>& sink) {
  TIERKV_RETURN_IF_ERROR(check_context(length() + static_cast<int64_t>(tokens.size()), n_context_));
  const int64_t total = static_cast<int64_t>(tokens.size());
  constexpr int64_t kLogitRows = 16;
  TIERKV_ASSIGN_OR_RETURN(Buffer logits,
                          Buffer::allocate(engine_.budget(), MemoryKind::kScratch,
                                           std::min(kLogitRows, std::min(batch, at_once_)) *
                                               engine_.spec().n_vocab * sizeof(float)));
  for (int64_t done = 0; done < total;) {
    const int64_t n = std::min({batch, at_once_, total - done});
    const std::span<const int32_t> chunk = tokens.subspan(done, n);
    TIERKV_RETURN_IF_ERROR(decoder_->forward(chunk, *cache_));
    tokens_.insert(tokens_.end(), chunk.begin(), chunk.end());
    if (settled_ && length() >= plan_input_.total_tokens) TIERKV_RETURN_IF_ERROR(extend_plan());
    // Last rows first would overwrite nothing: logits() reads the residual stream only.
    for (int64_t row = 0; row < n; row += kLogitRows) {
      const int64_t rows = std::min(kLogitRows, n - row);
      decoder_->logits(row, rows, logits.as<float>());
      sink(done + row, rows, logits.as<float>());
    }
    done += n;
  }
  return {};
}

}  // namespace tierkv
