#include "runtime/profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
namespace tierkv {
namespace {

namespace fs = std::filesystem;

Profile example() {
  Profile profile;
  profile.model_hash = 0x0123456789abcdef;
  profile.model = "model \"x\".gguf";
  profile.prefix = 3072;
  profile.tokens = 256;
  profile.texts = {{"a.txt", 5000}, {"\xc3\xa9.txt", 7000}};
  profile.accuracy = default_accuracy();
  profile.accuracy.every_model = {};
  profile.accuracy.heads = {{1e-4, 2e-5}, {0, 3e-9}, {0.25, 1}};
  profile.checks = {{4.75, 1.25e-4, 1.5e-4}};
  return profile;
}

KvLayout layout_of(int n_full_layers, int n_kv_heads) {
  std::vector<KvLayerShape> shapes(
      static_cast<size_t>(n_full_layers),
      KvLayerShape{.n_heads = n_kv_heads, .n_kv_heads = n_kv_heads, .head_dim = 64});
  shapes.push_back({.n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .window = 128});
  return make_kv_layout(shapes);
}

void expect_equal(const Profile& a, const Profile& b) {
  EXPECT_EQ(a.model_hash, b.model_hash);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.prefix, b.prefix);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.texts, b.texts);
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.checks, b.checks);
}

TEST(Profile, ReadsWhatItWrites) {
  const Result<Profile> back = parse_profile(format_profile(example()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  expect_equal(*back, example());
}

// Each edit of a good profile is refused, and the sentence names what is wrong.
TEST(Profile, RefusesWhatIsOdd) {
  const std::string good = format_profile(example());
  struct Edit {
    std::string from, to, says;
  };
  const Edit edits[] = {
      {"\"tierkv-profile\"", "\"other\"", "not a TierKV profile"},
      {"\"version\": 3", "\"version\": 2", "tierkv calibrate"},
      {"\"version\": 3", "\"version\": -1", "version"},
      {"\"heads\"", "\"hats\"", "\"heads\""},
      {"0123456789abcdef", "0123456789abcde", "hash"},
      {"0123456789abcdef", "0x23456789abcdef", "hash"},
      {"\"k\": 0.25", "\"k\": -0.25", "\"k\""},
      {"\"k\": 0.25", "\"k\": 1e300", "\"k\""},
      {"\"k\": 0.25", "\"k\": \"0.25\"", "\"k\""},
      {"\"k\": 0.25", "\"k\": null", "\"k\""},
      {"\"reach\": 1.2", "\"reach\": 50", "\"reach\""},
      {"\"prefix\": 3072", "\"prefix\": 3.5", "\"prefix\""},
      {"\"prefix\": 3072", "\"prefix\": 18446744073709551615", "\"prefix\""},
      {"\"a.txt\"", "7", "\"name\""},
      {"\"floor\": ", "\"floor\": [], \"flor\": ", "\"floor\""},
      {"\"k_factor\": {", "\"k_factor\": [], \"k\": {", "k_factor"},
      {"\"4\": 1.0,", "\"4\": 0.0,", "grows with the number of bits"},
  };
  for (const Edit& edit : edits) {
    std::string bad = good;
    const size_t at = bad.find(edit.from);
    ASSERT_NE(at, std::string::npos) << edit.from;
    bad.replace(at, edit.from.size(), edit.to);
    const Result<Profile> profile = parse_profile(bad);
    ASSERT_FALSE(profile.ok()) << edit.to;
    EXPECT_NE(profile.status().message().find(edit.says), std::string::npos)
        << profile.status().message();
  }
}

TEST(Profile, NoPrefixOfItIsAccepted) {
  const std::string good = format_profile(example());
  for (size_t n = 0; n + 2 < good.size(); n += 7) {
    EXPECT_FALSE(parse_profile(std::string_view(good).substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(parse_profile("[[[[[[[[").ok());
  EXPECT_FALSE(parse_profile(std::string(100000, '[')).ok());
  EXPECT_FALSE(parse_profile("null").ok());
}

TEST(Profile, IsBoundToTheModel) {
  const Profile profile = example();
  EXPECT_TRUE(check_profile(profile, profile.model_hash, layout_of(3, 1)).ok());
  EXPECT_NE(check_profile(profile, 7, layout_of(3, 1)).message().find("another model"),
            std::string::npos);
  EXPECT_EQ(check_profile(profile, profile.model_hash, layout_of(2, 2)).code(),
            StatusCode::kCorrupt);
}

class ChooseAccuracy : public testing::Test {
 protected:
  ChooseAccuracy()
      : folder_(fs::temp_directory_path() / ("tierkv-profile-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~ChooseAccuracy() override { fs::remove_all(folder_); }

  Result<AccuracyChoice> choose(const std::string& wanted) {
    return choose_accuracy(real_file_system(), folder_ / "model.gguf", 1, layout_of(3, 1), wanted);
  }
  void write(const fs::path& path, uint64_t hash) {
    Profile profile = example();
    profile.model_hash = hash;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << format_profile(profile);
  }
  fs::path folder_;
};

TEST_F(ChooseAccuracy, DefaultsWithoutAProfile) {
  const Result<AccuracyChoice> choice = choose("");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->source, "default");
  EXPECT_EQ(choice->note, "");
  EXPECT_EQ(choice->model, default_accuracy());
}

TEST_F(ChooseAccuracy, BesideTheModelThenInTheCache) {
  write(profile_in_cache(1), 1);
  EXPECT_EQ(choose("")->file, profile_in_cache(1));
  write(profile_beside(folder_ / "model.gguf"), 1);
  EXPECT_EQ(choose("")->file, profile_beside(folder_ / "model.gguf"));
  EXPECT_EQ(choose("")->source, "profile");
  EXPECT_EQ(choose("")->model.heads, example().accuracy.heads);
  EXPECT_EQ(choose("none")->source, "default");
}

TEST_F(ChooseAccuracy, AForeignOneIsANoteUnlessItWasNamed) {
  const std::string path = profile_beside(folder_ / "model.gguf");
  write(path, 2);
  const Result<AccuracyChoice> found = choose("");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->source, "default");
  EXPECT_NE(found->note.find("another model"), std::string::npos);
  EXPECT_NE(found->note.find(path), std::string::npos);
  EXPECT_FALSE(choose(path).ok());
  EXPECT_EQ(choose(folder_ / "none.json").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tierkv
