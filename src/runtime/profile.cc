#include "runtime/profile.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "plan/accuracy_fit.h"

namespace tierkv {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "tierkv-profile";
constexpr int kVersion = 3;
constexpr uint64_t kMostBytes = 16 << 20;
constexpr size_t kMostHeads = 1 << 16;
constexpr size_t kMostTexts = 1000, kMostName = 4096;
constexpr double kMostKld = 100;     // nats; a uniform guess over 2^64 tokens has 44
constexpr double kMostFactor = 1e6;  // of a width against the reference
constexpr int64_t kMostTokens = int64_t{1} << 40;

std::string hash_text(uint64_t hash) {
  return format("%016llx", static_cast<unsigned long long>(hash));
}

bool parse_hash(const std::string& text, uint64_t& hash) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  return error == std::errc() && end == text.data() + text.size() && text.size() == 16;
}

Json factors_json(const WidthFactors& factors, std::span<const uint8_t> widths) {
  Json out = Json::object();
  for (const uint8_t bits : widths) out[std::to_string(bits)] = factors[bits];
  return out;
}

// Reads fields of one object; the first that does not serve is kept as the error.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail("is not an object");
  }

  double number(const std::string& key, double most) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= 0 && number <= most)) fail("has no sensible \"" + key + "\"");
    return number;
  }
  int64_t count(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned() || value->get<uint64_t>() > kMostTokens) {
      fail("has no sensible \"" + key + "\"");
      return 0;
    }
    return value->get<int64_t>();
  }
  std::string text(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kMostName) {
      fail("has no sensible \"" + key + "\"");
      return "";
    }
    return value->get<std::string>();
  }
  const Json& list(const std::string& key, size_t most) {
    const Json* value = find(key);
    if (value == nullptr || !value->is_array() || value->size() > most) {
      fail("has no sensible \"" + key + "\"");
      return empty_;
    }
    return *value;
  }
  const Json& object(const std::string& key) {
    const Json* value = find(key);
    return value == nullptr ? empty_ : *value;
  }

  void fail(const std::string& what) {
    if (status_.ok()) status_ = corrupt(where_ + " " + what);
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const std::string& key) {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    fail("has no \"" + key + "\"");
    return nullptr;
  }

  const Json& object_;
  const std::string where_;
  const Json empty_ = Json::array();
  Status status_;
};

Result<WidthFactors> read_factors(const Json& json, const std::string& where,
                                  std::span<const uint8_t> widths) {
  WidthFactors factors{};
  Fields fields(json, where);
  double before = 0;
  for (const uint8_t bits : widths) {  // most bits first
    factors[bits] = fields.number(std::to_string(bits), kMostFactor);
    if (factors[bits] < before) fields.fail("grows with the number of bits");
    before = factors[bits];
  }
  if (!fields.status().ok()) return fields.status();
  return factors;
}

Status read_accuracy(Fields& fields, AccuracyModel& accuracy) {
  for (const Json& json : fields.list("heads", kMostHeads)) {
    Fields head(json, "a KV head");
    accuracy.heads.push_back({head.number("k", kMostKld), head.number("v", kMostKld)});
    TIERKV_RETURN_IF_ERROR(head.status());
  }
  accuracy.floor = fields.number("floor", kMostKld);
  accuracy.reach.exponent = fields.number("reach", kMostReach);
  TIERKV_RETURN_IF_ERROR(fields.status());
  TIERKV_ASSIGN_OR_RETURN(accuracy.k_factor,
                          read_factors(fields.object("k_factor"), "\"k_factor\"", kKeyWidths));
  TIERKV_ASSIGN_OR_RETURN(accuracy.v_factor,
                          read_factors(fields.object("v_factor"), "\"v_factor\"", kValueWidths));
  return fields.status();
}

Status read_measured(const Json& json, Profile& profile) {
  Fields fields(json, "\"measured\"");
  profile.prefix = fields.count("prefix");
  profile.tokens = fields.count("tokens");
  for (const Json& text_json : fields.list("texts", kMostTexts)) {
    Fields text(text_json, "a text");
    profile.texts.push_back({text.text("name"), text.count("tokens")});
    TIERKV_RETURN_IF_ERROR(text.status());
  }
  for (const Json& check_json : fields.list("checks", kMostTexts)) {
    Fields check(check_json, "a check");
    profile.checks.push_back({check.number("bits", 64), check.number("predicted", kMostKld),
                              check.number("measured", kMostKld)});
    TIERKV_RETURN_IF_ERROR(check.status());
  }
  return fields.status();
}

