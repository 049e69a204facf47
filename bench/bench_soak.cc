// Hours of sessions in one process: bench_soak MODEL TEXT FOLDER MINUTES [RAM_MIB] [THREADS].
//
// Each cycle reads a stretch of TEXT, or goes on from one of the sessions saved in FOLDER, under a
// RAM ceiling and in a random layout, answers, and changes the ceiling while it goes on. A resumed
// session must answer as it did at first. Prints a JSON line each minute: what the process holds
// (RSS, descriptors, threads) and what is on the disk, so that growth can be seen.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "base/atomic_file.h"
#include "base/process.h"
#include "runtime/session.h"
#include "runtime/session_store.h"

namespace tierkv {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kAnswer = 24;
constexpr uint64_t kQuota = 160 << 20;  // less than the sessions want: some are evicted
constexpr int kSessions = 8;

// What a saved session was asked, and what it said.
struct Asked {
  size_t begin = 0, n = 0;
  const char* kv = "";
  FlashBackend flash_io = FlashBackend::kAuto;
  std::vector<int32_t> answer;
};

struct Counts {
  int64_t cycles = 0, resumed = 0, evicted = 0, budgets = 0, refused = 0, wrong = 0;
};

class Soak {
 public:
  Soak(Engine& engine, std::vector<int32_t> text, std::string folder)
      : engine_(engine),
        text_(std::move(text)),
        folder_(std::move(folder)),
        ram_(engine.budget().limit()) {}

  Status cycle() {
    ++counts_.cycles;
    const std::string path = folder_ + "/s" + std::to_string(pick(kSessions)) + kSessionSuffix;
    if (!fs::exists(path)) known_.erase(path);
    const bool again = known_.count(path) > 0 && pick(3) > 0;
    if (!again) {
      known_.erase(path);
      fs::remove(path);
    }
    const Asked asked = again ? known_[path] : new_request();
    const Result<std::vector<int32_t>> answer = ask(asked, path);
    if (!again && answer.status().code() == StatusCode::kResourceExhausted) {
      ++counts_.refused;  // an exact layout that is too long for the ceiling
      return {};
    }
    TIERKV_RETURN_IF_ERROR(answer.status());
    if (again && *answer != asked.answer) {
      ++counts_.wrong;
      std::fprintf(stderr, "%s answered differently after resuming (%s, %zu tokens from %zu)\n",
                   path.c_str(), asked.kv, asked.n, asked.begin);
    }
    known_[path] = asked;
    known_[path].answer = *answer;
    return make_room_for(path, 0);
  }

  const Counts& counts() const { return counts_; }

 private:
  size_t pick(size_t n) { return random_() % n; }

  Asked new_request() {
    static constexpr const char* kLayouts[] = {"", "", "flash", "k5v4", "exact"};
    static constexpr FlashBackend kBackends[] = {FlashBackend::kAuto, FlashBackend::kPool};
    Asked asked;
    asked.n = 300 + pick(2500);
    asked.begin = pick(text_.size() - asked.n);
    asked.kv = kLayouts[pick(std::size(kLayouts))];
    asked.flash_io = kBackends[pick(std::size(kBackends))];
    return asked;
  }

  Status make_room_for(const std::string& path, int64_t n_tokens) {
    TIERKV_ASSIGN_OR_RETURN(
        const auto removed,
        make_room(engine_.file_system(), folder_, path, session_bytes(engine_, n_tokens), kQuota));
    counts_.evicted += static_cast<int64_t>(removed.size());
    return {};
  }

  Result<std::vector<int32_t>> ask(const Asked& asked, const std::string& path) {
    SessionOptions options;
    if (asked.kv[0] != 0) {
      TIERKV_ASSIGN_OR_RETURN(options.request.kv, parse_kv_spec(asked.kv));
    }
    options.request.n_prompt = static_cast<int64_t>(asked.n);
    options.request.n_expected = kAnswer;
    options.request.flash_directory = folder_;
    options.request.flash_io = asked.flash_io;
    options.request.saved = true;
    options.save_every = 512;
    TIERKV_RETURN_IF_ERROR(make_room_for(path, static_cast<int64_t>(asked.n) + kAnswer));
    TIERKV_ASSIGN_OR_RETURN(auto saved, open_saved_session(engine_, {path, true}, 0));
    TIERKV_ASSIGN_OR_RETURN(const auto session,
                            Session::create(engine_, options, std::move(saved)));
    TIERKV_RETURN_IF_ERROR(
        session->prefill(std::span<const int32_t>(text_).subspan(asked.begin, asked.n)));
    counts_.resumed += session->saved_report().n_resumed > 0;
    GenerateOptions generate;
    generate.max_tokens = kAnswer;
    generate.ignore_eos = true;
    generate.sampling.temperature = 0;
    TIERKV_ASSIGN_OR_RETURN(const Generation answer, session->generate(generate));
    TIERKV_RETURN_IF_ERROR(session->saved_report().failure);
    const Status changed = change_budget(*session, generate);
    TIERKV_RETURN_IF_ERROR(session->set_ram_budget(ram_));
    TIERKV_RETURN_IF_ERROR(changed);
    return answer.tokens;
  }

