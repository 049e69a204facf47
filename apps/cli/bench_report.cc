#include "cli/bench_report.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/size.h"

namespace tierkv::cli {
namespace {

using Json = nlohmann::ordered_json;

// Tokens a second of each repetition.
std::vector<double> speeds(const BenchRow& row) {
  std::vector<double> speeds;
  for (const int64_t ns : row.result.samples_ns) {
    speeds.push_back(1e9 * static_cast<double>(row.test.n_measured()) / static_cast<double>(ns));
  }
  return speeds;
}

MeanAndDeviation nanoseconds(const BenchRow& row) {
  return mean_and_deviation({row.result.samples_ns.begin(), row.result.samples_ns.end()});
}

// What limits a test, and how much of that it reached.
struct RoofShare {
  const char* roof;  // "int8" for reading a prompt, "read" for generating, "disk" over flash
  double share;      // 0: no roof was measured
};

RoofShare roof_share(const BenchRow& row) {
  const bool generates = row.test.n_gen > 0;
  if (row.result.disk_share > 0) return {"disk", row.result.disk_share};
  const double work = generates ? row.result.read_bytes : row.result.operations;
  double most = 0;
  if (row.roofs) most = generates ? row.roofs->read_bytes : row.roofs->int8_operations;
  const double seconds = nanoseconds(row).mean / 1e9;
  return {generates ? "read" : "int8", most > 0 && seconds > 0 ? work / seconds / most : 0};
}

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(); }

Json row_json(const BenchRow& row) {
  const MeanAndDeviation ns = nanoseconds(row), ts = mean_and_deviation(speeds(row));
  const RoofShare share = roof_share(row);
  const Roofs roofs = row.roofs.value_or(Roofs());
  return {{"model_filename", row.model},
          {"model_size", row.model_bytes},
          {"model_n_params", row.model_params},
          {"weights_bytes", row.weights_bytes},
          {"n_threads", row.threads},
          {"isa", row.isa},
          {"kv", row.kv},
          {"test", row.test.name()},
          {"n_prompt", row.test.n_prompt},
          {"n_gen", row.test.n_gen},
          {"n_depth", row.test.n_depth},
          {"avg_ns", ns.mean},
          {"stddev_ns", ns.deviation},
          {"avg_ts", ts.mean},
          {"stddev_ts", ts.deviation},
          {"samples_ns", row.result.samples_ns},
          {"samples_ts", speeds(row)},
          {"n_exact", row.result.tiers.n_exact},
          {"n_compressed", row.result.tiers.n_compressed},
          {"n_offloaded", row.result.tiers.n_offloaded},
          {"peak_rss_bytes", row.result.peak_rss_bytes},
          {"flash_bytes_read", row.result.flash.bytes_read},
          {"flash_hit_rate", row.result.flash.hit_rate()},
          {"flash_stall_ns", row.result.flash.stall_seconds * 1e9},
          {"flash_io", flash_backend_name(row.result.tiers.flash_backend)},
          {"flash_gbps", number_or_null(row.result.flash_rate / 1e9)},
          {"disk_gbps", number_or_null(row.result.disk_rate / 1e9)},
          {"operations", number_or_null(row.result.operations)},
          {"read_bytes", number_or_null(row.result.read_bytes)},
          {"roof", share.roof},
          {"roof_share", number_or_null(share.share)},
          {"roof_int8_gops", number_or_null(roofs.int8_operations / 1e9)},
          {"roof_bf16_gops", number_or_null(roofs.bf16_operations / 1e9)},
          {"roof_f32_gops", number_or_null(roofs.f32_operations / 1e9)},
          {"roof_read_gbps", number_or_null(roofs.read_bytes / 1e9)}};
}

std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

class MarkdownPrinter : public BenchPrinter {
 public:
  void roofs(const std::string& isa, int threads, const Roofs& roofs) override {
    const std::string bf16 = roofs.bf16_operations > 0
                                 ? format("%.0f GOPS", roofs.bf16_operations / 1e9)
                                 : std::string("none");
    const std::string read = roofs.read_bytes > 0 ? format("%.1f GB/s", roofs.read_bytes / 1e9)
                                                  : std::string("not measured: too little RAM");
    std::cout << format("roofs, %s, %d thread%s: int8 dot %.0f GOPS, bf16 dot %s, f32 FMA %.0f ",
                        isa.c_str(), threads, threads == 1 ? "" : "s", roofs.int8_operations / 1e9,
                        bf16.c_str(), roofs.f32_operations / 1e9)
              << "GOPS, read " << read << std::endl;
    has_roofs_ = true;
  }

