// tierkv chat: a conversation in the terminal, its KV kept between the turns.
#include <iostream>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/session_flags.h"
#include "cli/terminal.h"
#include "runtime/chat_prompt.h"

namespace tierkv::cli {
namespace {

constexpr int64_t kDefaultConversation = 4096;  // tokens to plan for beyond the first prompt

struct ChatFlags {
  ModelFlags model;
  KvFlags kv;
  GenerationFlags generation;
  SessionFlags saved;
  std::string system, file;
};

class Chat {
 public:
  Chat(Engine& engine, const ChatFlags& flags) : engine_(engine), flags_(flags) {}

  Status start() {
    history_ = flags_.generation.open_history(engine_);
    if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
    if (flags_.saved.given()) TIERKV_RETURN_IF_ERROR(look_into_session());
    if (flags_.file.empty()) return {};
    TIERKV_ASSIGN_OR_RETURN(document_, read_text(flags_.file));
    return {};
  }

  // Says `user`, streams the answer. A turn that fails is taken back: the next one reads the
  // conversation before it again.
  Status turn(const std::string& user) {
    const Status status = try_turn(document_.empty() ? user : document_ + "\n\n" + user);
    if (status.ok()) {
      document_.clear();
    } else {
      session_.reset();
      if (!messages_.empty() && messages_.back().role == "user") messages_.pop_back();
    }
    return status;
  }

  std::string report() const {
    return session_ == nullptr ? "nothing has been read yet\n"
                               : report_text(engine_, *session_, last_);
  }

  Status set_ram(const std::string& size) {
    TIERKV_ASSIGN_OR_RETURN(const uint64_t bytes, parse_size(size));
    if (session_ == nullptr) return invalid_argument("nothing has been read yet; ask first");
    return session_->set_ram_budget(bytes);
  }

  void clear() {
    goes_on_ = false;
    session_.reset();
    messages_.clear();
    if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
  }

 private:
  Status try_turn(const std::string& user) {
    TIERKV_RETURN_IF_ERROR(read_turn(user));
    const GenerateOptions generate = flags_.generation.generate_options();
    TIERKV_ASSIGN_OR_RETURN(last_, session_->generate(
                                       generate,
                                       [](std::string_view text, int32_t) {
                                         std::cout << text << std::flush;
                                         return static_cast<bool>(std::cout);
                                       },
                                       &interrupted()));
    std::cout << std::endl;
    print_note(history_.get());
    if (!last_.stop_detail.empty()) std::cerr << "stopped: " << last_.stop_detail << std::endl;
    warn_of_saving(*session_);
    return {};
  }

  // Whether a conversation is in the session already: then it goes on, unless a new one was asked
  // for with a document.
  Status look_into_session() {
    TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<SessionFile> saved, open_saved());
    goes_on_ = flags_.file.empty() && !answered_tokens(*saved).empty();
    if (!goes_on_) return {};
    if (!flags_.system.empty()) {
      return invalid_argument(
          "--system belongs to the beginning, and the session has begun already");
    }
    std::cerr << "going on after " << answered_tokens(*saved).size() << " tokens of "
              << saved->path() << '\n';
    return {};
  }
  Result<std::unique_ptr<SessionFile>> open_saved() {
    return flags_.saved.open(engine_, flags_.generation.n_context);
  }

  // Only what is new, if the template allows; else the whole conversation again.
  Status read_turn(const std::string& user) {
    if (goes_on_) return read_next_turn_of_session(user);
    if (session_ != nullptr) {
      const Result<std::vector<TokenId>> next =
          encode_next_turn(engine_, messages_, last_.text, user);
      messages_.push_back({"assistant", last_.text});
      messages_.push_back({"user", user});
      if (next.ok()) return prefill(*next);
      if (next.status().code() != StatusCode::kUnsupported) return next.status();
    } else {
      messages_.push_back({"user", user});
    }
    session_.reset();
    TIERKV_ASSIGN_OR_RETURN(const std::vector<TokenId> all, encode_chat(engine_, messages_));
    return read_all(all);
  }