  // Less RAM, some more tokens; the caller gives the RAM back.
  Status change_budget(Session& session, GenerateOptions& generate) {
    if (pick(2) == 0) return {};
    const Status less = session.set_ram_budget(ram_ - (pick(6) << 20));
    if (less.code() == StatusCode::kResourceExhausted) {
      ++counts_.refused;
      return {};
    }
    TIERKV_RETURN_IF_ERROR(less);
    ++counts_.budgets;
    generate.max_tokens = 8;
    return session.generate(generate).status();
  }

  Engine& engine_;
  const std::vector<int32_t> text_;
  const std::string folder_;
  const uint64_t ram_;
  std::mt19937 random_{1};
  std::map<std::string, Asked> known_;
  Counts counts_;
};

// Bytes allocated to the files in a folder.
uint64_t disk_bytes(const std::string& folder) {
  uint64_t sum = 0;
  const auto sessions = list_sessions(real_file_system(), folder);
  if (!sessions.ok()) return 0;
  for (const SessionInfo& info : *sessions) sum += info.disk_bytes;
  return sum;
}

int64_t entries(const char* folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

void print_state(const Soak& soak, const std::string& folder, double minutes) {
  const Counts& c = soak.counts();
  std::printf(
      "{\"minutes\": %.1f, \"cycles\": %lld, \"resumed\": %lld, \"evicted\": %lld, "
      "\"budgets_changed\": %lld, \"refused\": %lld, \"wrong\": %lld, "
      "\"rss_mib\": %.1f, \"peak_rss_mib\": %.1f, \"descriptors\": %lld, \"threads\": %lld, "
      "\"files\": %lld, \"disk_mib\": %.1f}\n",
      minutes, static_cast<long long>(c.cycles), static_cast<long long>(c.resumed),
      static_cast<long long>(c.evicted), static_cast<long long>(c.budgets),
      static_cast<long long>(c.refused), static_cast<long long>(c.wrong),
      static_cast<double>(resident_bytes()) / (1 << 20),
      static_cast<double>(peak_resident_bytes()) / (1 << 20),
      static_cast<long long>(entries("/proc/self/fd")),
      static_cast<long long>(entries("/proc/self/task")),
      static_cast<long long>(entries(folder.c_str())),
      static_cast<double>(disk_bytes(folder)) / (1 << 20));
  std::fflush(stdout);
}

Status run(const EngineOptions& options, const char* text_path, const std::string& folder,
           double minutes) {
  TIERKV_ASSIGN_OR_RETURN(const auto engine, Engine::open(options));
  TIERKV_RETURN_IF_ERROR(engine->load());
  TIERKV_ASSIGN_OR_RETURN(const std::string text,
                          read_small_file(real_file_system(), text_path, 16 << 20));
  TIERKV_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, engine->tokenizer().encode(text, {}));
  fs::create_directories(folder);
  Soak soak(*engine, std::move(tokens), folder);
  const Clock::time_point start = Clock::now();
  const auto now = [&] { return std::chrono::duration<double>(Clock::now() - start).count() / 60; };
  double next_line = 0;
  while (now() < minutes) {
    if (now() >= next_line) {
      print_state(soak, folder, now());
      next_line += 1;
    }
    TIERKV_RETURN_IF_ERROR(soak.cycle());
  }
  print_state(soak, folder, now());
  return soak.counts().wrong == 0 ? Status() : internal_error("answers differed");
}

}  // namespace
}  // namespace tierkv

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: bench_soak MODEL TEXT FOLDER MINUTES [RAM_MIB] [THREADS]\n");
    return 2;
  }
  tierkv::EngineOptions options;
  options.model_path = argv[1];
  options.ram_bytes = (argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 150) << 20;
  options.n_threads = argc > 6 ? std::atoi(argv[6]) : 0;
  const tierkv::Status status = tierkv::run(options, argv[2], argv[3], std::atof(argv[4]));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  return 0;
}
