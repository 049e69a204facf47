// tierkv eval: what a cache layout costs in accuracy on a text.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/process.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "runtime/evaluate.h"

namespace tierkv::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  KvFlags kv;
  std::string file, dump_logits, dump_tokens, activations = "f32", attention, kv_ram;
  int64_t prefix = 3072, tokens = 512, expect = 0;
};

nlohmann::json result_json(const EvalResult& r) {
  return {{"ppl", r.ppl},
          {"ppl_exact", r.ppl_exact},
          {"delta_ppl", r.ppl - r.ppl_exact},
          {"kld", r.kld},
          {"kld_p99", r.kld_p99},
          {"kld_max", r.kld_max},
          {"top1", r.top1},
          {"bits_per_element", r.bits_per_element},
          {"n_replans", r.n_replans},
          {"bits_per_element_with_basis", r.bits_per_element_with_basis},
          {"basis_bytes", r.basis_bytes},
          {"n", r.n},
          {"n_exact", r.n_exact},
          {"n_compressed", r.n_compressed},
          {"n_offloaded", r.n_offloaded},
          {"predicted_kld", r.predicted_kld},
          {"flash_bytes_read", r.flash.bytes_read},
          {"flash_extents_judged", r.flash.judged},
          {"flash_extents_skipped", r.flash.skipped},
          {"flash_hit_rate", r.flash.hit_rate()},
          {"plan_kld", r.plan.kld},
          {"plan_ram_bytes", r.plan.ram_bytes},
          {"peak_rss_bytes", peak_resident_bytes()}};
}

std::string flash_text(const FlashStats& flash) {
  if (flash.judged == 0) return "";
  return format("flash              %s read, %lld of %lld extents left to their copies\n",
                format_size(flash.bytes_read).c_str(), static_cast<long long>(flash.skipped),
                static_cast<long long>(flash.judged));
}

void print_text(const EvalResult& r) {
  std::cout << format("%lld predictions\n", static_cast<long long>(r.n))
            << format("perplexity         %.4f (exact cache %.4f)\n", r.ppl, r.ppl_exact)
            << format("KL divergence      %.6f nats mean, %.6f 99th percentile, %.6f most\n", r.kld,
                      r.kld_p99, r.kld_max)
            << format("  as predicted     %.6f\n", r.predicted_kld) << flash_text(r.flash)
            << format("same top token     %.2f %%\n", 100 * r.top1)
            << format("bits per element   %.3f\n", r.bits_per_element)
            << format("tokens             %lld exact, %lld compressed, %lld on flash\n",
                      static_cast<long long>(r.n_exact), static_cast<long long>(r.n_compressed),
                      static_cast<long long>(r.n_offloaded));
}

Status execute(const EvalFlags& flags) {
  TIERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.model.open());
  TIERKV_ASSIGN_OR_RETURN(const std::string text, read_text(flags.file));
  TIERKV_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, engine->tokenizer().encode(text, {}));
  EvalOptions options;
  TIERKV_ASSIGN_OR_RETURN(options.request, flags.kv.request(*engine));
  options.prefix = flags.prefix;
  options.tokens = flags.tokens;
  options.n_expected = flags.expect;
  if (!flags.kv_ram.empty()) {
    TIERKV_ASSIGN_OR_RETURN(options.kv_ram_bytes, parse_size(flags.kv_ram));
  }
  options.activations = flags.activations == "int8" ? Activations::kInt8 : Activations::kFloat32;
  const std::string& attention = flags.attention.empty() ? flags.activations : flags.attention;
  options.attention = attention != "f32" ? AttentionMath::kBf16 : AttentionMath::kFloat32;
  std::ofstream logits;
  if (!flags.dump_logits.empty()) {
    logits.open(flags.dump_logits, std::ios::binary);
    if (!logits) return io_error("cannot write " + flags.dump_logits);
    options.on_logits = [&](int64_t, int64_t n, const float* values) {
      logits.write(reinterpret_cast<const char*>(values),
                   static_cast<std::streamsize>(n * engine->spec().n_vocab * sizeof(float)));
    };
  }
  if (!flags.dump_tokens.empty()) {
    std::ofstream out(flags.dump_tokens);
    out << nlohmann::json(ids).dump();
    if (!out) return io_error("cannot write " + flags.dump_tokens);
  }
  TIERKV_RETURN_IF_ERROR(load_with_progress(*engine, &interrupted()));
  flags.kv.set_costs(*engine, options.request);
  Progress progress("evaluating", "tokens");
  TIERKV_ASSIGN_OR_RETURN(const EvalResult result,
                          evaluate(*engine, ids, options, [&](int64_t done, int64_t total) {
                            progress.update(done, total);
                          }));
  if (!flags.dump_logits.empty() && !logits.flush()) {
    return io_error("cannot write " + flags.dump_logits);
  }
  if (flags.model.json) {
    std::cout << result_json(result).dump() << std::endl;
  } else {
    print_text(result);
  }
  return {};
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* eval = app.add_subcommand(
      "eval", "perplexity of a text, and what a KV layout changes against the exact cache");
  flags->model.add_to(*eval);
  eval->add_option("-f,--file", flags->file, "text (-: standard input)")->required();
  eval->add_option("--prefix", flags->prefix, "tokens read exactly, then settled into the layout")
      ->capture_default_str();
  eval->add_option("--tokens", flags->tokens, "tokens predicted after the prefix")
      ->capture_default_str();
  flags->kv.add_to(*eval);
  flags->kv.add_flash_read_to(*eval);
  add_profile_flag(*eval, flags->kv.profile);
  eval->add_option("--expect", flags->expect,
                   "new tokens move between tiers as in a run that expects so many (default: they "
                   "stay exact)")
      ->check(CLI::NonNegativeNumber);
  eval->add_option("--kv-ram", flags->kv_ram,
                   "RAM for the KV under test (default: all that --ram leaves)");
  eval->add_option(
          "--activations", flags->activations,
          "f32: what the layout alone changes; int8: as the model runs, rounding noise included")
      ->check(CLI::IsMember({"f32", "int8"}))
      ->capture_default_str();
  eval->add_option("--attention", flags->attention,
                   "arithmetic of prefill's attention (default: as --activations)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  eval->add_option("--dump-logits", flags->dump_logits,
                   "write the logits as raw float32 [n, n_vocab]");
  eval->add_option("--dump-tokens", flags->dump_tokens, "write the text's token ids as JSON");
  eval->callback([flags, &exit_code] {
    const Status status = execute(*flags);
    if (!status.ok()) exit_code = report_error(status, flags->model.json);
  });
}

}  // namespace tierkv::cli