  // The conversation before is known as tokens only.
  Status read_next_turn_of_session(const std::string& user) {
    TIERKV_ASSIGN_OR_RETURN(const std::vector<TokenId> next, encode_next_turn(engine_, user));
    if (session_ != nullptr) return prefill(next);
    TIERKV_ASSIGN_OR_RETURN(std::unique_ptr<SessionFile> saved, open_saved());
    const std::span<const TokenId> before = answered_tokens(*saved);
    std::vector<TokenId> all(before.begin(), before.end());
    all.insert(all.end(), next.begin(), next.end());
    return read_all(all, std::move(saved));
  }

  Status read_all(const std::vector<TokenId>& all, std::unique_ptr<SessionFile> saved = nullptr) {
    if (flags_.saved.given() && saved == nullptr) {
      TIERKV_ASSIGN_OR_RETURN(saved, open_saved());
    }
    TIERKV_RETURN_IF_ERROR(open_session(static_cast<int64_t>(all.size()), std::move(saved)));
    return prefill(all);
  }

  Status open_session(int64_t n_prompt, std::unique_ptr<SessionFile> saved) {
    SessionOptions options;
    TIERKV_ASSIGN_OR_RETURN(options.request, flags_.kv.request(engine_));
    options.n_context = flags_.generation.n_context;
    options.request.n_prompt = n_prompt;
    options.request.n_expected =
        flags_.generation.expect > 0 ? flags_.generation.expect : kDefaultConversation;
    flags_.generation.use_history(history_.get(), options);
    // More turns follow the first answer.
    options.least_predicted = options.request.n_expected;
    options.most_predicted = INT64_MAX;
    if (saved != nullptr) TIERKV_RETURN_IF_ERROR(flags_.saved.prepare(engine_, *saved, options));
    TIERKV_RETURN_IF_ERROR(Session::check_fits(engine_, options));
    if (!engine_.loaded()) TIERKV_RETURN_IF_ERROR(load_with_progress(engine_, &interrupted()));
    flags_.kv.set_costs(engine_, options.request);
    TIERKV_ASSIGN_OR_RETURN(session_, Session::create(engine_, options, std::move(saved)));
    return {};
  }

  Status prefill(const std::vector<TokenId>& tokens) {
    Progress progress("reading", "tokens");
    return session_->prefill(
        tokens, [&](int64_t done, int64_t total) { progress.update(done, total); }, &interrupted());
  }

  Engine& engine_;
  const ChatFlags& flags_;
  std::string document_;
  std::vector<ChatMessage> messages_;
  std::unique_ptr<History> history_;
  std::unique_ptr<Session> session_;
  Generation last_;
  bool goes_on_ = false;  // from a saved session, whose messages are not known
};

Status execute(const ChatFlags& flags) {
  TIERKV_RETURN_IF_ERROR(flags.kv.check(flags.saved.given()));
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.model.open());
  if (!engine->chat_template().ok()) {
    return engine->chat_template().status().with_context(
        "this model can't chat without a chat template; use tierkv run");
  }
  TIERKV_RETURN_IF_ERROR(validate(flags.generation.sampling));
  Chat chat(*engine, flags);
  TIERKV_RETURN_IF_ERROR(chat.start());
  std::cerr << "Ask away. /tiers shows where the context is kept, /ram SIZE sets a new RAM budget, "
               "/clear "
               "forgets the context, /exit or Ctrl-D leaves; Ctrl-C stops an answer.\n";
  for (std::string line;;) {
    std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/tiers") {
      std::cerr << chat.report();
    } else if (line == "/clear") {
      chat.clear();
    } else if (line.starts_with("/ram ")) {
      const Status status = chat.set_ram(line.substr(5));
      if (!status.ok()) std::cerr << "error: " << status.message() << "\n";
    } else {
      reset_interrupt();
      const Status status = chat.turn(line);
      if (!status.ok()) std::cerr << "error: " << status.message() << "; /clear starts anew\n";
    }
  }
  std::cerr << std::endl;
  return {};
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* chat = app.add_subcommand("chat", "a conversation in the terminal");
  flags->model.add_to(*chat);
  chat->add_option("--system", flags->system, "system message");
  chat->add_option("-f,--file", flags->file, "document to talk about");
  flags->saved.add_to(*chat);
  flags->kv.add_to(*chat);
  flags->kv.add_flash_read_to(*chat);
  add_profile_flag(*chat, flags->kv.profile);
  flags->generation.add_to(*chat);
  chat->callback([flags, &exit_code] {
    const Status status = execute(*flags);
    if (!status.ok()) exit_code = report_error(status, false);
  });
}

}  // namespace tierkv::cli
