// The only file that includes Eigen, whose headers are slow to compile.
#include "kv/low_rank_basis.h"

#define EIGEN_MPL2_ONLY
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Eigenvalues>
#include <cmath>
#include <new>

#include "base/half.h"
#include "kernels/low_rank.h"

namespace tierkv {
namespace {

using Matrix = Eigen::MatrixXd;

// Counts memory that Eigen takes from the heap against the budget.
class Reservation {
 public:
  Reservation(MemoryBudget& budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {
    status_ = budget.reserve(MemoryKind::kScratch, bytes);
  }
  ~Reservation() {
    if (status_.ok()) budget_.release(MemoryKind::kScratch, bytes_);
  }
  Reservation(const Reservation&) = delete;
  const Status& status() const { return status_; }

 private:
  MemoryBudget& budget_;
  uint64_t bytes_;
  Status status_;
};

// Mean square of rows over columns [begin, end).
double energy(const LowRankGram& gram, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += gram.gram[i * gram.width + i];
  return gram.n_rows > 0 ? sum / static_cast<double>(gram.n_rows) : 0;
}

void scale_gram(const LowRankGram& gram, std::span<const float> scales) {
  for (int64_t i = 0; i < gram.width; ++i) {
    for (int64_t j = i; j < gram.width; ++j) gram.gram[i * gram.width + j] *= scales[i] * scales[j];
  }
}

// Eigen sorts eigenvalues in ascending order.
void store_basis(const Matrix& vectors, int64_t rank, int64_t head_dim, uint16_t* w) {
  const int64_t width = vectors.rows();
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t r = 0; r < rank; ++r) {
      const int64_t part = i / head_dim, d = i % head_dim;
      w[(part * rank + r) * head_dim + d] =
          f32_to_f16(static_cast<float>(vectors(i, width - 1 - r)));
    }
  }
}

LowRankSpectrum make_spectrum(const LowRankGram& gram, const Eigen::VectorXd& eigenvalues) {
  double values = 0;
  for (int64_t i = gram.width / 2; i < gram.width; ++i) values += gram.gram[i * gram.width + i];
  LowRankSpectrum spectrum(gram.width / kRankStep);
  for (int64_t i = 0; i < gram.width && values > 0; ++i) {
    spectrum[i / kRankStep] += eigenvalues(gram.width - 1 - i) / values;
  }
  return spectrum;
}

Status decompose(const LowRankGram& gram, int64_t rank, uint16_t* w, LowRankSpectrum& spectrum) {
  // Rows of `gram` are columns to Eigen, so its right is their lower triangle, which Eigen reads.
  const Eigen::Map<const Eigen::MatrixXf> lower(gram.gram, gram.width, gram.width);
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(lower.cast<double>());
  if (solver.info() != Eigen::Success || !std::isfinite(solver.eigenvalues().sum())) {
    return corrupt("the keys and values of the prompt have no low-rank basis; choose another --kv");
  }
  spectrum = make_spectrum(gram, solver.eigenvalues());
  store_basis(solver.eigenvectors(), rank, gram.head_dim, w);
  return {};
}

}  // namespace

// An error dk of a key moves a score by q dk, and the output by that times how far values lie
// apart; an error dv of a value moves the output by itself, both times the token's weight. So with
// V's scale 1, K's is the root of the query's energy times that of the head's values. All are
// divided by what makes the mean square of rows 1, which keeps latents in float16's range.
std::vector<float> choose_low_rank_scales(const LowRankGram& gram,
                                          std::span<const float> query_energy) {
  const int64_t half = gram.width / 2, dim = gram.head_dim;
  std::vector<float> scales(gram.width, 1.0f);
  for (int64_t i = 0; i < half; ++i) {
    const int64_t values = half + i / dim * dim;
    const double scale = std::sqrt(query_energy[i] * energy(gram, values, values + dim));
    if (scale > 0) scales[i] = static_cast<float>(scale);
  }
  double sum = 0;
  for (int64_t i = 0; i < gram.width; ++i) sum += scales[i] * scales[i] * energy(gram, i, i + 1);
  if (!(sum > 0)) return scales;
  const double norm = std::sqrt(static_cast<double>(gram.width) / sum);
  for (float& scale : scales) scale *= static_cast<float>(norm);
  return scales;
}

// The eigenvectors, which start as a copy of the matrix; vectors of `width` beside them.
uint64_t low_rank_basis_bytes(int64_t width) {
  return static_cast<uint64_t>(width * (width + 8)) * sizeof(double);
}

Status find_low_rank_basis(const LowRankGram& gram, std::span<const float> scales, int64_t rank,
                           MemoryBudget& budget, uint16_t* w, LowRankSpectrum& spectrum) {
  const Reservation reservation(budget, low_rank_basis_bytes(gram.width));
  TIERKV_RETURN_IF_ERROR(reservation.status());
  scale_gram(gram, scales);
  try {
    return decompose(gram, rank, w, spectrum);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("the system has no memory for the low-rank basis");
  }
}

}  // namespace tierkv
