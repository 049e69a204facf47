#include "runtime/measure_costs.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>

#include "base/half.h"
#include "kv/extent_stream.h"
#include "kv/tiered_attention.h"
#include "runtime/cost_ladder.h"
#include "runtime/session.h"

namespace tierkv {
namespace {

constexpr uint64_t kMostExactBytes = 24 << 20;  // far from any cache of one core
constexpr uint64_t kLeastExactBytes = 4 << 20;
constexpr int64_t kEvictBytes = 64 << 20;  // more than a last-level cache
constexpr int64_t kEvictTaskBytes = 1 << 20;
constexpr int kRepetitions = 5;
constexpr int kSteps = 7;
constexpr double kMostStepRatio = 1.1;  // of two measurements that agree
constexpr int64_t kFlashExtents = 48;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of this thread, which works on what it waits for: while others have its CPU or another worker's,
// this clock stands still.
double cpu_now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Of the time that attention took; below it others had the CPU.
constexpr double kLeastCpuShare = 0.96;

// The middle one: neither what a neighbour disturbed nor a lucky one. prepare() isn't timed.
template <typename Prepare, typename Work>
double median_seconds(int repetitions, Prepare prepare, Work work) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    prepare();
    const double start = now();
    work();
    seconds.push_back(now() - start);
  }
  return median(std::move(seconds));
}

// As a decode step finds the caches at each layer: full of weights.
void evict(Engine& engine) {
  const std::span<const std::byte> weights = engine.weights().memory();
  const int64_t bytes = std::min<int64_t>(kEvictBytes, static_cast<int64_t>(weights.size()));
  std::atomic<uint64_t> sum{0};
  engine.pool().parallel_for(bytes / kEvictTaskBytes, [&](int64_t task, int) {
    sum += engine.kernels().roof->read(weights.data() + task * kEvictTaskBytes, kEvictTaskBytes);
  });
}

// Pages of one layer, all of one tier, full of random keys and values.
class RandomPages final : public PageSource {
 public:
  RandomPages(const KvLayerShape& shape, Buffer memory, uint64_t block_bytes, RotatedFormat format)
      : shape_(shape), memory_(std::move(memory)), block_bytes_(block_bytes), format_(format) {}

  // Every block is a copy of `block`: what is read matters, not what it says.
  void fill(std::span<const std::byte> block) {
    for (uint64_t at = 0; at + block.size() <= memory_.size(); at += block.size()) {
      std::memcpy(memory_.data() + at, block.data(), block.size());
    }
  }

  PageTier tier(int, int64_t) const override {
    return format_ == RotatedFormat{} ? PageTier::kExact : PageTier::kCompressed;
  }
  const uint16_t* exact_block(int, int64_t page, int kv_head) override {
    return reinterpret_cast<const uint16_t*>(compressed_block(0, page, kv_head));
  }
  const std::byte* compressed_block(int, int64_t page, int kv_head) const override {
    return memory_.data() + (page * shape_.n_kv_heads + kv_head) * block_bytes_;
  }
  RotatedFormat format(int, int) const override { return format_; }
  Result<const std::byte*> read_extent(int, size_t) override {
    return internal_error("nothing is on flash");
  }
  const uint16_t* flash_block(const std::byte*, int, int64_t, int) const override {
    return nullptr;
  }

 private:
  const KvLayerShape shape_;
  Buffer memory_;
  const uint64_t block_bytes_;
  const RotatedFormat format_;
};

class AttentionMeasurement {
 public:
  static Result<AttentionMeasurement> create(Engine& engine, KvLayerShape shape) {
    shape.window = 0;
    AttentionMeasurement m(engine, shape);
    TIERKV_ASSIGN_OR_RETURN(m.scratch_, Buffer::allocate(engine.budget(), MemoryKind::kScratch,
                                                         rotated_scratch_bytes(shape.head_dim)));
    m.exact_block_.resize(static_cast<size_t>(exact_block_elements(shape.head_dim)));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (uint16_t& x : m.exact_block_) x = f32_to_f16(normal(random));
    return m;
  }

  // How much of the time this thread was running while attention did.
  double cpu_share() const { return cpu_seconds_ / wall_seconds_; }

