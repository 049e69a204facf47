#include "cli/plan_report.h"

#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "cli/report.h"

namespace tierkv::cli {
namespace {

double share(int64_t tokens, const Forecast& f) {
  return f.input.total_tokens > 0
             ? 100.0 * static_cast<double>(tokens) / static_cast<double>(f.input.total_tokens)
             : 0;
}

// GiB would be too coarse to compare plans by.
std::string mib_text(uint64_t bytes) {
  return format("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string ram_limit_text(uint64_t limit) {
  return limit == MemoryBudget::kUnlimited ? ", no ceiling" : " of " + mib_text(limit);
}

std::string parts_text(const Forecast& f) {
  std::string text = "where the context would be kept\n";
  for (const ContextPart& part : context_parts(f.input, f.plan)) {
    std::string note = "float16";
    if (part.kind == PartKind::kCompressed) {
      note = format("%s, %.2f bits an element", codec_counts_text(f.plan).c_str(),
                    tier1_bits_per_element(f.input, f.plan));
    }
    text += format("  %-24s %9s tokens %5.1f %%  %10s  %s\n", part_name(part.kind).c_str(),
                   grouped(part.n_tokens).c_str(), share(part.n_tokens, f),
                   format_size(part.bytes).c_str(), note.c_str());
  }
  return text;
}

// One digit for K and one for V; low-rank codecs have no bits of K and V, but a name.
std::string codec_cell(CodecId codec) {
  if (codec == CodecId{}) return "--";
  if (codec.is_low_rank()) return codec_name(codec);
  return format("%d%d", codec.k_bits, codec.v_bits);
}

int widest_cell(const Plan& plan) {
  size_t widest = 2;
  for (const CodecId codec : plan.codecs) widest = std::max(widest, codec_cell(codec).size());
  return static_cast<int>(widest);
}

// Heads down, layers across, so many layers a block that lines stay short.
std::string codec_table(const KvLayout& layout, const Plan& plan) {
  if (codec_counts(plan).size() < 2) return "";
  const int width = widest_cell(plan);
  const size_t layers_per_block = static_cast<size_t>(84 / (width + 1));
  const std::vector<std::vector<CodecId>> codecs = codecs_by_layer(layout, plan);
  size_t n_heads = 0;
  for (const auto& layer : codecs) n_heads = std::max(n_heads, layer.size());
  std::string text = "\ncodecs: bits of K and of V (-- float16, lr low rank)\n";
  for (size_t from = 0; from < codecs.size(); from += layers_per_block) {
    const size_t to = std::min(codecs.size(), from + layers_per_block);
    text += "  layer ";
    for (size_t i = from; i < to; ++i) text += format(" %*d", width, layout.full_layers[i]);
    for (size_t head = 0; head < n_heads; ++head) {
      text += format("\n  head %zu", head);
      for (size_t i = from; i < to; ++i) {
        const std::string cell = head < codecs[i].size() ? codec_cell(codecs[i][head]) : "";
        text += format(" %*s", width, cell.c_str());
      }
    }
    text += "\n";
  }
  return text;
}

std::string predicted_text(const PlanView& view) {
  const Forecast& f = view.study.plan;
  const KvRequest& request = view.options.request;
  const auto allowed = [&](double kld) {  // a layout that --kv forces is not held to it
    return request.kv.forced ? "" : ", allowed " + kld_text(kld);
  };
  std::string text = format(
      "\npredicted\n  a token   %s (%s)\n  KLD       %s nats a token%s (%s)\n"
      "  codecs    KLD %s with all tokens in Tier-1%s\n",
      time_text(f.plan.seconds_per_token).c_str(),
      request.costs.measured ? "as measured on this device"
                             : "default costs: nothing was measured on this device",
      kld_text(f.plan.kld).c_str(), allowed(f.input.kld_budget).c_str(),
      accuracy_text(request.accuracy).c_str(), kld_text(codec_kld(f.input, f.plan)).c_str(),
      allowed(codec_kld_budget(f.input)).c_str());
  text += format(
      "  RAM       %s%s: weights %s, scratch %s (%s until the prompt is read), the process itself "
      "%s, KV %s\n",
      mib_text(f.ram_bytes()).c_str(), ram_limit_text(f.ram_limit).c_str(),
      mib_text(f.weight_bytes).c_str(), mib_text(f.scratch_bytes).c_str(),
      mib_text(f.prefill_scratch_bytes).c_str(), mib_text(f.overhead_bytes).c_str(),
      mib_text(f.plan.ram_bytes).c_str());
  return text;
}

constexpr const char* kColumns =
    "                          a token            KLD         RAM     exact / Tier-1 / flash\n";

// The time also as a multiple of this plan's.
std::string forecast_row(const std::string& name, const Forecast& f, const Forecast& base) {
  const double now = base.plan.seconds_per_token, then = f.plan.seconds_per_token;
  return format("  %-20s %10s %7.2fx  %7s  %10s  %5.1f / %5.1f / %5.1f %%", name.c_str(),
                time_text(then).c_str(), now > 0 ? then / now : 1, kld_text(f.plan.kld).c_str(),
                mib_text(f.ram_bytes()).c_str(), share(f.plan.n_exact, f),
                share(f.plan.n_compressed, f), share(f.plan.n_offloaded, f));
}

std::string variant_row(const Variant& variant, const Forecast& base) {
  if (variant.forecast) {
    return forecast_row(variant.name, *variant.forecast, base) + (variant.pareto ? "  *" : "") +
           "\n";
  }
  return format("  %-20s does not fit: --ram %s would do\n", variant.name.c_str(),
                format_size_argument(variant.least_ram).c_str());
}

bool same_outcome(const Variant& a, const Variant& b) {
  return a.forecast && b.forecast && a.forecast->plan.codecs == b.forecast->plan.codecs &&
         a.forecast->plan.n_exact == b.forecast->plan.n_exact &&
         a.forecast->plan.n_compressed == b.forecast->plan.n_compressed &&
         a.forecast->ram_bytes() == b.forecast->ram_bytes();
}

std::string ladder_text(const std::string& title, const std::vector<Variant>& ladder,
                        const Forecast& base) {
  if (ladder.empty()) return "";
  std::string text = "\n" + title + "\n" + kColumns;
  for (size_t i = 0; i < ladder.size(); ++i) {
    if (i == 0 || !same_outcome(ladder[i - 1], ladder[i])) {
      text += variant_row(ladder[i], base);
    } else if (i + 1 == ladder.size() || !same_outcome(ladder[i], ladder[i + 1])) {
      text += "  to " + ladder[i].name + ": the same\n";
    }
  }
  return text;
}

std::string constraint_name(Change change) {
  switch (change) {
    case Change::kNoRamLimit:
      return "the RAM ceiling";
    case Change::kNoKldBudget:
      return "the KLD budget";
    default:
      return "that flash is not allowed";
  }
}

std::string binding_text(const PlanStudy& study) {
  if (study.binding.empty()) {
    return "no constraint binds: lifting any of them makes nothing faster\n";
  }
  std::string text;
  for (const Change change : study.binding) {
    text += (text.empty() ? "" : " and ") + constraint_name(change);
  }
  return "what binds: " + text + "\n";
}

std::string changes_text(const PlanStudy& study) {
  std::string text = std::string("\nwhat each constraint costs\n") + kColumns;
  text += forecast_row("this plan", study.plan, study.plan) + "\n";
  for (const Variant& variant : study.changes) text += variant_row(variant, study.plan);
  return text + binding_text(study);
}

}  // namespace

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3 + (n < 0 ? 1u : 0u);) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return format("%.2f s", seconds);
  if (seconds >= 1e-3) return format("%.2f ms", seconds * 1e3);
  return format("%.1f us", seconds * 1e6);
}

