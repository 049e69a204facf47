// A session over a disk that fails: what was said stays, and asking again goes on where it stopped,
// with the answer that an undisturbed session gives.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fault_file.h"
#include "base/memory_file.h"
#include "model/tiny_model.h"
#include "runtime/session.h"
#include "tokenizer/byte_level.h"

namespace tierkv {
namespace {

// 300 tokens make an extent; the tokenizer knows bytes only.
std::vector<std::byte> tiny_gguf() {
  TinyShape shape;
  shape.n_kv_heads = 4;
  shape.head_dim = 64;
  shape.n_vocab = 256;
  shape.n_context = 4096;
  TinyModel model(shape);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(byte_level_spelling(static_cast<unsigned char>(byte)));
  }
  model.writer()
      .add("tokenizer.ggml.model", "gpt2")
      .add("tokenizer.ggml.pre", "gpt-2")
      .add("tokenizer.ggml.tokens", tokens)
      .add("tokenizer.ggml.token_type", std::vector<int32_t>(256, 1))
      .add("tokenizer.ggml.merges", std::vector<std::string>());
  return model.writer().bytes();
}

// The model from memory, scratch files on a disk with faults.
class Files : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open_read(const std::string&) override {
    return std::unique_ptr<File>(std::make_unique<MemoryFile>(model_));
  }
  Result<std::unique_ptr<File>> create_scratch(const std::string& directory) override {
    return faults_->create_scratch(directory);
  }
  FaultPlan plan;

 private:
  const std::vector<std::byte> model_ = tiny_gguf();
  const std::unique_ptr<FileSystem> faults_ = make_fault_file_system(real_file_system(), plan);
};

class SessionFault : public ::testing::TestWithParam<FlashBackend> {
 protected:
  static constexpr int64_t kPrompt = 1500;

  void SetUp() override {
    for (int64_t i = 0; i < kPrompt; ++i) prompt_.push_back(static_cast<int32_t>(i * i % 251));
    EngineOptions options;
    options.file_system = &files_;
    options.n_threads = 2;
    auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    ASSERT_TRUE(engine_->load().ok());
  }
  std::unique_ptr<Session> create(ForcedLayout layout) {
    SessionOptions options;
    options.request.n_prompt = kPrompt;
    options.request.kv.forced = layout;
    options.request.flash_directory = ::testing::TempDir();
    options.request.flash_io = GetParam();
    auto session = Session::create(*engine_, options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    return std::move(*session);
  }
  Result<Generation> generate(Session& session, int64_t n) {
    GenerateOptions options;
    options.max_tokens = n;
    options.sampling.temperature = 0;
    options.ignore_eos = true;
    return session.generate(options);
  }
  // What an undisturbed session answers.
  std::vector<int32_t> answer(int64_t n) {
    const auto session = create(ForcedLayout::kExact);
    EXPECT_TRUE(session->prefill(prompt_).ok());
    return generate(*session, n)->tokens;
  }

  Files files_;
  std::vector<int32_t> prompt_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Backends, SessionFault,
                         ::testing::Values(FlashBackend::kAuto, FlashBackend::kPool),
                         [](const auto& info) { return flash_backend_name(info.param); });

TEST_P(SessionFault, AReadThatFailsAmidAnAnswer) {
  const std::vector<int32_t> want = answer(24);
  const auto session = create(ForcedLayout::kAllFlash);
  ASSERT_TRUE(session->prefill(prompt_).ok());
  ASSERT_GT(session->tiers().n_offloaded, 1000);
  ASSERT_TRUE(generate(*session, 8).ok());
  for (const bool flips : {false, true}) {
    (flips ? files_.plan.flip_bit_in_read : files_.plan.fail_read_at) = files_.plan.reads + 2;
    const int64_t length = session->length();
    const auto failed = generate(*session, 4);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.status().code(), flips ? StatusCode::kCorrupt : StatusCode::kIoError);
    EXPECT_LE(session->length(), length + 4);
    files_.plan.fail_read_at = files_.plan.flip_bit_in_read = FaultPlan::kNever;
  }
  // What was sampled before the fault counts: all that was read, and the token that could not be.
  const int64_t sampled = session->length() - kPrompt + 1;
  const auto rest = generate(*session, 8);
  ASSERT_TRUE(rest.ok()) << rest.status().message();
  EXPECT_EQ(rest->tokens, std::vector<int32_t>(want.begin() + sampled, want.begin() + sampled + 8));
}

TEST_P(SessionFault, AnAnswerInPiecesIsTheSame) {
  const std::vector<int32_t> want = answer(12);
  const auto session = create(ForcedLayout::kAllFlash);
  ASSERT_TRUE(session->prefill(prompt_).ok());
  std::vector<int32_t> got;
  for (int i = 0; i < 3; ++i) {
    const auto piece = generate(*session, 4);
    ASSERT_TRUE(piece.ok()) << piece.status().message();
    got.insert(got.end(), piece->tokens.begin(), piece->tokens.end());
  }
  EXPECT_EQ(got, want);
}

TEST_P(SessionFault, AFullDiskWhileSettling) {
  const auto session = create(ForcedLayout::kAllFlash);
  files_.plan.disk_full_at = files_.plan.bytes_written + (1 << 20);
  const Status refused = session->prefill(prompt_);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.message();
  EXPECT_EQ(session->length(), kPrompt) << "the prompt has been read";
  files_.plan.disk_full_at = FaultPlan::kNever;
  const int32_t more[] = {17};
  ASSERT_TRUE(session->prefill(more).ok());
  EXPECT_GT(session->tiers().n_offloaded, 1000);
  prompt_.push_back(17);
  EXPECT_EQ(generate(*session, 8)->tokens, answer(8));
}

}  // namespace
}  // namespace tierkv