Result<Profile> read_profile(const Json& json) {
  Fields fields(json, "the profile");
  if (fields.text("format") != kFormat) fields.fail("is not a TierKV profile");
  const int64_t version = fields.count("version");
  TIERKV_RETURN_IF_ERROR(fields.status());
  if (version != kVersion) {
    return unsupported(
        format("the profile has version %lld, this program reads %d; make it anew "
               "with tierkv calibrate",
               static_cast<long long>(version), kVersion));
  }
  Profile profile;
  Fields model(fields.object("model"), "\"model\"");
  const std::string hash = model.text("hash");
  profile.model = model.text("file");
  TIERKV_RETURN_IF_ERROR(model.status());
  if (!parse_hash(hash, profile.model_hash)) fields.fail("has a hash that is none");
  TIERKV_RETURN_IF_ERROR(fields.status());
  TIERKV_RETURN_IF_ERROR(read_measured(fields.object("measured"), profile));
  TIERKV_RETURN_IF_ERROR(read_accuracy(fields, profile.accuracy));
  return profile;
}

}  // namespace

std::string format_profile(const Profile& profile) {
  Json heads = Json::array(), texts = Json::array(), checks = Json::array();
  for (const HeadSensitivity& head : profile.accuracy.heads) {
    heads.push_back({{"k", head.k}, {"v", head.v}});
  }
  for (const ProfileText& text : profile.texts) {
    texts.push_back({{"name", text.name}, {"tokens", text.tokens}});
  }
  for (const ProfileCheck& check : profile.checks) {
    checks.push_back(
        {{"bits", check.bits}, {"predicted", check.predicted}, {"measured", check.measured}});
  }
  const Json out = {
      {"format", kFormat},
      {"version", kVersion},
      {"model", {{"hash", hash_text(profile.model_hash)}, {"file", profile.model}}},
      {"measured",
       {{"prefix", profile.prefix},
        {"tokens", profile.tokens},
        {"texts", texts},
        {"checks", checks}}},
      {"heads", heads},
      {"k_factor", factors_json(profile.accuracy.k_factor, kKeyWidths)},
      {"v_factor", factors_json(profile.accuracy.v_factor, kValueWidths)},
      {"floor", profile.accuracy.floor},
      {"reach", profile.accuracy.reach.exponent},
  };
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Profile> parse_profile(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return corrupt("the profile is no JSON");
  return read_profile(json);
}

Status check_profile(const Profile& profile, uint64_t hash, const KvLayout& layout) {
  if (profile.model_hash != hash) {
    return invalid_argument(format("the profile is of another model (%s, hash %s; this one has %s)",
                                   profile.model.substr(0, 80).c_str(),
                                   hash_text(profile.model_hash).c_str(), hash_text(hash).c_str()));
  }
  size_t n_heads = 0;
  for (const int layer : layout.full_layers) n_heads += layout.shapes[layer].n_kv_heads;
  if (profile.accuracy.heads.size() == n_heads) return {};
  return corrupt(format("the profile has %zu KV heads, the model %zu",
                        profile.accuracy.heads.size(), n_heads));
}

std::string profile_beside(const std::string& model_path) {
  return model_path + ".tierkv-profile.json";
}

std::string profile_in_cache(uint64_t hash) {
  return default_flash_directory() + "/profiles/" + hash_text(hash) + ".json";
}

namespace {

Result<AccuracyModel> load_accuracy(FileSystem& file_system, const std::string& path, uint64_t hash,
                                    const KvLayout& layout) {
  TIERKV_ASSIGN_OR_RETURN(const std::string text, read_small_file(file_system, path, kMostBytes));
  Result<Profile> profile = parse_profile(text);
  if (!profile.ok()) return profile.status().with_context(path);
  TIERKV_RETURN_IF_ERROR(check_profile(*profile, hash, layout).with_context(path));
  return std::move(profile->accuracy);
}

}  // namespace

Result<AccuracyChoice> choose_accuracy(FileSystem& file_system, const std::string& model_path,
                                       uint64_t hash, const KvLayout& layout,
                                       const std::string& wanted) {
  AccuracyChoice choice;
  if (wanted == "none") return choice;
  const std::vector<std::string> places =
      wanted.empty() ? std::vector<std::string>{profile_beside(model_path), profile_in_cache(hash)}
                     : std::vector<std::string>{wanted};
  for (const std::string& path : places) {
    Result<AccuracyModel> accuracy = load_accuracy(file_system, path, hash, layout);
    if (accuracy.ok()) {
      choice.model = std::move(*accuracy);
      choice.source = "profile";
      choice.file = path;
      choice.note.clear();
      return choice;
    }
    if (!wanted.empty()) return accuracy.status();
    if (accuracy.status().code() != StatusCode::kNotFound && choice.note.empty()) {
      choice.note = accuracy.status().message() + "; planning with the defaults for any model";
    }
  }
  return choice;
}

}  // namespace tierkv
