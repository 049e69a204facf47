#include "cli/terminal.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

namespace tierkv::cli {
namespace {

std::atomic<bool> g_interrupted{false};

extern "C" void on_interrupt(int) {
  g_interrupted = true;
  signal(SIGINT, SIG_DFL);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Progress::Progress(std::string label, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)), visible_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (visible_ && last_ > 0) std::fputs("\r\033[K", stderr);
}

void Progress::update(int64_t done, int64_t total) {
  if (!visible_ || total <= 0 || (now() - last_ < 0.1 && done < total)) return;
  last_ = now();
  std::fprintf(stderr, "\r%s %lld of %lld %s (%d %%)\033[K", label_.c_str(),
               static_cast<long long>(done), static_cast<long long>(total), unit_.c_str(),
               static_cast<int>(100 * done / total));
}

const std::atomic<bool>& interrupted() { return g_interrupted; }

void reset_interrupt() {
  g_interrupted = false;
  install_interrupt_handler();
}

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: reading a line ends too
}

int report_error(const Status& status, bool json) {
  if (json) {
    const nlohmann::json error = {
        {"error", {{"code", status_code_name(status.code())}, {"message", status.message()}}}};
    std::cout << error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
  std::cerr << "error: " << status.message() << std::endl;
  return status.code() == StatusCode::kCancelled ? kExitInterrupted : 1;
}

}  // namespace tierkv::cli
