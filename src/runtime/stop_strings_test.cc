#include "runtime/stop_strings.h"

#include <gtest/gtest.h>

namespace tierkv {
namespace {

// What is shown of pieces, flush included; "|" where the answer was ended.
std::string shown(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopStrings filter(std::move(stops));
  std::string out;
  for (const std::string& piece : pieces) out += filter.push(piece);
  out += filter.flush();
  if (filter.found()) out.push_back('|');
  return out;
}

TEST(StopStrings, EndsBeforeTheFirst) {
  EXPECT_EQ(shown({"\n"}, {"one line\nanother"}), "one line|");
  EXPECT_EQ(shown({"b", "ab"}, {"xab"}), "x|");
  EXPECT_EQ(shown({"END"}, {"E", "N", "D", "more"}), "|");
  EXPECT_EQ(shown({"\n\nQ:"}, {"a\n", "\nQ", "; b\n\n", "Q:c"}), "a\n\nQ; b|");
  EXPECT_EQ(shown({"aab"}, {"aa", "ab"}), "a|");  // begins within what was held
}

TEST(StopStrings, ShowsEverythingElse) {
  EXPECT_EQ(shown({}, {"a", "b"}), "ab");
  EXPECT_EQ(shown({""}, {"a", "b"}), "ab");
  EXPECT_EQ(shown({"END"}, {"an EN", "E", "N"}), "an ENEN");
}

TEST(StopStrings, HoldsBackNoMoreThanItMust) {
  StopStrings filter({"END", "\n\n"});
  EXPECT_EQ(filter.push("word E"), "word ");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("T\n"), "ENT");
  EXPECT_EQ(filter.push("x"), "\nx");
  EXPECT_EQ(filter.flush(), "");
}

}  // namespace
}  // namespace tierkv
