#include "runtime/calibrate.h"

#include <algorithm>
#include <cmath>

#include "base/process.h"
#include "model/model_spec.h"
#include "plan/accuracy_fit.h"
#include "runtime/calibration_record.h"
#include "runtime/kv_request.h"

namespace tierkv {
namespace {

constexpr double kCheckedBits[] = {4.75, 4.25, 3.75, 3.5};  // per element, of whole plans
constexpr double kMostCorrection = 3;  // what the whole may cost of the sum of its parts

struct Trial {
  std::vector<TrialHead> heads;
  PageRange pages;
};

std::vector<TrialHead> all_heads(const KvLayout& layout, CodecId codec) {
  std::vector<TrialHead> heads;
  for (const int layer : layout.full_layers) {
    for (int head = 0; head < layout.shapes[layer].n_kv_heads; ++head) {
      heads.push_back({layer, head, codec});
    }
  }
  return heads;
}

// From the end of `pages` back, each twice as long as the one after it.
std::vector<PageRange> bands_of(PageRange pages) {
  std::vector<PageRange> bands;
  int64_t length = 3;
  for (int64_t end = pages.end; end > pages.begin; length *= 2) {
    int64_t begin = std::max(end - length, pages.begin);
    if (begin - pages.begin < length) begin = pages.begin;
    bands.push_back({begin, end});
    end = begin;
  }
  return bands;
}

constexpr CodecId kReferenceK = {kReferenceKeyBits, 0}, kReferenceV = {0, kReferenceValueBits};

// A part of a text, what is measured of it, and where its results begin among all.
struct Passage {
  std::span<const int32_t> tokens;
  std::vector<Trial> trials;
  size_t first_result = 0;
};

// The trials of a passage in the order in which add_results() takes what they gave. Head by head on
// some passages only: which heads matter carries over between texts, how much all of them do
// varies.
std::vector<Trial> make_trials(const KvLayout& layout, PageRange pages, bool head_by_head) {
  std::vector<Trial> trials;
  for (const uint8_t bits : kKeyWidths) trials.push_back({all_heads(layout, {bits, 0}), pages});
  for (const uint8_t bits : kValueWidths) trials.push_back({all_heads(layout, {0, bits}), pages});
  for (const PageRange band : bands_of(pages)) {
    trials.push_back({all_heads(layout, {kReferenceKeyBits, kReferenceValueBits}), band});
  }
  for (const CodecId codec : {kReferenceK, kReferenceV}) {
    if (!head_by_head) break;
    for (const TrialHead& head : all_heads(layout, codec)) trials.push_back({{head}, pages});
  }
  return trials;
}

// Adds a passage's results, times `weight` for what every passage has and `heads_weight` for the
// heads.
void add_results(std::span<const double> results, double weight, double heads_weight,
                 AccuracyMeasurements& sum) {
  auto next = results.begin();
  for (const uint8_t bits : kKeyWidths) sum.k_all[bits] += weight * *next++;
  for (const uint8_t bits : kValueWidths) sum.v_all[bits] += weight * *next++;
  for (BandKld& band : sum.bands) band.kld += weight * *next++;
  if (next == results.end()) return;
  for (HeadSensitivity& head : sum.heads) head.k += heads_weight * *next++;
  for (HeadSensitivity& head : sum.heads) head.v += heads_weight * *next++;
}

// In the middles of equal parts of the texts, whose beginnings and ends are often not like the
// rest; head by head on the last of each.
Result<std::vector<Passage>> choose_passages(const CalibrationOptions& options,
                                             const KvLayout& layout, PageRange pages) {
  std::vector<Passage> passages;
  size_t n_results = 0;
  const int64_t needed = options.prefix + options.tokens;
  for (const CalibrationText& text : options.texts) {
    const int64_t spare = static_cast<int64_t>(text.tokens.size()) - needed;
    if (spare < 0) {
      return invalid_argument(
          format("%s has %zu tokens, calibration needs %lld; give a longer text or less --prefix",
                 text.name.c_str(), text.tokens.size(), static_cast<long long>(needed)));
    }
    for (int64_t i = 0; i < options.passages; ++i) {
      const int64_t begin = spare * (2 * i + 1) / (2 * options.passages);
      passages.push_back({std::span(text.tokens).subspan(begin, needed),
                          make_trials(layout, pages, i + 1 == options.passages), n_results});
      n_results += passages.back().trials.size();
    }
  }
  if (passages.empty()) return invalid_argument("calibration needs a text: give --text FILE");
  return passages;
}

// Of everything that results depend on.
uint64_t record_key(uint64_t hash, const CalibrationOptions& options,
                    const std::vector<Passage>& passages) {
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const char c : program_build()) add(static_cast<uint8_t>(c));  // codecs change with it
  add(static_cast<uint64_t>(options.prefix));
  for (const Passage& passage : passages) {
    add(passage.trials.size());
    for (const int32_t token : passage.tokens) add(static_cast<uint32_t>(token));
  }
  return hash >> 1;  // JSON readers like positive numbers
}

class Calibration {
 public:
  Calibration(Engine& engine, const CalibrationOptions& options)
      : engine_(engine), options_(options), layout_(engine.kv_layout()) {}