  // Seconds a token and KV head of attention to pages of a codec.
  Result<double> seconds(CodecId codec) {
    const RotatedFormat format{codec.k_bits, codec.v_bits};
    const uint64_t bytes = compressed_block_bytes(shape_, codec);
    std::vector<std::byte> block(bytes);
    if (codec == CodecId{}) {
      std::memcpy(block.data(), exact_block_.data(), bytes);
    } else {
      engine_->kernels().rotated->encode(format, exact_block_.data(), kPageTokens, shape_.head_dim,
                                         nullptr, block.data(), scratch_.data());
    }
    TIERKV_ASSIGN_OR_RETURN(Buffer memory, allocate(bytes));
    RandomPages pages(shape_, std::move(memory), bytes, format);
    pages.fill(block);
    return attend(pages);
  }

 private:
  AttentionMeasurement(Engine& engine, const KvLayerShape& shape)
      : engine_(&engine), shape_(shape) {
    const uint64_t page = static_cast<uint64_t>(shape.n_kv_heads) *
                          static_cast<uint64_t>(exact_block_bytes(shape.head_dim));
    const uint64_t room = std::min(engine.budget().available() / 3, kMostExactBytes);
    n_pages_ = static_cast<int64_t>(std::max(room, kLeastExactBytes) / page);
  }

  Result<Buffer> allocate(uint64_t block_bytes) const {
    return Buffer::allocate(engine_->budget(), MemoryKind::kScratch,
                            static_cast<uint64_t>(n_pages_ * shape_.n_kv_heads) * block_bytes,
                            true);
  }

  Result<double> attend(RandomPages& pages) {
    const KvLayout layout = make_kv_layout({shape_});
    TIERKV_ASSIGN_OR_RETURN(
        TieredAttention attention,
        TieredAttention::create(layout, engine_->budget(), engine_->kernels(), engine_->pool(), 1));
    const std::vector<float> q(static_cast<size_t>(shape_.n_heads * shape_.head_dim), .1f);
    std::vector<float> out(q.size());
    const int64_t n_tokens = n_pages_ * kPageTokens;
    Status status;
    const double seconds = median_seconds(
        kRepetitions, [&] { evict(*engine_); },
        [&] {
          const double cpu = cpu_now(), wall = now();
          const Status done = attention.attend(pages, 0, n_tokens - 1, 1, q.data(), {}, out.data());
          cpu_seconds_ += cpu_now() - cpu;
          wall_seconds_ += now() - wall;
          if (status.ok()) status = done;
        });
    TIERKV_RETURN_IF_ERROR(status);
    return seconds / static_cast<double>(n_tokens * shape_.n_kv_heads);
  }

  Engine* engine_;
  KvLayerShape shape_;
  int64_t n_pages_ = 0;
  double cpu_seconds_ = 0, wall_seconds_ = 0;
  Buffer scratch_;
  std::vector<uint16_t> exact_block_;
};

// Sets `disturbed` if it was.
Result<AttentionCosts> measure_attention(Engine& engine, const KvLayerShape& shape,
                                         bool& disturbed) {
  AttentionCosts costs;
  costs.head_dim = shape.head_dim;
  costs.group = shape.group();
  TIERKV_ASSIGN_OR_RETURN(AttentionMeasurement measurement,
                          AttentionMeasurement::create(engine, shape));
  // Float16 before, between and after: all codes are compared with it.
  std::array<double, 3> exact{};
  TIERKV_ASSIGN_OR_RETURN(exact[0], measurement.seconds({}));
  costs.exact_seconds = exact[0];
  if (rotated_head_dim_valid(shape.head_dim)) {
    for (const uint8_t k : kKeyWidths) {
      for (const uint8_t v : kValueWidths) {
        const CodecId codec{k, v};
        TIERKV_ASSIGN_OR_RETURN(const double seconds, measurement.seconds(codec));
        costs.codecs.push_back({codec, seconds});
      }
      if (k == kKeyWidths[2]) {
        TIERKV_ASSIGN_OR_RETURN(exact[1], measurement.seconds({}));
      }
    }
    TIERKV_ASSIGN_OR_RETURN(exact[2], measurement.seconds({}));
    costs.exact_seconds = median({exact.begin(), exact.end()});
    smooth_costs(costs.codecs);
  }
  if (measurement.cpu_share() < kLeastCpuShare) disturbed = true;
  return costs;
}

