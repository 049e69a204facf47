// tierkv: parse, call the runtime, print.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"

int main(int argc, char** argv) {
  CLI::App app{"TierKV: language models over long contexts, within the RAM you give it."};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tierkv 0.1.0"));
  int exit_code = 0;
  tierkv::cli::add_run(app, exit_code);
  tierkv::cli::add_chat(app, exit_code);
  tierkv::cli::add_inspect(app, exit_code);
  tierkv::cli::add_eval(app, exit_code);
  tierkv::cli::add_bench(app, exit_code);
  tierkv::cli::add_history(app, exit_code);
  tierkv::cli::add_calibrate(app, exit_code);
  tierkv::cli::add_plan(app, exit_code);
  tierkv::cli::add_session(app, exit_code);
  tierkv::cli::install_interrupt_handler();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {  // out of memory, or a fault of a library
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
  return exit_code;
}
