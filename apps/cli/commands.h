// The subcommands. Each adds itself to the application; its callback leaves the exit code.
#pragma once

#include <CLI/CLI.hpp>

namespace tierkv::cli {

void add_run(CLI::App& app, int& exit_code);
void add_chat(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_history(CLI::App& app, int& exit_code);
void add_calibrate(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_session(CLI::App& app, int& exit_code);

}  // namespace tierkv::cli
