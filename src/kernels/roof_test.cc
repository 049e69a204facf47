#include "kernels/roof.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/kernels.h"

namespace tierkv {
namespace {

class RoofTest : public testing::TestWithParam<Isa> {
 protected:
  const RoofKernels& k() const { return *kernels_for(GetParam()).roof; }
  int64_t float_lanes() const {
    return GetParam() == Isa::kAvx512 ? 16 : GetParam() == Isa::kAvx2 ? 8 : 1;
  }
  int64_t chains() const { return GetParam() == Isa::kAvx512 ? 16 : 12; }  // accumulators
};

// A lane of four bytes takes four int8 products, or two of bfloat16.
TEST_P(RoofTest, CountsItsMultiplyAdds) {
  const int64_t int8_products = GetParam() == Isa::kScalar ? 1 : 4 * float_lanes();
  for (const int64_t rounds : {int64_t{1}, int64_t{12345}, kMaxRoofRounds}) {
    EXPECT_EQ(k().int8_dot(rounds), rounds * chains() * int8_products);
    EXPECT_EQ(k().f32_fma(rounds), rounds * chains() * float_lanes());
    const int64_t bf16 = k().bf16_dot(rounds);
    const bool has_bf16 = GetParam() == Isa::kAvx512 && cpu_multiplies_bf16();
    EXPECT_EQ(bf16, has_bf16 ? rounds * chains() * 2 * float_lanes() : 0);
  }
}

TEST_P(RoofTest, ReadsEveryWord) {
  std::vector<uint64_t> words(5 * kRoofReadUnit / sizeof(uint64_t));
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) sum += words[i] = (i + 1) * 0x9e3779b97f4a7c15;
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  EXPECT_EQ(k().read(bytes, static_cast<int64_t>(words.size() * sizeof(uint64_t))), sum);
  EXPECT_EQ(k().read(bytes, 0), 0u);
}

INSTANTIATE_TEST_SUITE_P(Isas, RoofTest,
                         testing::ValuesIn(available_isas().begin(), available_isas().end()),
                         [](const auto& info) { return isa_name(info.param); });

}  // namespace
}  // namespace tierkv
