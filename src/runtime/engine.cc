#include "runtime/engine.h"

#include <algorithm>

#include "base/process.h"

namespace tierkv {
namespace {

std::vector<KvLayerShape> kv_shapes(const ModelSpec& spec) {
  std::vector<KvLayerShape> shapes;
  for (const LayerSpec& layer : spec.layers) shapes.push_back(layer.attention);
  return shapes;
}

Result<ChatTemplate> read_chat_template(const GgufFile& file) {
  TIERKV_ASSIGN_OR_RETURN(std::string source, file.get_string("tokenizer.chat_template"));
  return ChatTemplate::parse(std::move(source));
}

}  // namespace

Engine::Engine(const EngineOptions& options, GgufFile file)
    : file_(std::move(file)),
      file_system_(options.file_system != nullptr ? options.file_system : &real_file_system()),
      budget_(options.ram_bytes),
      chat_template_(not_found("no chat template")) {}

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  FileSystem& file_system =
      options.file_system != nullptr ? *options.file_system : real_file_system();
  TIERKV_ASSIGN_OR_RETURN(const Isa isa, choose_isa(options.isa));
  TIERKV_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(file_system, options.model_path));
  std::unique_ptr<Engine> engine(new Engine(options, std::move(file)));
  TIERKV_ASSIGN_OR_RETURN(engine->spec_, read_model_spec(engine->file_));
  engine->kv_layout_ = make_kv_layout(kv_shapes(engine->spec_));
  engine->chat_template_ = read_chat_template(engine->file_);
  TIERKV_ASSIGN_OR_RETURN(engine->tokenizer_, Tokenizer::create(engine->file_));
  if (engine->tokenizer_->vocab_size() > engine->spec_.n_vocab) {
    return corrupt(format("%s: the tokenizer has %lld tokens, the embedding %lld rows",
                          options.model_path.c_str(),
                          static_cast<long long>(engine->tokenizer_->vocab_size()),
                          static_cast<long long>(engine->spec_.n_vocab)));
  }
  engine->kernels_ = &kernels_for(isa);
  const int n_threads = options.n_threads > 0 ? options.n_threads : ThreadPool::available_cpus();
  engine->pool_ = std::make_unique<ThreadPool>(n_threads);
  engine->weight_bytes_ = Weights::resident_bytes(engine->file_, engine->spec_);
  engine->measure_overhead();
  return engine;
}

Status Engine::load(const LoadProgress& progress) {
  TIERKV_ASSIGN_OR_RETURN(weights_, Weights::load(file_, spec_, budget_, *pool_, progress));
  return {};
}

void Engine::measure_overhead() {
  const uint64_t buffers = budget_.used() - budget_.used(MemoryKind::kOverhead);
  const uint64_t resident = resident_bytes();
  budget_.set_overhead((resident > buffers ? resident - buffers : 0) + kOverheadMargin);
}

Result<std::string> apply_chat_template(const Engine& engine,
                                        const std::vector<ChatMessage>& messages,
                                        bool add_generation_prompt) {
  if (!engine.chat_template().ok()) return engine.chat_template().status();
  const Tokenizer& tokenizer = engine.tokenizer();
  const auto text = [&](TokenId id) { return id >= 0 ? tokenizer.token_text(id) : std::string(); };
  return engine.chat_template()->render(messages, add_generation_prompt, text(tokenizer.bos()),
                                        text(tokenizer.eos()));
}

}  // namespace tierkv
