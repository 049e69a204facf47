// What TieredAttention does with low-rank pages: the state over them is of latents, [rows][rank],
// until it is projected once a call.
#include "kv/attention_call.h"

namespace tierkv {

void TieredAttention::attend_latents(const Call& call, const AttentionRows& state, int64_t page,
                                     int kv_head, const void* block, int thread) const {
  float angles[kMostLowRankHeadDim];
  call.pages.low_rank()->page_angles(call.layer, page, angles);
  AttentionRows rows = state;
  rows.head_dim = call.shape.head_dim;  // of the queries
  kernels_->low_rank->attend(*call.low_rank(), static_cast<const std::byte*>(block), kv_head,
                             angles, rows, call.scratch.kernel(thread));
}

void TieredAttention::merge_latents(const Call& call) const {
  pool_->parallel_for(call.shape.n_kv_heads, [&](int64_t task, int) {
    const int head = static_cast<int>(task);
    const AttentionRows plain = call.plain_rows(head, 0, call.head_rows());
    AttentionRows projected = call.packed_rows(head);
    const float* latents = projected.out;
    projected.head_dim = call.shape.head_dim;
    projected.out = call.scratch.split_states + task * call.head_rows() * call.shape.head_dim;
    kernels_->low_rank->project(*call.low_rank(), head, latents, projected.n_rows, projected.out);
    kernels_->attention->merge(projected, plain);
  });
}

const uint16_t* TieredAttention::decode_latents(const Call& call, int64_t page, int kv_head,
                                                const void* block, int thread) const {
  float angles[kMostLowRankHeadDim];
  call.pages.low_rank()->page_angles(call.layer, page, angles);
  uint16_t* decoded = call.scratch.block(thread);
  kernels_->low_rank->decode(*call.low_rank(), static_cast<const std::byte*>(block), kv_head,
                             angles, decoded, call.scratch.kernel(thread));
  return decoded;
}

}  // namespace tierkv
