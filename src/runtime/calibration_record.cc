#include "runtime/calibration_record.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"

namespace tierkv {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "tierkv-calibration-1";
constexpr uint64_t kMostBytes = 64 << 20;
constexpr size_t kSaveEvery = 8;

bool is_of(const Json& json, uint64_t key) {
  if (!json.is_object() || json.value("format", Json()) != Json(kFormat)) return false;
  return json.value("key", Json()) == Json(key) && json.value("results", Json()).is_array();
}

}  // namespace

void CalibrationRecord::open(FileSystem& file_system, std::string path, uint64_t key, size_t most) {
  path_ = std::move(path);
  key_ = key;
  if (path_.empty()) return;
  const Result<std::string> text = read_small_file(file_system, path_, kMostBytes);
  if (!text.ok()) return;
  const Json json = Json::parse(*text, nullptr, false);
  if (!is_of(json, key)) return;
  for (const Json& result : json["results"]) {
    const bool sensible = result.is_number() && std::isfinite(result.get<double>());
    if (!sensible || results_.size() == most) break;
    results_.push_back(result.get<double>());
  }
  n_saved_ = results_.size();
}

Status CalibrationRecord::add(double result) {
  results_.push_back(result);
  return results_.size() >= n_saved_ + kSaveEvery ? save() : Status();
}

Status CalibrationRecord::save() {
  if (path_.empty() || n_saved_ == results_.size()) return {};
  const Json json = {{"format", kFormat}, {"key", key_}, {"results", results_}};
  TIERKV_RETURN_IF_ERROR(write_file_atomically(path_, json.dump()));
  n_saved_ = results_.size();
  return {};
}

void CalibrationRecord::remove() {
  if (!path_.empty()) std::remove(path_.c_str());
}

}  // namespace tierkv
