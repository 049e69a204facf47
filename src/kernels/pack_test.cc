#include "kernels/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/matmul.h"
#include "kernels/matmul_layout.h"
#include "kernels/matmul_testing.h"

namespace tierkv {
namespace {

class PackTest : public testing::TestWithParam<TensorTypeInfo> {};

// d * sub_d * (code - offset) + m * sub_m: 3 products and a sum, each rounded, in whatever order
// the reference takes them.
double rounding_bound(TensorType type, double weight) {
  if (!uses_quantized_input(type)) return 0;
  const double minimum = packed_format(type).has_min ? kMaxTestScale * 63.0 : 0;
  return 4 * 0x1p-24 * (std::abs(weight) + 2 * minimum);
}

TEST_P(PackTest, UnpackedRowIsTheFilesRow) {
  const TensorType type = GetParam().type;
  for (const int64_t n_rows : {1, 15, 16, 17, 33}) {
    const int64_t n_cols = 3 * std::max<int64_t>(GetParam().block, 32);
    TestMatrix w(type, n_rows, n_cols, static_cast<uint32_t>(n_rows));
    std::vector<float> expected(static_cast<size_t>(n_rows * n_cols)), row(n_cols);
    dequantize(type, w.file_rows.data(), n_rows * n_cols, expected.data());
    for (int64_t r = 0; r < n_rows; ++r) {
      unpack_row(w.matrix, r, row.data());
      for (int64_t c = 0; c < n_cols; ++c) {
        const double want = expected[static_cast<size_t>(r * n_cols + c)];
        ASSERT_NEAR(row[static_cast<size_t>(c)], want, rounding_bound(type, want))
            << GetParam().name << " row " << r << " of " << n_rows << ", column " << c;
      }
    }
  }
}

// Every byte of a panel is written, and the rows past the last are zeros.
TEST_P(PackTest, PaddingIsZero) {
  const TensorType type = GetParam().type;
  const int64_t n_cols = std::max<int64_t>(GetParam().block, 32);
  TestMatrix w(type, 3, n_cols, 1);
  PackedMatrix all = w.matrix;
  all.n_rows = kPanelRows;
  std::vector<float> row(static_cast<size_t>(n_cols));
  for (int64_t r = 3; r < kPanelRows; ++r) {
    unpack_row(all, r, row.data());
    for (const float x : row) ASSERT_EQ(x, 0) << GetParam().name << " row " << r;
  }
}

TEST_P(PackTest, PackedSizeIsCloseToTheFiles) {
  const int64_t n_rows = 1024, n_cols = 2048;
  const uint64_t file =
      static_cast<uint64_t>(n_rows * n_cols) / GetParam().block * GetParam().bytes;
  const uint64_t packed = packed_matrix_bytes(GetParam().type, n_rows, n_cols);
  EXPECT_GE(packed, file);
  EXPECT_LE(static_cast<double>(packed), 1.03 * static_cast<double>(file)) << GetParam().name;
  EXPECT_EQ(packed_panel_bytes(GetParam().type, n_cols) % 64, 0u);
}

INSTANTIATE_TEST_SUITE_P(Types, PackTest, testing::ValuesIn(kTensorTypes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tierkv
