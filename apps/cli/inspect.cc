// tierkv inspect: what is in a GGUF, and what fits in which budget.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace tierkv::cli {
namespace {

struct InspectFlags {
  ModelFlags model;
  std::string profile;
  bool tensors = false, metadata = false;
};

struct TypeTotal {
  int64_t tensors = 0;
  uint64_t bytes = 0;
};

std::map<std::string, TypeTotal> totals_by_type(const GgufFile& file) {
  std::map<std::string, TypeTotal> totals;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeTotal& total = totals[tensor_type_info(tensor.type).name];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

struct ValueText {
  std::string operator()(uint64_t v) const { return std::to_string(v); }
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return format("%g", v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(const std::string& v) const {
    return v.size() <= 60 ? v : v.substr(0, 60) + format("... (%zu bytes)", v.size());
  }
  template <typename T>
  std::string operator()(const std::vector<T>& v) const {
    return format("array of %zu", v.size());
  }
};

// The metadata as the file has it: the engine's tokenizer has taken the vocabulary out of its own.
Result<std::vector<std::pair<std::string, std::string>>> list_metadata(Engine& engine) {
  TIERKV_ASSIGN_OR_RETURN(const GgufFile file,
                          GgufFile::open(engine.file_system(), engine.file().path()));
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& [key, value] : file.metadata()) {
    list.emplace_back(key, std::visit(ValueText{}, value));
  }
  return list;
}

std::string shape_text(const GgufTensor& tensor) {
  std::string text;
  for (const uint64_t n : tensor.shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

// The least --ram for a prompt of so many tokens and a default answer.
struct FitRow {
  int64_t tokens;
  uint64_t exact, planned, no_flash;
};

std::vector<FitRow> fit_table(Engine& engine, const AccuracyChoice& accuracy) {
  std::vector<FitRow> rows;
  for (int64_t tokens = 2048;; tokens *= 4) {
    const int64_t n = std::min(tokens, engine.spec().n_context - kDefaultExpectedOutput);
    if (n < 1) break;
    SessionOptions options;
    options.request.n_prompt = n;
    options.request.accuracy = accuracy;
    options.request.flash_directory = default_flash_directory();
    FitRow row = {n, 0, Session::least_ram(engine, options), 0};
    options.request.flash_directory.clear();
    row.no_flash = Session::least_ram(engine, options);
    options.request.kv.forced = ForcedLayout::kExact;
    row.exact = Session::least_ram(engine, options);
    rows.push_back(row);
    if (n < tokens || rows.size() >= 8) break;
  }
  return rows;
}

using MetadataList = std::vector<std::pair<std::string, std::string>>;

nlohmann::json inspect_json(Engine& engine, const InspectFlags& flags,
                            const AccuracyChoice& accuracy, const MetadataList& metadata) {
  const ModelSpec& spec = engine.spec();
  nlohmann::json types, fits = nlohmann::json::array();
  for (const auto& [name, total] : totals_by_type(engine.file())) {
    types[name] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  for (const FitRow& row : fit_table(engine, accuracy)) {
    fits.push_back({{"prompt_tokens", row.tokens},
                    {"least_ram_exact", row.exact},
                    {"least_ram_no_flash", row.no_flash},
                    {"least_ram", row.planned}});
  }
  const KvLayout& kv = engine.kv_layout();
  nlohmann::json out = {
      {"path", engine.file().path()},
      {"file_bytes", engine.file().file_bytes()},
      {"gguf_version", engine.file().version()},
      {"architecture", spec.architecture},
      {"name", spec.name},
      {"n_layers", spec.n_layers},
      {"n_embd", spec.n_embd},
      {"n_vocab", spec.n_vocab},
      {"n_context", spec.n_context},
      {"n_heads", spec.layers[0].attention.n_heads},
      {"n_kv_heads", spec.layers[0].attention.n_kv_heads},
      {"head_dim", spec.layers[0].attention.head_dim},
      {"full_attention_layers", kv.full_layers.size()},
      {"kv_bytes_per_token", (kv.full_page_bytes + kv.window_page_bytes) / kPageTokens},
      {"weight_bytes", engine.weight_bytes()},
      {"tensor_types", types},
      {"chat_template", engine.chat_template().ok()},
      {"accuracy", {{"source", accuracy.source}, {"file", accuracy.file}}},
      {"fits", fits},
  };
  if (flags.tensors) {
    for (const GgufTensor& t : engine.file().tensors()) {
      out["tensors"].push_back({{"name", t.name},
                                {"type", tensor_type_info(t.type).name},
                                {"shape", t.shape},
                                {"offset", t.offset},
                                {"bytes", t.bytes}});
    }
  }
  for (const auto& [key, value] : metadata) out["metadata"][key] = value;
  return out;
}

void print_text(Engine& engine, const InspectFlags& flags, const AccuracyChoice& accuracy,
                const MetadataList& metadata) {
  const ModelSpec& spec = engine.spec();
  const KvLayout& kv = engine.kv_layout();
  const KvLayerShape& a = spec.layers[0].attention;
  std::cout << format("%s\n  %s, GGUF v%u, architecture %s%s%s\n", engine.file().path().c_str(),
                      format_size(engine.file().file_bytes()).c_str(), engine.file().version(),
                      spec.architecture.c_str(), spec.name.empty() ? "" : ", ", spec.name.c_str())
            << format(
                   "  %lld layers of %lld, %d query and %d KV heads of %d, vocabulary %lld, "
                   "context %lld\n",
                   static_cast<long long>(spec.n_layers), static_cast<long long>(spec.n_embd),
                   a.n_heads, a.n_kv_heads, a.head_dim, static_cast<long long>(spec.n_vocab),
                   static_cast<long long>(spec.n_context))
            << format(
                   "  KV: %llu bytes a token in float16; %zu layers see everything, %zu a window\n",
                   static_cast<unsigned long long>((kv.full_page_bytes + kv.window_page_bytes) /
                                                   kPageTokens),
                   kv.full_layers.size(), kv.shapes.size() - kv.full_layers.size())
            << "  chat template: " << (engine.chat_template().ok() ? "yes" : "no")
            << "\n\nweights\n";
  for (const auto& [name, total] : totals_by_type(engine.file())) {
    std::cout << format("  %-6s %5lld tensors  %10s\n", name.c_str(),
                        static_cast<long long>(total.tensors), format_size(total.bytes).c_str());
  }
  std::cout << format("  packed in RAM        %10s\n", format_size(engine.weight_bytes()).c_str())
            << "\naccuracy is predicted from " << accuracy_text(accuracy)
            << "\n\nthe least --ram for a prompt and 256 tokens of answer\n"
            << format("  %10s  %12s  %18s  %12s\n", "prompt", "all exact", "without flash",
                      "with flash");
  for (const FitRow& row : fit_table(engine, accuracy)) {
    std::cout << format("  %10lld  %12s  %18s  %12s\n", static_cast<long long>(row.tokens),
                        format_size(row.exact).c_str(), format_size(row.no_flash).c_str(),
                        format_size(row.planned).c_str());
  }
  if (!metadata.empty()) std::cout << "\nmetadata\n";
  for (const auto& [key, value] : metadata) std::cout << "  " << key << " = " << value << "\n";
  if (flags.tensors) {
    std::cout << "\ntensors\n";
    for (const GgufTensor& t : engine.file().tensors()) {
      std::cout << format("  %-40s %-5s %s\n", t.name.c_str(), tensor_type_info(t.type).name,
                          shape_text(t).c_str());
    }
  }
}

Status execute(const InspectFlags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.model.open());
  TIERKV_ASSIGN_OR_RETURN(const AccuracyChoice accuracy, read_accuracy(*engine, flags.profile));
  MetadataList metadata;
  if (flags.metadata) {
    TIERKV_ASSIGN_OR_RETURN(metadata, list_metadata(*engine));
  }
  if (flags.model.json) {
    std::cout << inspect_json(*engine, flags, accuracy, metadata)
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << std::endl;
  } else {
    print_text(*engine, flags, accuracy, metadata);
  }
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* inspect =
      app.add_subcommand("inspect", "what is in a GGUF file, and what fits in which RAM budget");
  flags->model.add_to(*inspect);
  add_profile_flag(*inspect, flags->profile);
  inspect->add_flag("--tensors", flags->tensors, "list the tensors");
  inspect->add_flag("--metadata", flags->metadata, "list the metadata");
  inspect->callback([flags, &exit_code] {
    const Status status = execute(*flags);
    if (!status.ok()) exit_code = report_error(status, flags->model.json);
  });
}

}  // namespace tierkv::cli
