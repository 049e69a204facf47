#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace tierkv {
namespace {

using std::chrono::milliseconds;

// Returns when every thread of the pool has run a task at the same time as the others: from then on
// the workers are up and a test really has the threads it asked for.
bool all_join(ThreadPool& pool) {
  std::atomic<int> inside{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  pool.parallel_for(pool.size(), [&](int64_t, int) {
    ++inside;
    while (inside < pool.size() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  });
  return std::chrono::steady_clock::now() < deadline;
}

class ThreadPoolSizes : public ::testing::TestWithParam<int> {};

// Plain counters: under the thread sanitizer this also shows that tasks share nothing unasked and
// that their results are visible when parallel_for returns.
TEST_P(ThreadPoolSizes, EveryTaskExactlyOnce) {
  ThreadPool pool(GetParam());
  ASSERT_TRUE(all_join(pool));
  for (const int64_t n : {0, 1, 2, 3, 7, 8, 64, 1000, 4097}) {
    std::vector<int> runs(static_cast<size_t>(n), 0);
    pool.parallel_for(n, [&](int64_t task, int thread) {
      ASSERT_TRUE(task >= 0 && task < n && thread >= 0 && thread < pool.size());
      ++runs[static_cast<size_t>(task)];
    });
    ASSERT_EQ(std::count(runs.begin(), runs.end(), 1), n);
  }
}

// A thread number belongs to one thread at a time, so it can index scratch without locks.
// Short work stays with the caller, in order; long work is shared.
TEST_P(ThreadPoolSizes, ShortWorkWakesNobody) {
  ThreadPool pool(GetParam());
  ASSERT_TRUE(all_join(pool));
  std::vector<int64_t> order;
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel_for_short(4, 0.1, [&](int64_t task, int thread) {
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3}));
  std::vector<std::atomic<int>> runs(1000);
  pool.parallel_for_short(1000, 0.1, [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
  EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
}

TEST_P(ThreadPoolSizes, ThreadNumbersAreExclusive) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> sums(static_cast<size_t>(pool.size()), 0);
  std::vector<std::atomic<int>> inside(static_cast<size_t>(pool.size()));
  for (int job = 0; job < 50; ++job) {
    if (job % 10 == 0) {
      ASSERT_TRUE(all_join(pool));
    }
    pool.parallel_for(200, [&](int64_t task, int thread) {
      EXPECT_EQ(inside[static_cast<size_t>(thread)].fetch_add(1), 0);
      sums[static_cast<size_t>(thread)] += task;
      inside[static_cast<size_t>(thread)].fetch_sub(1);
    });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), 50 * 199 * 100);
}

TEST_P(ThreadPoolSizes, TenThousandTinyJobsInARow) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(4, 0);
  for (int64_t job = 0; job < 10000; ++job) {
    if (job % 500 == 0) {
      ASSERT_TRUE(all_join(pool));
    }
    // Each job builds on what other threads wrote in the one before.
    pool.parallel_for(4, [&](int64_t task, int) { values[static_cast<size_t>(task)] += job; });
    const int64_t first = values[0];
    values[0] = values[1], values[1] = values[2], values[2] = values[3], values[3] = first;
  }
  EXPECT_EQ(values, std::vector<int64_t>(4, 10000 * 9999 / 2));
}

// Each job after a pause that lets every worker fall asleep.
TEST_P(ThreadPoolSizes, JobsThatFindTheWorkersAsleep) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> total{0};
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(milliseconds(1));
    pool.parallel_for(16, [&](int64_t task, int) { total += task; });
  }
  EXPECT_EQ(total, 20 * 120);
}

TEST_P(ThreadPoolSizes, ComesAndGoes) {
  for (int i = 0; i < 30; ++i) {
    ThreadPool pool(GetParam());
    if (i % 3 == 0) continue;
    std::atomic<int> runs{0};
    pool.parallel_for(5, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSizes, ::testing::Values(1, 2, 3, 4, 8));

TEST(ThreadPool, HasAtLeastTheCaller) {
  EXPECT_EQ(ThreadPool(0).size(), 1);
  EXPECT_EQ(ThreadPool(-5).size(), 1);
  EXPECT_EQ(ThreadPool(3).size(), 3);
  EXPECT_GE(ThreadPool::available_cpus(), 1);
}

// A stalled thread keeps its one task; the others take all the rest meanwhile.
TEST(ThreadPool, AStalledThreadHoldsOnlyItsOwnTask) {
  ThreadPool pool(3);
  std::atomic<int64_t> finished{0};
  std::vector<int> runs(300, 0);
  pool.parallel_for(300, [&](int64_t task, int) {
    ++runs[static_cast<size_t>(task)];
    if (task == 0) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (finished < 299 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
      EXPECT_EQ(finished, 299) << "the others waited for the stalled one";
    }
    ++finished;
  });
  EXPECT_EQ(finished, 300) << "parallel_for returned before its tasks had";
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), 300);
}

// Whoever stalls, in whichever order: the caller waits for those that joined and for no one else.
TEST(ThreadPool, StallsAnywhereLoseNothing) {
  ThreadPool pool(4);
  for (int job = 0; job < 60; ++job) {
    std::vector<int> runs(12, 0);
    pool.parallel_for(12, [&](int64_t task, int) {
      if ((task + job) % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
      ++runs[static_cast<size_t>(task)];
    });
    ASSERT_EQ(std::count(runs.begin(), runs.end(), 1), 12) << job;
  }
}

// When tasks take long, workers join, awake or asleep: the pool is not a loop in disguise.
TEST(ThreadPool, WorkersDoJoin) {
  ThreadPool pool(4);
  for (int job = 0; job < 20; ++job) {
    ASSERT_TRUE(all_join(pool)) << job;
    std::this_thread::sleep_for(milliseconds(job % 3));
  }
}

TEST(ThreadPool, TakesConstAndMovedCallables) {
  ThreadPool pool(2);
  std::atomic<int> runs{0};
  const auto fn = [&](int64_t, int) { ++runs; };
  pool.parallel_for(10, fn);
  auto copy = fn;
  pool.parallel_for(10, std::move(copy));
  EXPECT_EQ(runs, 20);
}

}  // namespace
}  // namespace tierkv
