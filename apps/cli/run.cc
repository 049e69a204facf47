// tierkv run: one prompt, one answer.
#include <algorithm>
#include <iostream>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/session_flags.h"
#include "cli/terminal.h"
#include "runtime/chat_prompt.h"

namespace tierkv::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  KvFlags kv;
  GenerationFlags generation;
  TraceFlag trace;
  SessionFlags saved;
  std::string prompt, file, system;
  bool raw = false, quiet = false;
};

// The document, then the question.
Result<std::string> read_prompt(const RunFlags& flags) {
  if (flags.prompt.empty() && flags.file.empty()) {
    return invalid_argument(
        "nothing to ask: give -p PROMPT, -f FILE (- for standard input) or both");
  }
  if (flags.file.empty()) return flags.prompt;
  TIERKV_ASSIGN_OR_RETURN(std::string text, read_text(flags.file));
  return flags.prompt.empty() ? text : text + "\n\n" + flags.prompt;
}

Result<std::vector<TokenId>> tokenize_conversation(const RunFlags& flags, const Engine& engine) {
  TIERKV_ASSIGN_OR_RETURN(const std::string prompt, read_prompt(flags));
  if (flags.raw) return engine.tokenizer().encode(prompt, {.parse_special = true});
  if (!engine.chat_template().ok()) return engine.tokenizer().encode(prompt, {});
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  messages.push_back({"user", prompt});
  return encode_chat(engine, messages);
}

// What comes after an answer when `prompt` is said next.
Result<std::vector<TokenId>> tokenize_next(const RunFlags& flags, const Engine& engine) {
  if (flags.raw || !engine.chat_template().ok()) {
    return engine.tokenizer().encode(flags.prompt, {false, flags.raw});
  }
  return encode_next_turn(engine, flags.prompt);
}

// All tokens of the request: with a session that has an answer, and without a document, the
// conversation so far and the next turn.
Result<std::vector<TokenId>> tokenize_prompt(const RunFlags& flags, const Engine& engine,
                                             const SessionFile* saved) {
  const bool goes_on = saved != nullptr && flags.file.empty() && !saved->points().empty();
  if (!goes_on) return tokenize_conversation(flags, engine);
  const std::span<const TokenId> before = answered_tokens(*saved);
  if (before.empty()) {
    TIERKV_ASSIGN_OR_RETURN(std::vector<TokenId> all, tokenize_conversation(flags, engine));
    const std::vector<TokenId>& held = saved->points()[0]->tokens;
    if (held.size() <= all.size() && std::equal(held.begin(), held.end(), all.begin())) return all;
    return invalid_argument(format(
        "%s holds %zu tokens of a prompt that was never answered: give that again, or remove "
        "the session",
        saved->path().c_str(), held.size()));
  }
  if (!flags.system.empty()) {
    return invalid_argument("--system belongs to the beginning, and the session has begun already");
  }
  std::vector<TokenId> all(before.begin(), before.end());
  TIERKV_ASSIGN_OR_RETURN(const std::vector<TokenId> next, tokenize_next(flags, engine));
  all.insert(all.end(), next.begin(), next.end());
  return all;
}

Status execute(const RunFlags& flags) {
  TIERKV_RETURN_IF_ERROR(flags.kv.check(flags.saved.given()));
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.model.open());
  std::unique_ptr<SessionFile> saved;
  if (flags.saved.given()) {
    TIERKV_ASSIGN_OR_RETURN(saved, flags.saved.open(*engine, flags.generation.n_context));
  }
  TIERKV_ASSIGN_OR_RETURN(const std::vector<TokenId> prompt,
                          tokenize_prompt(flags, *engine, saved.get()));
  const GenerateOptions generate = flags.generation.generate_options();
  TIERKV_RETURN_IF_ERROR(validate(generate.sampling));
  SessionOptions options;
  TIERKV_ASSIGN_OR_RETURN(options.request, flags.kv.request(*engine));
  options.request.n_prompt = static_cast<int64_t>(prompt.size());
  options.request.n_expected = flags.generation.expected_output();
  options.n_context = flags.generation.n_context;
  const std::unique_ptr<History> history = flags.generation.open_history(*engine);
  flags.generation.use_history(history.get(), options);
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Trace> trace, flags.trace.create(engine->budget()));
  options.trace = trace.get();
  if (saved != nullptr) TIERKV_RETURN_IF_ERROR(flags.saved.prepare(*engine, *saved, options));
  TIERKV_RETURN_IF_ERROR(Session::check_fits(*engine, options));
  TIERKV_RETURN_IF_ERROR(load_with_progress(*engine, &interrupted()));
  flags.kv.set_costs(*engine, options.request);
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                          Session::create(*engine, options, std::move(saved)));
  {
    Progress progress("reading", "tokens");
    TIERKV_RETURN_IF_ERROR(session->prefill(
        prompt, [&](int64_t done, int64_t total) { progress.update(done, total); },
        &interrupted()));
  }
  const bool stream = !flags.model.json;
  TIERKV_ASSIGN_OR_RETURN(const Generation generation, session->generate(
                                                           generate,
                                                           [&](std::string_view text, int32_t) {
                                                             if (stream)
                                                               std::cout << text << std::flush;
                                                             return static_cast<bool>(std::cout);
                                                           },
                                                           &interrupted()));
  TIERKV_RETURN_IF_ERROR(flags.trace.write(trace.get()));
  if (flags.model.json) {
    std::cout << report_json(*engine, *session, generation)
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << std::endl;
  } else {
    std::cout << std::endl;
    if (!flags.quiet) std::cerr << report_text(*engine, *session, generation);
  }
  print_note(history.get());
  warn_of_saving(*session);
  if (generation.stop == StopReason::kCancelled) return cancelled("stopped by Ctrl-C");
  return {};
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand("run", "answer one prompt, about a document if one is given");
  flags->model.add_to(*run);
  run->add_option("-p,--prompt", flags->prompt, "prompt, or question about the file");
  run->add_option("-f,--file", flags->file,
                  "document to read before the prompt (-: standard input)");
  run->add_option("--system", flags->system, "system message");
  run->add_flag("--raw", flags->raw,
                "no chat template: the prompt is read as it is, control tokens such as "
                "<|im_start|> included");
  run->add_flag("-q,--quiet", flags->quiet, "no closing summary");
  flags->saved.add_to(*run);
  flags->kv.add_to(*run);
  flags->kv.add_flash_read_to(*run);
  add_profile_flag(*run, flags->kv.profile);
  flags->generation.add_to(*run);
  flags->trace.add_to(*run);
  run->callback([flags, &exit_code] {
    const Status status = execute(*flags);
    if (!status.ok()) exit_code = report_error(status, flags->model.json);
  });
}

}  // namespace tierkv::cli
