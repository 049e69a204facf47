// A model's accuracy profile: what `tierkv calibrate` measured, in a JSON file beside the model
// (docs/formats.md, "Profile"). It is bound to the model by hash, and anything odd in it is
// refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "kv/kv_layout.h"
#include "plan/accuracy.h"
#include "runtime/kv_request.h"

namespace tierkv {

struct ProfileText {
  std::string name;  // of the file, for people
  int64_t tokens = 0;
  friend bool operator==(const ProfileText&, const ProfileText&) = default;
};

// A whole plan that was predicted and measured, to see that the parts add up.
struct ProfileCheck {
  double bits = 0;  // per element of Tier-1
  double predicted = 0, measured = 0;
  friend bool operator==(const ProfileCheck&, const ProfileCheck&) = default;
};

struct Profile {
  uint64_t model_hash = 0;
  std::string model;  // its file's name when it was measured, for people
  int64_t prefix = 0, tokens = 0;
  std::vector<ProfileText> texts;
  AccuracyModel accuracy;
  std::vector<ProfileCheck> checks;
};

std::string format_profile(const Profile& profile);
// Errors don't name the file.
Result<Profile> parse_profile(std::string_view json);
// Whether the profile is this model's: the hash, and one sensitivity for each KV head.
Status check_profile(const Profile& profile, uint64_t model_hash, const KvLayout& layout);

// Where a model's profile is looked for and written: beside it, else in the user's cache.
std::string profile_beside(const std::string& model_path);
std::string profile_in_cache(uint64_t model_hash);

// `wanted`: empty for the first profile found, "none", or a file. A named file that does not serve
// is an error; one that was found is a note, and the defaults serve.
Result<AccuracyChoice> choose_accuracy(FileSystem& file_system, const std::string& model_path,
                                       uint64_t model_hash, const KvLayout& layout,
                                       const std::string& wanted);

}  // namespace tierkv
