// Runs independent tasks on a fixed set of threads. Tasks are taken one at a time from a shared
// counter, so a slow or interrupted core takes fewer; a thread that does not wake in time is not
// waited for (docs/decisions.md, "own thread pool"). Waiting spins for a bounded time, then sleeps.
//
// Which thread runs a task is not fixed: a task's result must not depend on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace tierkv {

class ThreadPool {
 public:
  // `n_threads` includes the caller of parallel_for; at least 1 is used.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, thread) once for each task in [0, n_tasks), thread in [0, size()), and returns
  // when all have returned. One caller at a time; fn must not call parallel_for.
  template <typename Fn>
  void parallel_for(int64_t n_tasks, Fn&& fn) {
    if (n_tasks <= 1 || workers_.empty()) {
      for (int64_t task = 0; task < n_tasks; ++task) fn(task, 0);
      return;
    }
    run(
        n_tasks,
        [](void* context, int64_t task, int thread) {
          (*static_cast<std::remove_reference_t<Fn>*>(context))(task, thread);
        },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // The same where each call takes `each` microseconds, about: on the caller alone if all of them
  // take less time than waking the others.
  template <typename Fn>
  void parallel_for_short(int64_t n_tasks, double each, Fn&& fn) {
    if (static_cast<double>(n_tasks) * each > kWakeMicroseconds) return parallel_for(n_tasks, fn);
    for (int64_t task = 0; task < n_tasks; ++task) fn(task, 0);
  }

  // CPUs this process may run on.
  static int available_cpus();

 private:
  static constexpr double kWakeMicroseconds = 2;
  using Call = void (*)(void* context, int64_t task, int thread);

  void run(int64_t n_tasks, Call call, void* context);
  void worker_loop(int thread);
  void take_tasks(int thread);

  // The job: written before state_ opens it, read only by threads that joined it.
  Call call_ = nullptr;
  void* context_ = nullptr;
  int64_t n_tasks_ = 0;
  alignas(64) std::atomic<int64_t> next_task_{0};
  // generation << 16 | open << 15 | threads that joined and have not left
  alignas(64) std::atomic<uint32_t> state_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace tierkv
