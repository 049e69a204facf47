// What taking a prompt's fingerprint adds to reading it: bench_fingerprint MODEL TOKENS [ROUNDS].
// One thread, CPU time, in interleaved rounds: wall-clock time says little on a busy machine.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "runtime/session.h"

namespace tierkv {
namespace {

struct Arm {
  const char* name;
  bool history;
  FingerprintRule rule;
  std::vector<double> seconds;
};

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Status measure(Engine& engine, History& history, const std::vector<int32_t>& tokens, Arm& arm) {
  SessionOptions options;
  options.request.n_prompt = static_cast<int64_t>(tokens.size());
  options.history = arm.history ? &history : nullptr;
  options.fingerprint = arm.rule;
  TIERKV_ASSIGN_OR_RETURN(const auto session, Session::create(engine, options));
  const double start = cpu_seconds();
  TIERKV_RETURN_IF_ERROR(session->read(tokens));
  arm.seconds.push_back(cpu_seconds() - start);
  return {};
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

Status run(const char* model, int64_t n_tokens, int rounds) {
  EngineOptions options;
  options.model_path = model;
  options.n_threads = 1;
  TIERKV_ASSIGN_OR_RETURN(const auto engine, Engine::open(options));
  TIERKV_RETURN_IF_ERROR(engine->load());
  const auto history = History::open("/dev/null/none");  // in memory only
  std::minstd_rand random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(n_tokens));
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % engine->spec().n_vocab);
  Arm arms[] = {{"none", false, FingerprintRule::kTail, {}},
                {"tail", true, FingerprintRule::kTail, {}},
                {"entropy", true, FingerprintRule::kEntropy, {}}};
  for (int round = 0; round < rounds; ++round) {
    for (Arm& arm : arms) TIERKV_RETURN_IF_ERROR(measure(*engine, *history, tokens, arm));
  }
  for (const Arm& arm : arms) {
    std::vector<double> ratios;
    for (size_t i = 0; i < arm.seconds.size(); ++i) {
      ratios.push_back(arm.seconds[i] / arms[0].seconds[i]);
    }
    std::printf("%-8s %8.1f ms  %+.2f %%\n", arm.name, 1e3 * median(arm.seconds),
                100 * (median(ratios) - 1));
  }
  return {};
}

}  // namespace
}  // namespace tierkv

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_fingerprint MODEL TOKENS [ROUNDS]\n");
    return 2;
  }
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 9;
  const tierkv::Status status = tierkv::run(argv[1], std::atoll(argv[2]), std::max(rounds, 1));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