  Result<Profile> run() {
    TIERKV_RETURN_IF_ERROR(prepare());
    for (const Passage& passage : passages_) TIERKV_RETURN_IF_ERROR(measure_passage(passage));
    Profile profile;
    profile.model_hash = model_hash(engine_.file());
    const std::string& path = engine_.file().path();
    profile.model = path.substr(path.rfind('/') + 1);
    profile.prefix = options_.prefix;
    profile.tokens = options_.tokens;
    for (const CalibrationText& text : options_.texts) {
      profile.texts.push_back({text.name, static_cast<int64_t>(text.tokens.size())});
    }
    profile.accuracy = fit();
    TIERKV_RETURN_IF_ERROR(check_plans(profile));
    record_.remove();
    return profile;
  }

 private:
  // Finds what can be wrong before anything takes time.
  Status prepare() {
    if (all_heads(layout_, {}).empty()) {
      return invalid_argument("this model has no layer whose KV could be compressed");
    }
    TIERKV_ASSIGN_OR_RETURN(probe_,
                            AccuracyProbe::create(engine_, {options_.prefix, options_.tokens}));
    pages_ = {probe_->first_page(), probe_->last_page()};
    TIERKV_ASSIGN_OR_RETURN(passages_, choose_passages(options_, layout_, pages_));
    const size_t n_results = passages_.back().first_result + passages_.back().trials.size();
    record_.open(engine_.file_system(), options_.partial_file,
                 record_key(model_hash(engine_.file()), options_, passages_), n_results);
    n_done_ = static_cast<int64_t>(record_.size());
    n_total_ = static_cast<int64_t>(n_results + passages_.size() * std::size(kCheckedBits));
    return {};
  }

  Status measure_passage(const Passage& passage) {
    const size_t begin = passage.first_result, end = begin + passage.trials.size();
    while (record_.size() < end) {
      const Result<double> kld = measure(passage, passage.trials[record_.size() - begin]);
      if (!kld.ok()) {
        TIERKV_RETURN_IF_ERROR(record_.save());
        return kld.status();
      }
      TIERKV_RETURN_IF_ERROR(record_.add(*kld));
    }
    return {};
  }

  Result<double> measure(const Passage& passage, const Trial& trial) {
    if (read_ != &passage) {
      read_ = nullptr;
      TIERKV_RETURN_IF_ERROR(probe_->read(passage.tokens, {}, options_.cancel));
      read_ = &passage;
    }
    const Result<double> kld =
        probe_->measure(trial.heads, trial.pages.begin, trial.pages.end, options_.cancel);
    if (kld.ok() && options_.progress) options_.progress(++n_done_, n_total_);
    return kld;
  }

