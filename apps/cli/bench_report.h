// Rows of `tierkv bench`, as llama-bench prints them: a Markdown table, CSV, JSON, or JSON lines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/bench.h"
#include "runtime/roofs.h"

namespace tierkv::cli {

// What one result was measured on.
struct BenchRow {
  std::string model;  // path
  uint64_t model_bytes = 0, model_params = 0, weights_bytes = 0;
  int threads = 0;
  std::string isa, kv;
  BenchTest test;
  BenchResult result;
  std::optional<Roofs> roofs;
};

class BenchPrinter {
 public:
  virtual ~BenchPrinter() = default;
  // Before the first row, once for each number of threads.
  virtual void roofs(const std::string& isa, int threads, const Roofs& roofs) = 0;
  virtual void row(const BenchRow& row) = 0;
  // After the last row, unless a test failed.
  virtual void end() = 0;
};

// "md", "csv", "json" or "jsonl", to standard output.
std::unique_ptr<BenchPrinter> make_bench_printer(const std::string& format);

}  // namespace tierkv::cli
