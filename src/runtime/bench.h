// How fast a model reads and generates, in llama-bench's terms: pp512 reads 512 tokens, tg128
// generates 128, "@ d4096" with 4,096 tokens in the cache before. And what the work comes to, to
// hold the speed against a roof (roofs.h): operations for reading, bytes for generating.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/session.h"

namespace tierkv {

// One of n_prompt and n_gen is 0.
struct BenchTest {
  int64_t n_prompt = 0, n_gen = 0;
  int64_t n_depth = 0;  // tokens in the cache before

  int64_t n_measured() const { return n_prompt + n_gen; }
  std::string name() const;
};

struct BenchOptions {
  // The layout and where flash is; the counts of tokens come from the test. Generating is measured
  // with the depth settled in this layout. A prompt is exact while it is read, whatever the layout,
  // and so is the depth before it.
  KvRequest request;
  int repetitions = 5;
  int64_t max_chunk = 0;   // as SessionOptions has it
  bool warmup = true;      // once before, without the depth, as llama-bench does
  bool disk_roof = true;   // measure the disk around each repetition that generates over flash
  Trace* trace = nullptr;  // of the measured session
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(int done)> progress;  // repetitions
};

struct BenchResult {
  std::vector<int64_t> samples_ns;  // one a repetition
  double operations = 0;            // of one repetition that reads a prompt
  double read_bytes = 0;            // the least memory traffic of one that generates
  TierReport tiers;                 // when the measured part began
  uint64_t peak_rss_bytes = 0;      // of this test, where the system can tell
  FlashStats flash;                 // of the measured parts
  // Of generating over flash, mean over repetitions: bytes a second of flash, of its disk with
  // nothing else to do, measured before and after, and the one over the other. 0: not measured.
  double flash_rate = 0, disk_rate = 0, disk_share = 0;
};

// OK, or what run_bench would fail with for want of context or RAM. The engine need not be loaded.
Status check_bench(Engine& engine, const BenchTest& test, const BenchOptions& options);

Result<BenchResult> run_bench(Engine& engine, const BenchTest& test, const BenchOptions& options);

struct MeanAndDeviation {
  double mean = 0, deviation = 0;  // of a sample; 0 for a single value
};
MeanAndDeviation mean_and_deviation(const std::vector<double>& values);

// Operations (two a multiply-add) that reading n_tokens after n_depth needs: matrices, attention to
// the keys that each query sees, and one row of logits. Of the last layer that is queries, keys and
// values, and the rest for the last token only.
double prompt_operations(const ModelSpec& spec, int64_t n_depth, int64_t n_tokens);

// Packed bytes that one generated token multiplies: all layers and the output matrix. Of an
// embedding of its own a token needs one row, not counted here.
uint64_t weight_bytes_per_token(const Weights& weights);

// Bytes of K and V that attention to `length` tokens reads, where `tiers` says in which form they
// are (tokens on flash are read from their staging buffer, in float16).
double kv_bytes_per_token(const KvLayout& layout, const TierReport& tiers, int64_t length);

}  // namespace tierkv