  // The model of the passages' means.
  AccuracyModel fit() const {
    AccuracyMeasurements mean;
    mean.page_tokens = kPageTokens;
    mean.pages = pages_;
    mean.n_prefix = options_.prefix;
    mean.heads.resize(all_heads(layout_, {}).size());
    for (const PageRange band : bands_of(pages_)) mean.bands.push_back({band, 0});
    const double n = static_cast<double>(passages_.size());
    const double n_texts = std::max(1.0, n / static_cast<double>(options_.passages));
    for (const Passage& passage : passages_) {
      add_results(std::span(record_.results()).subspan(passage.first_result, passage.trials.size()),
                  1 / n, 1 / n_texts, mean);
    }
    return fit_accuracy(mean, kScoringFloor);
  }

  // Whole plans, measured on all passages, against what the profile predicts of them: parts cost a
  // little more together than one by one, and a plan gives the fewest bits to heads that happened
  // to matter little where they were measured. The profile takes the mean of it.
  Status check_plans(Profile& profile) {
    KvRequest request;
    request.accuracy.model = profile.accuracy;
    const PlanInput input = make_plan_input(layout_, request, uint64_t{1} << 60, 64);
    AccuracyModel model = profile.accuracy;
    model.floor = 0;  // of scoring in codes, which trials don't
    std::vector<std::vector<TrialHead>> plans;
    for (const double bits : kCheckedBits) {
      TIERKV_ASSIGN_OR_RETURN(const std::vector<CodecId> codecs, codecs_of_bits(input, bits));
      const double predicted = predicted_kld(model, codecs, kPageTokens, pages_, options_.prefix);
      profile.checks.push_back({bits, predicted, 0});
      plans.push_back(heads_of(codecs));
    }
    const double share = 1 / static_cast<double>(passages_.size());
    for (auto passage = passages_.rbegin(); passage != passages_.rend(); ++passage) {
      for (size_t i = 0; i < plans.size(); ++i) {
        TIERKV_ASSIGN_OR_RETURN(const double kld, measure(*passage, {plans[i], pages_}));
        profile.checks[i].measured += kld * share;
      }
    }
    correct(profile);
    return {};
  }

  static void correct(Profile& profile) {
    double log_ratio = 0;
    for (const ProfileCheck& check : profile.checks) {
      log_ratio += std::log(check.measured / check.predicted) / std::size(kCheckedBits);
    }
    const double most = std::log(kMostCorrection);
    const double correction =
        std::isfinite(log_ratio) ? std::exp(std::clamp(log_ratio, -most, most)) : 1;
    for (HeadSensitivity& head : profile.accuracy.heads) {
      head.k *= correction;
      head.v *= correction;
    }
    for (ProfileCheck& check : profile.checks) check.predicted *= correction;
  }

  // Those that have a codec.
  std::vector<TrialHead> heads_of(const std::vector<CodecId>& codecs) const {
    std::vector<TrialHead> heads = all_heads(layout_, {});
    for (size_t i = 0; i < heads.size(); ++i) heads[i].codec = codecs[i];
    std::erase_if(heads, [](const TrialHead& head) { return head.codec == CodecId{}; });
    return heads;
  }

  Engine& engine_;
  const CalibrationOptions& options_;
  const KvLayout& layout_;
  std::unique_ptr<AccuracyProbe> probe_;
  PageRange pages_;  // of a passage, that Tier-1 would hold
  std::vector<Passage> passages_;
  const Passage* read_ = nullptr;  // what the probe holds
  CalibrationRecord record_;
  int64_t n_done_ = 0, n_total_ = 0;
};

}  // namespace

Result<Profile> calibrate(Engine& engine, const CalibrationOptions& options) {
  return Calibration(engine, options).run();
}

}  // namespace tierkv
