#include "cli/report.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "base/process.h"
#include "base/size.h"
#include "cli/plan_report.h"

namespace tierkv::cli {
namespace {

double per_second(int64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

// "k5v4" or "k5v4 x 20, k4v3 x 10": the codecs of the KV heads of full-attention layers.
std::string codecs_text(const Plan& plan) {
  std::map<std::string, int> counts;
  for (const CodecId codec : plan.codecs) ++counts[codec_name(codec)];
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + name;
    if (counts.size() > 1) text += " x " + std::to_string(count);
  }
  return text;
}

// True when a directory's files are kept in RAM, where offloading to it saves nothing.
bool is_in_ram(const std::string& directory) {
  struct statfs info;
  return statfs(directory.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
}

std::string source_text(const Prediction& prediction) {
  switch (prediction.source) {
    case PredictionSource::kDefault:
      return "default";
    case PredictionSource::kHistory:
      return "history";
    case PredictionSource::kNeighbours:
      return std::to_string(prediction.n_neighbours) + " neighbours";
    case PredictionSource::kGiven:
      return "--expect";
  }
  return "";
}

std::string tier_line(const char* name, int64_t tokens, uint64_t bytes, const std::string& note) {
  return format("  %-22s %8lld tokens  %10s  %s\n", name, static_cast<long long>(tokens),
                format_size(bytes).c_str(), note.c_str());
}

}  // namespace

std::string accuracy_text(const AccuracyChoice& accuracy) {
  if (!accuracy.file.empty()) return "the profile " + accuracy.file;
  return "defaults for any model (tierkv calibrate measures this one)";
}

namespace {

nlohmann::json session_json(const Session& session) {
  if (session.saved() == nullptr) return nullptr;
  const SavedReport saved = session.saved_report();
  return {{"path", session.saved()->path()},
          {"n_resumed", saved.n_resumed},
          {"n_shared", saved.n_shared},
          {"resume_ms", saved.resume_seconds * 1e3},
          {"n_saved", saved.n_saved},
          {"n_points", saved.n_points},
          {"save_ms", saved.save_seconds * 1e3},
          {"error", saved.failure.message()}};
}

std::string session_text(const Session& session) {
  if (session.saved() == nullptr) return "";
  const SavedReport saved = session.saved_report();
  std::string out = format("session %s: ", session.saved()->path().c_str());
  if (saved.n_resumed > 0) {
    out += format("%lld tokens were there already (%.0f ms); ",
                  static_cast<long long>(saved.n_resumed), saved.resume_seconds * 1e3);
  }
  if (saved.n_shared > saved.n_resumed + kPageTokens) {
    out += format("of %lld, since the model's windows were not kept for less; ",
                  static_cast<long long>(saved.n_shared));
  }
  return out + format("%lld saved (%.0f ms)\n", static_cast<long long>(saved.n_saved),
                      saved.save_seconds * 1e3);
}

}  // namespace

void warn_of_saving(const Session& session) {
  const SavedReport saved = session.saved_report();
  if (saved.failure.ok()) return;
  std::cerr << "warning: the session was not saved beyond "
            << (saved.n_saved > 0 ? std::to_string(saved.n_saved) + " tokens"
                                  : "what it held before")
            << ": " << saved.failure.message() << std::endl;
}

nlohmann::json report_json(Engine& engine, const Session& session, const Generation& generation) {
  const TierReport tiers = session.tiers();
  const Plan& plan = session.plan();
  const Timings& t = session.timings();
  const MemoryBudget& budget = engine.budget();
  return {
      {"text", generation.text},
      {"tokens", generation.tokens},
      {"stop", stop_reason_name(generation.stop)},
      {"logits_crc32c", session.logits_crc32c()},
      {"prediction",
       {{"tokens", session.prediction().tokens},
        {"source", source_text(session.prediction())},
        {"planned", session.planned_output()},
        {"actual", t.predicted_n}}},
      {"plan",
       {{"n_exact", plan.n_exact},
        {"n_compressed", plan.n_compressed},
        {"n_offloaded", plan.n_offloaded},
        {"codecs", layer_codec_names(engine.kv_layout(), plan)},
        {"flash", plan.flash},
        {"n_replans", session.n_replans()},
        {"predicted_kld", plan.kld},
        {"predicted_ms_per_token", plan.seconds_per_token * 1e3},
        {"accuracy", session.accuracy().source},
        {"profile", session.accuracy().file},
        {"n_copied", plan.copies.pages * kPageTokens},
        {"predicted_kv_bytes", session.expected_kv_bytes()}}},
      {"tiers",
       {{"n_exact", tiers.n_exact},
        {"n_compressed", tiers.n_compressed},
        {"n_offloaded", tiers.n_offloaded},
        {"n_copied", tiers.n_copied},
        {"bits_per_element", tiers.bits_per_element}}},
      {"bytes",
       {{"weights", budget.used(MemoryKind::kWeights)},
        {"scratch", budget.used(MemoryKind::kScratch)},
        {"kv_budget", limit_json(session.kv_ram_bytes())},
        {"tier0", tiers.tier0_bytes},
        {"tier1", tiers.tier1_bytes},
        {"copies", tiers.copy_bytes},
        {"tier2", tiers.tier2_bytes},
        {"staging", tiers.staging_bytes},
        {"overhead", budget.used(MemoryKind::kOverhead)}}},
      {"flash",
       {{"io", flash_backend_name(tiers.flash_backend)},
        {"overlap", session.flash_overlap() == FlashOverlap::kOn},
        {"bytes_read", tiers.flash.bytes_read},
        {"bytes_written", tiers.flash.bytes_written},
        {"reads", tiers.flash.reads},
        {"hits", tiers.flash.hits},
        {"asked", tiers.flash.asked},
        {"hit_rate", tiers.flash.hit_rate()},
        {"stall_ms", tiers.flash.stall_seconds * 1e3},
        {"predicted",
         {{"bytes_read", t.predicted_flash.bytes_read},
          {"extents_judged", t.predicted_flash.judged},
          {"extents_skipped", t.predicted_flash.skipped},
          {"asked", t.predicted_flash.asked},
          {"hit_rate", t.predicted_flash.hit_rate()},
          {"stall_ms", t.predicted_flash.stall_seconds * 1e3},
          {"stall_share", t.stall_share()}}}}},
      {"session", session_json(session)},
      {"timings",
       {{"prompt_n", t.prompt_n},
        {"prompt_ms", t.prompt_seconds * 1e3},
        {"prompt_per_second", per_second(t.prompt_n, t.prompt_seconds)},
        {"settle_ms", t.settle_seconds * 1e3},
        {"predicted_n", t.predicted_n},
        {"predicted_ms", t.predicted_seconds * 1e3},
        {"predicted_per_second", per_second(t.predicted_n, t.predicted_seconds)}}},
      {"isa", isa_name(engine.kernels().isa)},
      {"threads", engine.pool().size()},
      {"ram_budget_bytes", budget.limit() == MemoryBudget::kUnlimited ? 0 : budget.limit()},
      {"peak_rss_bytes", peak_resident_bytes()},
  };
}

std::string report_text(Engine& engine, const Session& session, const Generation& generation) {
  const TierReport tiers = session.tiers();
  const Timings& t = session.timings();
  const MemoryBudget& budget = engine.budget();
  std::string out = "\nwhere the context is kept\n";
  out += tier_line("Tier-0 exact, RAM", tiers.n_exact, tiers.tier0_bytes, "float16");
  out += tier_line("Tier-1 compressed, RAM", tiers.n_compressed,
                   tiers.tier1_bytes - std::min(tiers.tier1_bytes, tiers.copy_bytes),
                   tiers.n_compressed == 0 ? "" : codecs_text(session.plan()));
  std::string flash_note;
  if (tiers.flash.bytes_written > 0) {
    flash_note = "float16, " + format_size(tiers.flash.bytes_written) + " written, " +
                 format_size(tiers.flash.bytes_read) + " read";
    if (is_in_ram(session.flash_directory())) flash_note += "; its directory is in RAM (tmpfs)!";
  }
  out += tier_line("Tier-2 flash", tiers.n_offloaded, tiers.tier2_bytes, flash_note);
  if (tiers.n_copied > 0) {
    out += tier_line("  copies of it, RAM", tiers.n_copied, tiers.copy_bytes,
                     codecs_text(session.plan()));
  }
  if (tiers.n_compressed > 0 || tiers.n_copied > 0) {
    out += format("KL divergence of about %.2g nats a token expected, from %s\n",
                  session.plan().kld, accuracy_text(session.accuracy()).c_str());
  }
  out += format("RAM: weights %s, scratch %s, staging %s, the process itself %s; peak %s of %s\n",
                format_size(budget.used(MemoryKind::kWeights)).c_str(),
                format_size(budget.used(MemoryKind::kScratch)).c_str(),
                format_size(tiers.staging_bytes).c_str(),
                format_size(budget.used(MemoryKind::kOverhead)).c_str(),
                format_size(peak_resident_bytes()).c_str(), format_size(budget.limit()).c_str());
  out += format("prompt %lld tokens, %.1f tokens/s; answer %lld tokens, %.1f tokens/s (%s)\n",
                static_cast<long long>(t.prompt_n), per_second(t.prompt_n, t.prompt_seconds),
                static_cast<long long>(t.predicted_n),
                per_second(t.predicted_n, t.predicted_seconds), stop_reason_name(generation.stop));
  out += format("expected %lld tokens of answer (%s)\n",
                static_cast<long long>(session.prediction().tokens),
                source_text(session.prediction()).c_str());
  if (t.predicted_flash.judged > 0) {
    out += format("of %lld extents of flash met while answering %lld were left to their copies\n",
                  static_cast<long long>(t.predicted_flash.judged),
                  static_cast<long long>(t.predicted_flash.skipped));
  }
  if (t.predicted_flash.asked > 0) {
    out += format(
        "flash by %s: %s read while answering, %.1f %% of it there when asked for, %.1f %% "
        "of the time spent waiting\n",
        flash_backend_name(tiers.flash_backend), format_size(t.predicted_flash.bytes_read).c_str(),
        100 * t.predicted_flash.hit_rate(), 100 * t.stall_share());
  }
  out += session_text(session);
  if (!generation.stop_detail.empty()) out += "stopped: " + generation.stop_detail + "\n";
  return out;
}

}  // namespace tierkv::cli