// A step with next to no context: the products, and everything else that doesn't grow.
Result<double> measure_step(Engine& engine) {
  SessionOptions options;
  options.request.n_prompt = 1 + kSteps;
  options.request.n_expected = 1;
  options.request.kv.forced = ForcedLayout::kExact;
  options.max_chunk = 1;
  TIERKV_ASSIGN_OR_RETURN(const auto session, Session::create(engine, options));
  const int32_t token = 0;
  TIERKV_RETURN_IF_ERROR(session->read({&token, 1}));
  Status status;
  const double seconds = median_seconds(
      kSteps, [] {},
      [&] {
        const Status done = session->score({&token, 1}, 1, [](int64_t, int64_t, const float*) {});
        if (status.ok()) status = done;
      });
  TIERKV_RETURN_IF_ERROR(status);
  return seconds;
}

bool known(const std::vector<AttentionCosts>& costs, const KvLayerShape& shape) {
  return std::any_of(costs.begin(), costs.end(), [&](const AttentionCosts& c) {
    return c.head_dim == shape.head_dim && c.group == shape.group();
  });
}

// Reads every extent once, as many at a time as the stream that decoding reads through.
Result<double> read_rate(Engine& engine, const std::string& directory) {
  const KvLayout& layout = engine.kv_layout();
  const int layer = layout.full_layers[0];
  FlashLayout flash;
  flash.payload_bytes.resize(layout.shapes.size());
  for (const int full : layout.full_layers) {
    flash.payload_bytes[full] = layout.extent_payload_bytes(full);
  }
  flash.max_extents = kFlashExtents;
  const int n_buffers = ExtentStream::n_buffers(layout);
  TIERKV_ASSIGN_OR_RETURN(const auto store,
                          FlashStore::create(engine.file_system(), directory, flash,
                                             {FlashBackend::kAuto, n_buffers, nullptr}));
  const uint64_t bytes = extent_buffer_bytes(layout.extent_payload_bytes(layer));
  std::vector<Buffer> ring;
  for (int i = 0; i < n_buffers; ++i) {
    TIERKV_ASSIGN_OR_RETURN(Buffer buffer,
                            Buffer::allocate(engine.budget(), MemoryKind::kStaging, bytes));
    std::memset(buffer.data(), 1, bytes);
    ring.push_back(std::move(buffer));
  }
  const auto pass = [&](auto start) -> Status {
    std::vector<FlashStore::Ticket> tickets(ring.size());
    for (int64_t i = 0; i < kFlashExtents + n_buffers; ++i) {
      const size_t slot = static_cast<size_t>(i % n_buffers);
      if (i >= n_buffers) TIERKV_RETURN_IF_ERROR(store->wait(tickets[slot]));
      if (i < kFlashExtents) tickets[slot] = start(i, std::span(ring[slot].data(), bytes));
    }
    return {};
  };
  TIERKV_RETURN_IF_ERROR(
      pass([&](int64_t i, auto buffer) { return store->start_write(layer, i, buffer); }));
  Status status;
  const double seconds = median_seconds(
      3, [] {},
      [&] {
        const Status done =
            pass([&](int64_t i, auto buffer) { return store->start_read(layer, i, buffer); });
        if (status.ok()) status = done;
      });
  TIERKV_RETURN_IF_ERROR(status);
  return static_cast<double>(kFlashExtents) * static_cast<double>(bytes) / seconds;
}

}  // namespace

void measure_decode_costs(Engine& engine, DeviceCosts& costs) {
  // A neighbour's burst can last for all steps of one measurement; a second one comes after the
  // long one of attention, and where they differ a third decides.
  std::vector<double> steps;
  const auto add_step = [&] {
    const Result<double> step = measure_step(engine);
    if (step.ok()) steps.push_back(*step);
    return step.ok();
  };
  if (!add_step()) return;
  std::vector<AttentionCosts> attention;
  for (const int layer : engine.kv_layout().full_layers) {
    const KvLayerShape& shape = engine.kv_layout().shapes[layer];
    if (known(attention, shape)) continue;
    Result<AttentionCosts> measured = measure_attention(engine, shape, costs.disturbed);
    if (!measured.ok()) return;
    attention.push_back(std::move(*measured));
  }
  if (!add_step()) return;
  const bool agree = std::max(steps[0], steps[1]) <= kMostStepRatio * std::min(steps[0], steps[1]);
  if (!agree && !add_step()) return;
  costs.step_seconds = median(std::move(steps));
  costs.attention = std::move(attention);
  costs.measured = true;
}

void measure_flash_cost(Engine& engine, const std::string& directory, DeviceCosts& costs) {
  if (engine.kv_layout().full_layers.empty()) return;
  const Result<double> rate = read_rate(engine, directory);
  if (!rate.ok()) return;
  costs.flash_bytes_per_second = *rate;
  costs.flash_measured = true;
}

}  // namespace tierkv
