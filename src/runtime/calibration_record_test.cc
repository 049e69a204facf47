#include "runtime/calibration_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tierkv {
namespace {

namespace fs = std::filesystem;

class Record : public testing::Test {
 protected:
  Record() : path_(fs::temp_directory_path() / ("tierkv-record-" + std::to_string(getpid()))) {}
  ~Record() override { fs::remove(path_); }

  CalibrationRecord open(uint64_t key, size_t most = 100) {
    CalibrationRecord record;
    record.open(real_file_system(), path_, key, most);
    return record;
  }
  const fs::path path_;
};

TEST_F(Record, GoesOnWhereItStopped) {
  CalibrationRecord first = open(7);
  const std::vector<double> results = {1e-300, 0.1, 1 / 3.0, 0};
  for (const double result : results) ASSERT_TRUE(first.add(result).ok());
  ASSERT_TRUE(first.save().ok());
  EXPECT_EQ(open(7).results(), results);  // to the last bit
  EXPECT_EQ(open(8).size(), 0u);          // of something else
  EXPECT_EQ(open(7, 2).size(), 2u);
  first.remove();
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(open(7).size(), 0u);
}

// A crash loses a few results at most.
TEST_F(Record, SavesNowAndThen) {
  CalibrationRecord record = open(1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(record.add(i).ok());
  EXPECT_GE(open(1).size(), 13u);
}

TEST_F(Record, IgnoresWhatItDidNotWrite) {
  ASSERT_TRUE(open(5).save().ok());
  for (const char* text : {"", "{", "[]", "null", R"({"format":"tierkv-calibration-1"})",
                           R"({"format":"tierkv-calibration-1","key":5,"results":7})",
                           R"({"format":"tierkv-calibration-1","key":"5","results":[1]})",
                           R"({"format":"tierkv-calibration-2","key":5,"results":[1]})"}) {
    std::ofstream(path_) << text;
    EXPECT_EQ(open(5).size(), 0u) << text;
  }
  std::ofstream(path_) << R"({"format":"tierkv-calibration-1","key":5,"results":[1,2,"x",4]})";
  EXPECT_EQ(open(5).results(), (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace tierkv