std::string kld_text(double nats) {
  if (!std::isfinite(nats)) return "any";
  return nats == 0 ? "0" : format(nats < 1e-3 ? "%.5f" : "%.4f", nats);
}

std::string codec_counts_text(const Plan& plan) {
  const std::vector<CodecCount> counts = codec_counts(plan);
  std::string text;
  for (const CodecCount& count : counts) {
    text += (text.empty() ? "" : ", ") + codec_name(count.codec);
    if (counts.size() > 1) text += format(" x %d", count.n_heads);
  }
  return text;
}

std::vector<std::string> layer_codec_names(const KvLayout& layout, const Plan& plan) {
  std::vector<std::string> names;
  for (const std::vector<CodecId>& heads : codecs_by_layer(layout, plan)) {
    std::string name = codec_name(heads[0]);
    if (std::count(heads.begin(), heads.end(), heads[0]) != static_cast<int64_t>(heads.size())) {
      for (size_t i = 1; i < heads.size(); ++i) name += "," + codec_name(heads[i]);
    }
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::vector<CodecId>> codecs_by_layer(const KvLayout& layout, const Plan& plan) {
  std::vector<std::vector<CodecId>> codecs;
  if (plan.codecs.empty()) return codecs;
  auto next = plan.codecs.begin();
  for (const int layer : layout.full_layers) {
    codecs.emplace_back(next, next + layout.shapes[layer].n_kv_heads);
    next += layout.shapes[layer].n_kv_heads;
  }
  return codecs;
}

std::string part_name(PartKind kind) {
  switch (kind) {
    case PartKind::kSinks:
      return "Tier-0, first tokens";
    case PartKind::kCompressed:
      return "Tier-1, compressed";
    case PartKind::kOffloaded:
      return "Tier-2, on flash";
    case PartKind::kWindow:
      return "Tier-0, recent tokens";
  }
  return "";
}

std::string request_title(const PlanView& view) {
  const std::string& path = view.engine.file().path();
  const KvRequest& request = view.options.request;
  const uint64_t limit = view.study.plan.ram_limit;
  const std::string ram = limit == MemoryBudget::kUnlimited
                              ? "no RAM ceiling"
                              : format_size_argument(limit) + " of RAM";
  std::string quality =
      request.kv.forced ? "forced layout" : "KLD at most " + kld_text(request.kld_budget);
  for (const Quality& named : kQualities) {
    if (!request.kv.forced && named.kld == request.kld_budget)
      quality = std::string("quality ") + named.name;
  }
  return format("%s: %s tokens of prompt, %s of answer, %s, %s",
                path.substr(path.rfind('/') + 1).c_str(), grouped(request.n_prompt).c_str(),
                grouped(view.study.plan.input.total_tokens - request.n_prompt).c_str(), ram.c_str(),
                quality.c_str());
}

std::string plan_text(const PlanView& view) {
  const PlanStudy& study = view.study;
  std::string text = request_title(view) + "\n\n" + parts_text(study.plan);
  text += codec_table(view.engine.kv_layout(), study.plan.plan);
  text += predicted_text(view) + changes_text(study);
  text +=
      ladder_text("the best plan by RAM, from the least to all exact", study.by_ram, study.plan);
  text += ladder_text("the best plan by quality, with this RAM", study.by_quality, study.plan);
  return text + "* no other row of these two tables has less RAM, KLD and time\n";
}

}  // namespace tierkv::cli