  void row(const BenchRow& row) override {
    if (!has_header_) print_header();
    const MeanAndDeviation ts = mean_and_deviation(speeds(row));
    std::cout << format("| %s | %10s | %8.2f M | %7d | %6s | %5s | %16s | %16s |",
                        file_name(row.model).c_str(), format_size(row.model_bytes).c_str(),
                        static_cast<double>(row.model_params) / 1e6, row.threads, row.isa.c_str(),
                        row.kv.c_str(), row.test.name().c_str(),
                        format("%.2f ± %.2f", ts.mean, ts.deviation).c_str());
    if (has_roofs_) std::cout << format(" %11s |", share_text(row).c_str());
    std::cout << format(" %10s |", format_size(row.result.peak_rss_bytes).c_str()) << std::endl;
  }

  void end() override {}

 private:
  void print_header() {
    has_header_ = true;
    if (has_roofs_) std::cout << "\n";
    std::cout << "| model | size | params | threads | isa | kv | test | t/s |"
              << (has_roofs_ ? " of the roof |" : "") << " peak RSS |\n"
              << "| --- | ---: | ---: | ---: | --- | --- | ---: | ---: |"
              << (has_roofs_ ? " ---: |" : "") << " ---: |" << std::endl;
  }

  static std::string file_name(const std::string& path) {
    return path.substr(path.find_last_of('/') + 1);
  }
  static std::string share_text(const BenchRow& row) {
    const RoofShare share = roof_share(row);
    return share.share > 0 ? format("%.1f %% %s", 100 * share.share, share.roof) : "";
  }

  bool has_header_ = false, has_roofs_ = false;
};

// Every row carries its roofs.
class RowPrinter : public BenchPrinter {
 public:
  void roofs(const std::string&, int, const Roofs&) override {}
  void end() override {}
};

class CsvPrinter : public RowPrinter {
 public:
  void row(const BenchRow& row) override {
    const Json json = row_json(row);
    std::string header, values;
    for (const auto& [key, value] : json.items()) {
      header += (header.empty() ? "" : ",") + key;
      values += (values.empty() ? "" : ",") + quoted(value);
    }
    if (!has_header_) std::cout << header << "\n";
    has_header_ = true;
    std::cout << values << std::endl;
  }

 private:
  static std::string quoted(const Json& value) {
    if (value.is_null()) return "\"\"";
    std::string out = "\"";
    for (const char c : value.is_string() ? value.get<std::string>() : dump(value)) {
      out += c;
      if (c == '"') out += c;
    }
    return out + "\"";
  }

  bool has_header_ = false;
};

// One array, printed when all is done: what fails prints an error object instead.
class JsonPrinter : public RowPrinter {
 public:
  void row(const BenchRow& row) override { rows_.push_back(row_json(row)); }
  void end() override { std::cout << dump(rows_, 2) << std::endl; }

 private:
  Json rows_ = Json::array();
};

class JsonLinesPrinter : public RowPrinter {
 public:
  void row(const BenchRow& row) override { std::cout << dump(row_json(row)) << std::endl; }
};

}  // namespace

std::unique_ptr<BenchPrinter> make_bench_printer(const std::string& format) {
  if (format == "csv") return std::make_unique<CsvPrinter>();
  if (format == "json") return std::make_unique<JsonPrinter>();
  if (format == "jsonl") return std::make_unique<JsonLinesPrinter>();
  return std::make_unique<MarkdownPrinter>();
}

}  // namespace tierkv::cli
