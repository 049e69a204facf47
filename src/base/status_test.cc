#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace tierkv {
namespace {

TEST(Status, CarriesCodeAndMessage) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), StatusCode::kOk);
  const Status status = not_found("no such tensor");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no such tensor");
}

TEST(Status, EachMakerMakesItsCode) {
  EXPECT_EQ(invalid_argument("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(not_found("").code(), StatusCode::kNotFound);
  EXPECT_EQ(corrupt("").code(), StatusCode::kCorrupt);
  EXPECT_EQ(unsupported("").code(), StatusCode::kUnsupported);
  EXPECT_EQ(resource_exhausted("").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(io_error("").code(), StatusCode::kIoError);
  EXPECT_EQ(cancelled("").code(), StatusCode::kCancelled);
  EXPECT_EQ(internal_error("").code(), StatusCode::kInternal);
}

TEST(Status, CodesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  constexpr int kCodes = static_cast<int>(StatusCode::kInternal) + 1;
  for (int code = 0; code < kCodes; ++code) {
    names.insert(status_code_name(static_cast<StatusCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kCodes));
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Status, ContextGoesInFrontAndOnlyOfErrors) {
  const Status status = corrupt("count is absurd").with_context("reading a.gguf");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(status.message(), "reading a.gguf: count is absurd");
  const Status fine = Status().with_context("reading a.gguf");
  EXPECT_TRUE(fine.ok());
  EXPECT_EQ(fine.message(), "");
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(7));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(**good, 7);
  const std::unique_ptr<int> taken = std::move(*good);
  EXPECT_EQ(*taken, 7);
  const Result<std::unique_ptr<int>> bad(io_error("gone"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "gone");
}

Status fail_if(bool fail) { return fail ? cancelled("asked to") : Status(); }

Result<int> one_or_error(bool fail) {
  if (fail) return unsupported("not this");
  return 1;
}

Status macros(bool first, bool second, int& reached) {
  TIERKV_RETURN_IF_ERROR(fail_if(first));
  reached = 1;
  TIERKV_ASSIGN_OR_RETURN(const int one, one_or_error(second));
  int two = 0;
  TIERKV_ASSIGN_OR_RETURN(two, one_or_error(false));
  reached = one + two;
  return {};
}

TEST(StatusMacros, ReturnTheFirstErrorAndGoOnWithoutOne) {
  int reached = 0;
  EXPECT_EQ(macros(true, false, reached).code(), StatusCode::kCancelled);
  EXPECT_EQ(reached, 0);
  EXPECT_EQ(macros(false, true, reached).code(), StatusCode::kUnsupported);
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(macros(false, false, reached).ok());
  EXPECT_EQ(reached, 2);
}

TEST(Format, IsPrintfOfAnyLength) {
  EXPECT_EQ(format("%d %s %.2f", 3, "x", 1.5), "3 x 1.50");
  EXPECT_EQ(format("%s", ""), "");
  const std::string longer(10000, 'a');
  EXPECT_EQ(format("<%s>", longer.c_str()), "<" + longer + ">");
}

}  // namespace
}  // namespace tierkv
