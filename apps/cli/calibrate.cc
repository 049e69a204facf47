// tierkv calibrate: measures what compressing each KV head costs, and writes the model's profile.
#include "runtime/calibrate.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace tierkv::cli {
namespace {

struct CalibrateFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::string output;
  int64_t passages = 3, prefix = 3072, tokens = 256, skip = 0;
};

Result<std::vector<CalibrationText>> read_texts(const CalibrateFlags& flags, const Engine& engine) {
  std::vector<CalibrationText> texts;
  for (const std::string& path : flags.texts) {
    TIERKV_ASSIGN_OR_RETURN(const std::string text, read_text(path));
    CalibrationText out;
    out.name = path.substr(path.rfind('/') + 1);
    TIERKV_ASSIGN_OR_RETURN(out.tokens, engine.tokenizer().encode(text, {}));
    const int64_t skipped = std::min<int64_t>(flags.skip, static_cast<int64_t>(out.tokens.size()));
    out.tokens.erase(out.tokens.begin(), out.tokens.begin() + skipped);
    texts.push_back(std::move(out));
  }
  return texts;
}

// Beside the model if that place can be written, else in the user's cache: tried by writing what
// will be replaced.
Result<std::string> choose_output(const CalibrateFlags& flags, const Engine& engine) {
  if (!flags.output.empty()) return flags.output;
  const std::string beside = profile_beside(engine.file().path());
  const std::string partial = beside + ".partial";
  if (real_file_system().open_read(partial).ok() || write_file_atomically(partial, "").ok()) {
    return beside;
  }
  return profile_in_cache(model_hash(engine.file()));
}

std::string summary(const Profile& profile, const std::string& path) {
  double k = 0, v = 0;
  for (const HeadSensitivity& head : profile.accuracy.heads) k += head.k, v += head.v;
  std::string out = format(
      "wrote %s: %zu KV heads; all K at %d bits cost %.5f nats, all V at %d "
      "bits %.5f\n",
      path.c_str(), profile.accuracy.heads.size(), kReferenceKeyBits, k, kReferenceValueBits, v);
  for (const ProfileCheck& check : profile.checks) {
    out += format("planned at %.2f bits: predicted %.6f, measured %.6f\n", check.bits,
                  check.predicted, check.measured);
  }
  return out;
}

Status execute(const CalibrateFlags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.model.open());
  CalibrationOptions options;
  TIERKV_ASSIGN_OR_RETURN(options.texts, read_texts(flags, *engine));
  TIERKV_ASSIGN_OR_RETURN(const std::string output, choose_output(flags, *engine));
  options.passages = flags.passages;
  options.prefix = flags.prefix / kPageTokens * kPageTokens;
  options.tokens = flags.tokens;
  options.partial_file = output + ".partial";
  options.cancel = &interrupted();
  TIERKV_RETURN_IF_ERROR(load_with_progress(*engine, &interrupted()));
  Progress progress("calibrating", "measurements");
  options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  const Result<Profile> profile = calibrate(*engine, options);
  if (!profile.ok()) {
    return profile.status().code() == StatusCode::kCancelled
               ? profile.status().with_context("run the same command again to go on")
               : profile.status();
  }
  const std::string text = format_profile(*profile);
  TIERKV_RETURN_IF_ERROR(write_file_atomically(output, text));
  if (flags.model.json) {
    std::cout << nlohmann::json{{"file", output}, {"profile", nlohmann::json::parse(text)}}.dump()
              << std::endl;
  } else {
    std::cout << summary(*profile, output);
  }
  return {};
}

}  // namespace

void add_calibrate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* calibrate = app.add_subcommand(
      "calibrate", "measure what compression costs this model, for better plans (minutes, once)");
  flags->model.add_to(*calibrate);
  calibrate->add_option("--text", flags->texts, "texts to measure on, each of 4,000 tokens or more")
      ->required();
  calibrate->add_option("--output", flags->output,
                        "profile to write (default: MODEL.tierkv-profile.json beside the model)");
  calibrate->add_option("--passages", flags->passages, "passages of each text")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  calibrate->add_option("--prefix", flags->prefix, "tokens of a passage that are compressed")
      ->capture_default_str();
  calibrate->add_option("--tokens", flags->tokens, "tokens of a passage that are compared")
      ->check(CLI::Range(16, 512))
      ->capture_default_str();
  calibrate->add_option("--skip", flags->skip, "tokens of each text to leave out at its beginning")
      ->check(CLI::NonNegativeNumber);
  calibrate->callback([flags, &exit_code] {
    const Status status = execute(*flags);
    if (!status.ok()) exit_code = report_error(status, flags->model.json);
  });
}

}  // namespace tierkv::cli
