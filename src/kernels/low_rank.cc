#include "kernels/low_rank.h"

#include "base/carve.h"

namespace tierkv {

// Half a head in whole vectors of sixteen, for rotation.
bool low_rank_head_dim_valid(int64_t head_dim) {
  return head_dim >= 32 && head_dim <= kMostLowRankHeadDim && head_dim % 32 == 0;
}

int64_t low_rank_of(int64_t n_kv_heads, int64_t head_dim, int permille) {
  const int64_t steps = 2 * n_kv_heads * head_dim / kRankStep;
  const int64_t rank = (steps * permille + 500) / 1000;
  return (rank < 1 ? 1 : rank) * kRankStep;
}

uint64_t low_rank_block_bytes(int64_t rank, int latent_bits) {
  const int64_t groups = (rank + kLatentGroup - 1) / kLatentGroup;
  const int64_t token_bytes = latent_bits == 16 ? 2 * rank : rank + 2 * groups;
  return align64(static_cast<uint64_t>(kPageTokens * token_bytes));
}

// The page's latents, a head's keys, and a tile of queries.
uint64_t low_rank_scratch_bytes(int64_t rank, int64_t head_dim) {
  constexpr int64_t kQueryTile = 4;
  return sizeof(float) * (kPageTokens * (rank + head_dim) + kQueryTile * head_dim);
}

}  // namespace tierkv
