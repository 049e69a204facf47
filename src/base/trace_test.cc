#include "base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/memory_file.h"

namespace tierkv {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string written(const Trace& trace) {
  MemoryFile file;
  EXPECT_TRUE(trace.write(file).ok());
  std::string text(*file.size(), 0);
  EXPECT_TRUE(file.read_at(0, std::as_writable_bytes(std::span(text))).ok());
  return text;
}

std::unique_ptr<Trace> must_create(MemoryBudget& budget, int64_t max_spans) {
  auto trace = Trace::create(budget, max_spans);
  EXPECT_TRUE(trace.ok());
  return std::move(*trace);
}

TEST(Trace, SpansBecomeEventsOfTheirLane) {
  MemoryBudget budget;
  const auto trace = must_create(budget, 10);
  const int64_t now = Trace::now_ns();
  trace->add({"read", now, now + 2500, 7, 3, 2});
  { const TraceScope scope(trace.get(), "matmul"); }
  const std::string text = written(*trace);
  EXPECT_THAT(text, HasSubstr(R"({"name":"read","ph":"X","pid":1,"tid":2,"ts":)"));
  EXPECT_THAT(text, HasSubstr(R"("dur":2.500,"args":{"layer":3,"extent":7}},)"));
  EXPECT_THAT(text, HasSubstr(R"({"name":"matmul","ph":"X","pid":1,"tid":0,)"));
  EXPECT_THAT(text, HasSubstr(R"("tid":2,"args":{"name":"flash I/O 2"}})"));
  EXPECT_THAT(text, HasSubstr(R"("args":{"spans":0}})"));
  EXPECT_EQ(text.substr(text.size() - 3), "]}\n");
  EXPECT_EQ(std::count(text.begin(), text.end(), '{'), std::count(text.begin(), text.end(), '}'));
}

TEST(Trace, TheNewestAreKeptAndTheOthersCounted) {
  MemoryBudget budget(1 << 20);
  const auto trace = must_create(budget, 100);
  EXPECT_GE(budget.used(), 100 * sizeof(Trace::Span));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) trace->add({"x", 1, 2, -1, -1, 0});
    });
  }
  for (std::thread& thread : threads) thread.join();
  trace->add({"last", 1, 2, -1, -1, 0});
  EXPECT_EQ(trace->n_spans(), 100);
  EXPECT_EQ(trace->n_dropped(), 101);
  EXPECT_THAT(written(*trace), HasSubstr(R"("args":{"spans":101}})"));
  EXPECT_THAT(written(*trace), HasSubstr("last"));
}

TEST(Trace, NoBudgetNoTrace) {
  MemoryBudget budget(1 << 12);
  EXPECT_EQ(Trace::create(budget, 1 << 20).status().code(), StatusCode::kResourceExhausted);
}

TEST(Trace, NullIsOff) {
  const TraceScope scope(nullptr, "nothing");  // must not crash
}

TEST(Trace, LargeOnesAreWrittenInPieces) {
  MemoryBudget budget;
  const auto trace = must_create(budget, 5000);
  for (int i = 0; i < 5000; ++i) trace->add({"x", i, i + 1, i, 1, 1});
  const std::string text = written(*trace);
  EXPECT_THAT(text, HasSubstr(R"("extent":4999})"));
  EXPECT_THAT(text, Not(HasSubstr(std::string(1, '\0'))));
}

}  // namespace
}  // namespace tierkv
