#include "runtime/kv_request.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "kv/extent_stream.h"
#include "plan/copies.h"
#include "plan/quality.h"

namespace tierkv {
namespace {

// `head`: its number among all n_heads of the full-attention layers.
PlanHead make_plan_head(const KvLayerShape& shape, const KvRequest& request, size_t head,
                        size_t n_heads) {
  PlanHead out;
  out.exact_page_bytes = exact_block_bytes(shape.head_dim);
  out.exact_seconds_per_token = request.costs.exact_seconds(shape);
  const auto add = [&](CodecId codec) {
    out.options.push_back({.codec = codec,
                           .page_bytes = compressed_block_bytes(shape, codec),
                           .kld = head_kld(request.accuracy.model, head, n_heads, codec),
                           .seconds_per_token = request.costs.codec_seconds(shape, codec)});
  };
  // The planner has no low rank of its own choice: at every size the rotated codes cost less.
  for (const CodecId codec : request.kv.codecs) {
    if (codec.is_low_rank()) add(codec);
  }
  if (!rotated_head_dim_valid(shape.head_dim)) return out;
  for (const uint8_t k_bits : kKeyWidths) {
    for (const uint8_t v_bits : kValueWidths) add({k_bits, v_bits});
  }
  return out;
}

std::optional<double> parse_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

Result<KvSpec> parse_kv_spec(const std::string& text) {
  KvSpec spec;
  if (text.empty() || text == "auto") return spec;
  if (text == "exact") {
    spec.forced = ForcedLayout::kExact;
  } else if (text == "flash") {
    spec.forced = ForcedLayout::kAllFlash;
  } else if (const std::optional<double> bits = parse_number(text); bits && *bits > 0) {
    spec.forced = ForcedLayout::kAllTier1;
    spec.bits_per_element = *bits;
  } else {
    const Result<CodecId> codec = parse_codec(text);
    if (!codec.ok()) {
      return invalid_argument("KV layout \"" + text +
                              "\" is unknown; give exact, flash, auto, a codec such as k5v4 (K of "
                              "3, 4, 5, 6 or 8 bits, "
                              "V of 2, 3, 4, 5, 6 or 8), a low rank such as lr50 or lr37.5i8, or "
                              "bits an element such as 4.25");
    }
    spec.forced = ForcedLayout::kAllTier1;
    spec.codecs = {*codec};
  }
  return spec;
}

Result<double> parse_quality(const std::string& text) {
  for (const Quality& quality : kQualities) {
    if (text == quality.name) return quality.kld;
  }
  const std::optional<double> value = parse_number(text);
  if (!value || !(*value >= 0 && *value <= 10)) {
    return invalid_argument("quality \"" + text +
                            "\" is unknown; give exact, high, balanced, compact or a KLD in nats");
  }
  return *value;
}

Result<FlashBackend> parse_flash_io(const std::string& text) {
  for (const auto backend : {FlashBackend::kAuto, FlashBackend::kUring, FlashBackend::kPool}) {
    if (text == flash_backend_name(backend)) return backend;
  }
  return invalid_argument("flash I/O \"" + text + "\" is unknown; give auto, uring or pool");
}

Result<std::vector<CodecId>> parse_flash_copy(const std::string& text) {
  if (text == "auto") return std::vector<CodecId>();
  const Result<CodecId> codec = parse_codec(text);
  if (codec.ok() && !codec->is_low_rank() && *codec != CodecId{}) return std::vector{*codec};
  return invalid_argument("flash copy \"" + text +
                          "\" is unknown; give auto or a codec such as k4v3");
}

PlanInput make_plan_input(const KvLayout& layout, const KvRequest& request, uint64_t ram_bytes,
                          int64_t chunk) {
  PlanInput input;
  input.page_tokens = kPageTokens;
  input.total_tokens = request.n_prompt + request.n_expected;
  input.ram_bytes = ram_bytes;
  input.extent_pages = layout.extent_pages;
  input.min_sink_pages = kSinkPages;
  input.min_window_pages = kWindowPages;
  input.kld_budget = request.kld_budget;
  const bool assumed = request.accuracy.model.heads.empty();
  input.codec_kld_share = assumed ? kAssumedCodecKldShare : kCodecKldShare;
  input.step_seconds = request.costs.step_seconds;
  input.overlap_seconds = request.costs.step_seconds;  // reading goes on while products are made
  input.flash_bytes_per_second = request.costs.flash_bytes_per_second;
  input.reach = request.accuracy.model.reach;
  input.answer_tokens = request.n_expected;
  input.flash_allowed = request.saved || !request.flash_directory.empty();
  const int64_t total_pages = pages_for(input.total_tokens) + 1;
  input.fixed_bytes = std::min(layout.window_pages(chunk), total_pages) * layout.window_page_bytes;
  if (layout.full_layers.empty()) return input;
  // One page of headroom: the copy that is being encoded, or the page that a next chunk begins. And
  // the staging ring, even if flash comes into use only once the answer passes the prediction.
  input.fixed_bytes += layout.full_page_bytes;
  if (input.flash_allowed) input.fixed_bytes += ExtentStream::staging_bytes(layout);
  size_t n_heads = 0;
  for (const int layer : layout.full_layers) n_heads += layout.shapes[layer].n_kv_heads;
  for (const int layer : layout.full_layers) {
    for (int head = 0; head < layout.shapes[layer].n_kv_heads; ++head) {
      input.heads.push_back(
          make_plan_head(layout.shapes[layer], request, input.heads.size(), n_heads));
    }
  }
  return input;
}

Result<std::vector<CodecId>> codecs_of_bits(const PlanInput& input, double bits) {
  constexpr double kRounding = 0.005;  // reports give two decimals, and 4.06 may be 4.0625
  double exact_page_bytes = 0;
  for (const PlanHead& head : input.heads) {
    exact_page_bytes += static_cast<double>(head.exact_page_bytes);
  }
  return codecs_within(input, static_cast<uint64_t>(exact_page_bytes * (bits + kRounding) / 16));
}

namespace {

Result<Plan> plan_layout(const KvRequest& request, const PlanInput& input) {
  if (!request.kv.forced) return plan_by(request.plan_rule, input);
  if (request.kv.bits_per_element == 0) {
    return make_forced_plan(input, *request.kv.forced, request.kv.codecs);
  }
  TIERKV_ASSIGN_OR_RETURN(const std::vector<CodecId> codecs,
                          codecs_of_bits(input, request.kv.bits_per_element));
  return make_forced_plan(input, *request.kv.forced, codecs);
}

}  // namespace

Result<Plan> plan_request(const KvRequest& request, const PlanInput& input) {
  TIERKV_ASSIGN_OR_RETURN(Plan plan, plan_layout(request, input));
  if (request.flash_read == FlashRead::kExact) return plan;
  return with_copies(input, plan, request.flash_copy, request.kv.forced.has_value());
}

int64_t prefill_pages(const KvLayout& layout, const PlanInput& input) {
  if (layout.full_page_bytes == 0) return INT64_MAX;
  if (input.ram_bytes < input.fixed_bytes) return 0;
  return static_cast<int64_t>((input.ram_bytes - input.fixed_bytes) / layout.full_page_bytes);
}

bool prompt_needs_flash(const KvLayout& layout, const KvRequest& request, const PlanInput& input) {
  return request.saved ||
         (input.flash_allowed && pages_for(request.n_prompt) > prefill_pages(layout, input));
}

int64_t exact_page_limit(const KvLayout& layout, const KvRequest& request, const PlanInput& input,
                         const Plan& plan) {
  const int64_t planned = plan.sink_pages + plan.window_pages;
  const bool may_be_exact = !request.kv.forced || *request.kv.forced == ForcedLayout::kExact;
  if (plan.tier1_pages > 0 || plan.flash || input.flash_in_use || !may_be_exact) return planned;
  constexpr int64_t kMost = int64_t{1} << 40;  // far past every use, far from overflow
  const int64_t all = std::min(prefill_pages(layout, input), kMost);
  // Should flash come into use after all, an extent waits in RAM until it is whole.
  return std::max(planned, input.flash_allowed ? all - input.extent_pages : all);
}

uint64_t expected_kv_bytes(const KvLayout& layout, const PlanInput& input, const Plan& plan) {
  const int64_t tokens = input.total_tokens - 1;  // an answer's last one is not read
  const int64_t pages = pages_for(tokens);
  const int64_t full = tokens / kPageTokens;
  const int64_t extents_end = full / input.extent_pages * input.extent_pages;
  int64_t end = std::max(std::min(pages - plan.window_pages, full), plan.sink_pages);
  if (plan.flash || input.flash_in_use) {  // no page moves on before its extent is whole
    end = std::max(std::min(end, extents_end), plan.sink_pages);
  }
  const int64_t tier1_end = std::min(plan.sink_pages + plan.tier1_pages, end);
  const int64_t compressed = std::max<int64_t>(tier1_end - plan.sink_pages, 0);
  const int64_t offloaded = plan.flash ? end - tier1_end : 0;
  // A window that begins within a page reaches into one more.
  const int64_t window_pages = std::min(pages, pages_for(layout.max_window) + 1);
  uint64_t bytes = window_pages * layout.window_page_bytes;
  bytes += (pages - compressed - offloaded) * buffer_footprint(layout.full_page_bytes);
  const int64_t coded = compressed + std::min(offloaded, plan.copies.pages);
  if (coded > 0) {
    bytes += coded * buffer_footprint(make_compressed_layout(layout, plan.codecs).page_bytes);
  }
  if (plan.flash || input.flash_in_use) bytes += ExtentStream::staging_bytes(layout);
  return bytes;
}

Status check_prefill(const KvLayout& layout, const KvRequest& request, const PlanInput& input,
                     int64_t chunk) {
  const int64_t available = prefill_pages(layout, input);
  if (pages_for(request.n_prompt) <= available) return {};
  // Pages that can't leave RAM: sinks, those whose extent is not whole, the chunk being read.
  const int64_t least = kSinkPages + layout.extent_pages + pages_for(chunk) + 1;
  if (input.flash_allowed && available >= least) return {};
  return resource_exhausted(
      input.flash_allowed
          ? "the RAM budget is too small to read the prompt"
          : "the prompt's KV does not fit in the RAM budget, and flash is not allowed");
}

uint64_t least_kv_ram(const KvLayout& layout, const KvRequest& request, int64_t chunk) {
  const auto fits = [&](uint64_t ram) {
    PlanInput input = make_plan_input(layout, request, ram, chunk);
    input.flash_in_use = prompt_needs_flash(layout, request, input);
    return check_prefill(layout, request, input, chunk).ok() && plan_request(request, input).ok();
  };
  uint64_t low = 0, high = 1 << 20;
  while (!fits(high)) {
    if (high > uint64_t{1} << 60) return high;
    low = high;
    high *= 2;
  }
  while (high - low > 64 << 10) {
    const uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

std::string default_flash_directory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    return std::string(cache) + "/tierkv";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0) {
    return std::string(home) + "/.cache/tierkv";
  }
  return "/var/tmp/tierkv";
}

}  // namespace tierkv
