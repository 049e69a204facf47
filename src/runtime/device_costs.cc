#include "runtime/device_costs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/process.h"
#include "runtime/engine.h"
#include "runtime/kv_request.h"
#include "runtime/measure_costs.h"

namespace tierkv {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;

// Seconds of decode attention a stored byte where nothing was measured: float16 and codes
// (docs/decisions.md, "default costs").
constexpr double kExactSecondsPerByte = 1.0 / 12e9;
constexpr double kCodeSecondsPerByte = 1.0 / 8e9;
// Low rank, by the products of rank and head_dim that rebuild a key; what else attention does is in
// it (bench_low_rank: 40e9 a second on each of two cores).
constexpr double kRebuildSecondsPerProduct = 1.0 / 80e9;

double seconds_of(uint64_t block_bytes, double per_byte) {
  return static_cast<double>(block_bytes) / kPageTokens * per_byte;
}

const AttentionCosts* find(const std::vector<AttentionCosts>& all, const KvLayerShape& shape) {
  for (const AttentionCosts& costs : all) {
    if (costs.head_dim == shape.head_dim && costs.group == shape.group()) return &costs;
  }
  return nullptr;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name") || line.starts_with("CPU part")) return line;
  }
  return "unknown CPU";
}

std::string key_of(Engine& engine) {
  return format("%s; %s; %d threads; %s; model %016llx", cpu_name().c_str(),
                isa_name(engine.kernels().isa), engine.pool().size(), program_build().c_str(),
                static_cast<unsigned long long>(model_hash(engine.file())));
}

// One file for each device, model, thread count and instruction set; newer builds replace it.
fs::path file_of(Engine& engine, const std::string& cache) {
  const fs::path folder = cache.empty() ? default_costs_folder() : cache;
  return folder / format("%016llx-%s-%d.json",
                         static_cast<unsigned long long>(model_hash(engine.file())),
                         isa_name(engine.kernels().isa), engine.pool().size());
}

// Whole or not at all, whoever else writes it. It is a cache: failing is no error.
void write_file(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path part = path.string() + format(".%d.part", static_cast<int>(getpid()));
  {
    std::ofstream out(part);
    out << text;
    if (!out.flush()) return (void)fs::remove(part, error);
  }
  fs::rename(part, path, error);
  if (error) fs::remove(part, error);
}

}  // namespace

double DeviceCosts::exact_seconds(const KvLayerShape& shape) const {
  const AttentionCosts* found = find(attention, shape);
  if (found != nullptr) return found->exact_seconds;
  return seconds_of(exact_block_bytes(shape.head_dim), kExactSecondsPerByte);
}

double DeviceCosts::codec_seconds(const KvLayerShape& shape, CodecId codec) const {
  if (codec == CodecId{}) return exact_seconds(shape);
  if (codec.is_low_rank()) {  // keys are rebuilt: a product of rank x head_dim for every token
    const int64_t rank = low_rank_of(shape.n_kv_heads, shape.head_dim, codec.rank_permille);
    return static_cast<double>(rank * shape.head_dim) * kRebuildSecondsPerProduct;
  }
  if (const AttentionCosts* found = find(attention, shape)) {
    for (const AttentionCosts::Codec& entry : found->codecs) {
      if (entry.codec == codec) return entry.seconds;
    }
  }
  return seconds_of(compressed_block_bytes(shape, codec), kCodeSecondsPerByte);
}

std::string default_costs_folder() { return default_flash_directory() + "/costs"; }

std::string costs_to_json(const DeviceCosts& costs, const std::string& key) {
  nlohmann::json json = {{"version", kVersion},
                         {"key", key},
                         {"step_seconds", costs.step_seconds},
                         {"flash_bytes_per_second", costs.flash_bytes_per_second},
                         {"flash_measured", costs.flash_measured},
                         {"attention", nlohmann::json::array()}};
  for (const AttentionCosts& shape : costs.attention) {
    nlohmann::json codecs;
    for (const auto& [codec, seconds] : shape.codecs) codecs[codec_name(codec)] = seconds;
    json["attention"].push_back({{"head_dim", shape.head_dim},
                                 {"group", shape.group},
                                 {"exact_seconds", shape.exact_seconds},
                                 {"codec_seconds", codecs}});
  }
  return json.dump(1) + "\n";
}

namespace {

double amount(const nlohmann::json& json, const char* name) {
  const double value = json.at(name).get<double>();
  if (!std::isfinite(value) || value < 0) throw std::domain_error(name);
  return value;
}

AttentionCosts attention_from(const nlohmann::json& json) {
  AttentionCosts costs;
  costs.head_dim = json.at("head_dim").get<int>();
  costs.group = json.at("group").get<int>();
  costs.exact_seconds = amount(json, "exact_seconds");
  for (const auto& [name, seconds] : json.at("codec_seconds").items()) {
    const Result<CodecId> codec = parse_codec(name);
    if (!codec.ok()) throw std::domain_error(name);
    costs.codecs.push_back({*codec, amount(json.at("codec_seconds"), name.c_str())});
  }
  return costs;
}

}  // namespace

Result<DeviceCosts> costs_from_json(const std::string& text, const std::string& key) {
  try {  // the JSON library's way to say that something is not as it must be
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("version") != kVersion || json.at("key") != key) {
      return not_found("the costs were measured elsewhere");
    }
    DeviceCosts costs;
    costs.measured = true;
    costs.step_seconds = amount(json, "step_seconds");
    costs.flash_bytes_per_second = amount(json, "flash_bytes_per_second");
    costs.flash_measured = json.at("flash_measured").get<bool>();
    for (const auto& shape : json.at("attention")) {
      costs.attention.push_back(attention_from(shape));
    }
    if (costs.flash_bytes_per_second <= 0) return corrupt("the costs' flash has no speed");
    return costs;
  } catch (const std::exception& error) {
    return corrupt(std::string("the file of device costs is damaged: ") + error.what());
  }
}

DeviceCosts cached_device_costs(Engine& engine, const std::string& cache) {
  std::ifstream in(file_of(engine, cache));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Result<DeviceCosts> costs = costs_from_json(text, key_of(engine));
  return costs.ok() ? *costs : DeviceCosts{};
}

DeviceCosts device_costs(Engine& engine, const std::string& flash_directory, bool anew,
                         const std::string& cache) {
  DeviceCosts costs = anew ? DeviceCosts{} : cached_device_costs(engine, cache);
  const bool flash_wanted = !flash_directory.empty() && !costs.flash_measured;
  if (costs.measured && !flash_wanted) return costs;
  if (!costs.measured) measure_decode_costs(engine, costs);
  if (flash_wanted) measure_flash_cost(engine, flash_directory, costs);
  if (costs.measured && !costs.disturbed)
    write_file(file_of(engine, cache), costs_to_json(costs, key_of(engine)));
  return costs;
}

}  // namespace tierkv
