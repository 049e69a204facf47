#include "plan/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/accuracy_fit.h"

namespace tierkv {
namespace {

TEST(Accuracy, DefaultRisesAsBitsFall) {
  const AccuracyModel model = default_accuracy();
  EXPECT_EQ(head_kld(model, 0, 10, {}), 0);
  double before = 0;
  for (const uint8_t k : kKeyWidths) {
    const double kld = head_kld(model, 0, 10, {k, 8});
    EXPECT_GT(kld, before) << int{k};
    before = kld;
  }
  before = 0;
  for (const uint8_t v : kValueWidths) {
    const double kld = head_kld(model, 3, 10, {8, v});
    EXPECT_GT(kld, before) << int{v};
    before = kld;
  }
}

TEST(Accuracy, DefaultIsSharedByTheHeads) {
  const AccuracyModel model = default_accuracy();
  const CodecId codec{4, 3};
  EXPECT_DOUBLE_EQ(head_kld(model, 0, 90, codec) * 90, head_kld(model, 0, 1, codec));
}

TEST(Reach, TheSettingIsOne) {
  for (const double exponent : {0.0, 0.7, 1.2, 2.0}) {
    EXPECT_DOUBLE_EQ(reach_share({exponent}, 64, {1, 45}, 3072), 1);
  }
}

TEST(Reach, WithoutFalloffItIsTheShareOfPages) {
  EXPECT_DOUBLE_EQ(reach_share({0}, 64, {1, 12}, 3072), 11.0 / 44);
  EXPECT_DOUBLE_EQ(reach_share({0}, 64, {1, 89}, 10000), 2);
}

// Each page's part is the integral's, by the middle: within 2 % of the closed form.
TEST(Reach, IsAPowerOfTheDistance) {
  const auto integral = [](double near, double far) {
    return 5 * (std::pow(near, -0.2) - std::pow(far, -0.2));
  };
  const double near = reach_share({1.2}, 64, {60, 90}, 6400);
  const double far = reach_share({1.2}, 64, {10, 60}, 6400);
  const double expected =
      integral(6400 - 5760 + 64, 6400 - 3840 + 64) / integral(6400 - 3840 + 64, 6400 - 640 + 64);
  EXPECT_NEAR(near / far, expected, 0.02 * expected);
}

TEST(Reach, SharesAddUpPageByPage) {
  const Reach reach{1.2};
  const TokenRange answer{4000, 4001};  // page 62; with a window of 3 pages, 60 are exact
  const std::vector<double> shares = tier1_shares(reach, 64, 63, 1, 3, answer);
  ASSERT_EQ(shares.size(), 64u);
  EXPECT_EQ(shares[0], 0);
  for (int64_t t = 1; t < 64; ++t) {
    const int64_t end = std::min<int64_t>(1 + t, 60);
    const double share = reach_share(reach, 64, {1, end}, 4000);
    EXPECT_NEAR(shares[static_cast<size_t>(t)], share, 1e-12);
  }
}

// Of 256 tokens from 1,024 on, with one page of sinks and two of window. Old pages weigh as from
// token 1,024, all through; page 15 is compressed from 1,088 on, for three fourths of the answer.
TEST(Reach, PagesWeighAsSeenFromTheFirstTokenThatFindsThemCompressed) {
  const Reach reach{1};
  const std::vector<double> shares = tier1_shares(reach, 64, 20, 1, 2, {1024, 1280});
  const double one = reach_share(reach, 64, {14, 15}, 1024);
  EXPECT_DOUBLE_EQ(shares[13], reach_share(reach, 64, {1, 14}, 1024));
  EXPECT_DOUBLE_EQ(shares[14], reach_share(reach, 64, {1, 15}, 1024));
  EXPECT_NEAR(shares[15] - shares[14], 0.75 * one, 1e-12);
  EXPECT_NEAR(shares[17] - shares[14], (0.75 + 0.5 + 0.25) * one, 1e-12);
  EXPECT_EQ(shares[20], shares[17]);  // never compressed before the answer ends
}

// What the model says of a synthetic calibration must come out of the fit.
TEST(AccuracyFit, RecoversTheModelItWasMeasuredFrom) {
  AccuracyModel truth = default_accuracy();
  double k = 0, v = 0;
  for (int i = 0; i < 12; ++i) {
    truth.heads.push_back({1e-5 * std::exp(0.5 * i), 3e-5 * std::exp(-0.3 * i)});
    k += truth.heads.back().k, v += truth.heads.back().v;
  }
  AccuracyMeasurements measured;
  measured.pages = {1, 29};
  measured.n_prefix = 2048;
  const double share = reach_share(truth.reach, 64, measured.pages, measured.n_prefix);
  for (const HeadSensitivity& head : truth.heads) {
    measured.heads.push_back({head.k * share, head.v * share});
  }
  for (const uint8_t bits : kKeyWidths) measured.k_all[bits] = k * share * truth.k_factor[bits];
  for (const uint8_t bits : kValueWidths) measured.v_all[bits] = v * share * truth.v_factor[bits];
  for (const PageRange band : {PageRange{26, 29}, {20, 26}, {1, 20}}) {
    measured.bands.push_back({band, 0.01 * reach_share(truth.reach, 64, band, measured.n_prefix)});
  }
  const AccuracyModel fitted = fit_accuracy(measured, truth.floor);
  EXPECT_NEAR(fitted.reach.exponent, truth.reach.exponent, 0.026);  // steps of the search
  for (size_t i = 0; i < truth.heads.size(); ++i) {
    for (const CodecId codec : {CodecId{8, 2}, {5, 4}, {3, 3}}) {
      const double expected = head_kld(truth, i, 12, codec);
      EXPECT_NEAR(head_kld(fitted, i, 12, codec), expected, 0.02 * expected);
    }
  }
}

// A few bands count for something against what other models have, not for everything.
TEST(AccuracyFit, ReachLiesBetweenTheUsualAndTheMeasured) {
  const double usual = default_accuracy().reach.exponent;
  for (const double steep : {0.6, 1.9}) {
    AccuracyMeasurements measured;
    measured.pages = {1, 45};
    measured.n_prefix = 3072;
    for (const PageRange band : {PageRange{42, 45}, {36, 42}, {24, 36}, {1, 24}}) {
      measured.bands.push_back({band, reach_share({steep}, 64, band, measured.n_prefix)});
    }
    const double fitted = fit_accuracy(measured, 0).reach.exponent;
    EXPECT_LT(std::abs(fitted - steep), std::abs(usual - steep) / 2) << steep;
    EXPECT_LT(std::abs(fitted - usual), std::abs(steep - usual)) << steep;
  }
}

TEST(AccuracyFit, NoiseNeverMakesFewerBitsBetter) {
  AccuracyMeasurements measured;
  measured.pages = {1, 45};
  measured.n_prefix = 3072;
  measured.heads = {{1e-4, 1e-4}};
  for (const uint8_t bits : kKeyWidths) measured.k_all[bits] = bits == 8 ? 3e-4 : 1e-4;
  for (const uint8_t bits : kValueWidths) measured.v_all[bits] = 0;
  const AccuracyModel fitted = fit_accuracy(measured, 0);
  EXPECT_GE(fitted.k_factor[6], fitted.k_factor[8]);
  EXPECT_EQ(fitted.v_factor[2], 0);
  EXPECT_EQ(fitted.reach, default_accuracy().reach);  // nothing to fit it to
}

TEST(Accuracy, LessRankAndFewerBitsCostMore) {
  const AccuracyModel model = default_accuracy();
  double last = 0;
  for (const uint16_t permille : {1000, 750, 500, 375, 250, 100}) {
    const auto kld = [&](uint8_t bits) {
      return 3 * head_kld(model, 0, 3, {.rank_permille = permille, .latent_bits = bits});
    };
    EXPECT_GE(kld(16), last) << permille;
    EXPECT_GT(kld(8), kld(16)) << permille;
    last = kld(16);
  }
}

}  // namespace
}  // namespace tierkv
