// A model made ready to run: file checked, tokenizer built, weights packed. Opening is two steps,
// so that a request can be judged (does it fit the RAM budget?) before the weights are read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "kv/kv_layout.h"
#include "model/model_spec.h"
#include "model/weights.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace tierkv {

struct EngineOptions {
  std::string model_path;
  uint64_t ram_bytes = MemoryBudget::kUnlimited;  // ceiling of the whole process
  int n_threads = 0;                              // 0: one per CPU this process may use
  std::string isa;                                // "" : the best; else as choose_isa reads it
  FileSystem* file_system = nullptr;              // null: the real one
};

class Engine {
 public:
  // Checks the file, reads the hyper-parameters and builds the tokenizer: fast, weights untouched.
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);

  // Reads the weights. Fails at once when they and the least of everything else exceed the budget.
  Status load(const LoadProgress& progress = {});
  bool loaded() const { return weights_.has_value(); }

  const GgufFile& file() const { return file_; }
  const ModelSpec& spec() const { return spec_; }
  const KvLayout& kv_layout() const { return kv_layout_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // From the file; an error when the file has none or it does not parse.
  const Result<ChatTemplate>& chat_template() const { return chat_template_; }
  const Weights& weights() const { return *weights_; }
  const Kernels& kernels() const { return *kernels_; }
  ThreadPool& pool() { return *pool_; }
  MemoryBudget& budget() { return budget_; }
  FileSystem& file_system() { return *file_system_; }
  uint64_t weight_bytes() const { return weight_bytes_; }

  // Sets the budget's overhead to what the process takes beside its buffers, as measured now, and a
  // margin for what the system adds (stacks, page tables).
  void measure_overhead();
  static constexpr uint64_t kOverheadMargin = 5 << 20;

 private:
  Engine(const EngineOptions& options, GgufFile file);

  GgufFile file_;
  FileSystem* file_system_;
  MemoryBudget budget_;
  ModelSpec spec_;
  KvLayout kv_layout_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Result<ChatTemplate> chat_template_;
  const Kernels* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  uint64_t weight_bytes_ = 0;
  std::optional<Weights> weights_;
};

// The file's chat template applied to `messages`, as text whose special tokens are to be parsed.
Result<std::string> apply_chat_template(const Engine& engine,
                                        const std::vector<ChatMessage>& messages,
                                        bool add_generation_prompt = true);

}  // namespace tierkv
