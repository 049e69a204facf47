#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace tierkv {
namespace {

constexpr uint32_t kOpen = 1u << 15;
constexpr uint32_t kJoinedMask = kOpen - 1;
constexpr uint32_t kGeneration = 1u << 16;
constexpr uint32_t kGenerationMask = ~(kGeneration - 1);
// Long enough to bridge the serial stretches between two parallel ones in decode, short enough that
// an idle engine does not burn a phone's battery.
constexpr std::chrono::microseconds kSpin{60};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until done(state), spinning for kSpin and sleeping after; returns the state that satisfied
// it.
template <typename Done>
uint32_t wait_until(std::atomic<uint32_t>& state, Done done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      const uint32_t now = state.load(std::memory_order_acquire);
      if (done(now)) return now;
      pause();
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  for (;;) {
    const uint32_t now = state.load(std::memory_order_acquire);
    if (done(now)) return now;
    state.wait(now, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  const int n_workers = std::clamp(n_threads, 1, static_cast<int>(kJoinedMask)) - 1;
  workers_.reserve(static_cast<size_t>(n_workers));
  for (int i = 0; i < n_workers; ++i) workers_.emplace_back([this, i] { worker_loop(i + 1); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  state_.fetch_add(kGeneration, std::memory_order_seq_cst);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

int ThreadPool::available_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void ThreadPool::run(int64_t n_tasks, Call call, void* context) {
  call_ = call;
  context_ = context;
  n_tasks_ = n_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  // Nobody is joined and the job is closed: this opens the next generation. Sequentially
  // consistent, or notify_all's look for sleepers could overtake the store and leave one asleep.
  state_.store(((state_.load(std::memory_order_relaxed) & kGenerationMask) + kGeneration) | kOpen,
               std::memory_order_seq_cst);
  state_.notify_all();
  take_tasks(0);
  const uint32_t before = state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  if ((before & kJoinedMask) != 0) {
    wait_until(state_, [](uint32_t s) { return (s & kJoinedMask) == 0; });
  }
}

void ThreadPool::take_tasks(int thread) {
  for (;;) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks_) return;
    call_(context_, task, thread);
  }
}

void ThreadPool::worker_loop(int thread) {
  uint32_t seen = 0;  // generation last looked at
  for (;;) {
    uint32_t state = wait_until(state_, [&](uint32_t s) {
      return (s & kGenerationMask) != seen || stop_.load(std::memory_order_relaxed);
    });
    if (stop_) return;
    seen = state & kGenerationMask;
    bool joined = false;
    while ((state & kOpen) != 0 && (state & kGenerationMask) == seen && !joined) {
      joined = state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel);
    }
    if (!joined) continue;
    take_tasks(thread);
    const uint32_t before = state_.fetch_sub(1, std::memory_order_seq_cst);
    if ((before & kOpen) == 0 && (before & kJoinedMask) == 1) state_.notify_all();
  }
}

}  // namespace tierkv
