// attention.cu: FlashInfer's kernel for prompts over paged caches (its FA2 template), launched
// for prompts and for decoding, once for each MSGL_FI_D and MSGL_FI_DTYPE.
//
// A row's bits must not depend on its batch, nor on how its prompt was cut. FlashInfer's own
// launcher (BatchPrefillWithPagedKVCacheDispatched) chooses tiles by the GPU's shared memory, and its
// planner cuts by lengths, so the kernel is launched here, with one tile for all: 16 pairs of row
// and query head, four warps side by side over CTA_TILE_KV = 64 * NUM_MMA_KV positions, no split of
// the positions into chunks (partition_kv false, kv_chunk_size unused). Why that is enough, by
// attention/prefill.cuh of 0.7.4:
//
//   - Without a window of FlashInfer's, kv_start_idx is 0 (window_left becomes kv_len), so tiles of
//     positions begin at fixed multiples of CTA_TILE_KV, and a warp has the same 16 * NUM_MMA_KV of each.
//   - A score is one chain of tensor core products over the head. Pairs of a tile never mix: maximum,
//     sum and output are per row; rows of a tile that are not there hold garbage, and are not written.
//   - Which tiles of positions are visited depends on the tile's last row (num_iterations). Those behind a
//     row's own position are hidden from it whole: scores become -inf, the maximum stays, o_scale is
//     exp2((m - m) * scale) = exp2(0), which ex2.approx gives as 1 exactly, and weights are exp2(-inf) = 0. So
//     they change no bit; nor do the hidden positions of the tile that has the row's own, whose
//     weights are 0 (values behind the last position are zeros, kFillZero; keys there are garbage
//     whose scores are overwritten). Whether a tile is masked at all (mask_iteration) shows in no score that is seen.
//   - A warp that has seen nothing (m = -inf) has d = 0 and counts nothing when the four are merged, in
//     order of warps (threadblock_sync_mdo_states), always by the same factors.
//   - There is no atomic addition and no split reduction; pages only say where a position's key lies.
//
// It rests on one property of tensor cores, as our own attention.cu does: a product that is exactly zero changes
// no sum. Values are finite: 0 times an infinite one would be a NaN.
//
// FlashInfer's sliding window begins its tiles at a position that depends on the tile's first row: another
// order of sums for another cut of the prompt. Here the window is a mask instead, of the scores as they
// are computed, and all tiles from 0 on are visited: the same bits, at full attention's time. A row's first
// tiles may then be hidden whole; m stays -inf, and o_scale is 0 by a case of its own.
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <type_traits>

#include "../../cpu/msgl.h"
#include "attend.h"

namespace msgl_fi {

using namespace flashinfer;

// kv lengths come from an array of their own: FlashInfer's would be the pages'.
template <class T> struct Params : BatchPrefillPagedParams<T, T, float, int32_t> {
  const int32_t *lens;
  uint32_t window;
  __host__ __device__ __forceinline__ uint32_t get_kv_len(uint32_t request) const { return (uint32_t)lens[request]; }
};

// Hides what is before the window; causality is the kernel's.
struct Variant : DefaultAttention<false, false, false, false> {
  template <class P> __device__ __host__ Variant(const P &params, uint32_t request, uint8_t *shared) : DefaultAttention(params, request, shared) {}

  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    bool before = params.window > 0 && kv_idx + params.window + this->qo_len <= qo_idx + this->kv_len;
    return before ? -math::inf : logits;
  })
};

template <class T> T *pointer(uint64_t p) { return (T *)(uintptr_t)p; }

template <class T> Params<T> params_of(const msgl_fi_task &t) {
  Params<T> p;
  p.q = pointer<T>(t.q);
  int64_t strides[] = {(int64_t)t.page * t.row_elems, t.row_elems, t.d};
  p.paged_kv = paged_kv_t<T, int32_t>((uint32_t)t.kv, (uint32_t)t.page, (uint32_t)t.d, (uint32_t)t.requests, QKVLayout::kNHD, pointer<T>(t.k),
                                      pointer<T>(t.v), strides, pointer<int32_t>(t.pages), pointer<int32_t>(t.page_starts), nullptr);
  p.q_indptr = p.o_indptr = pointer<int32_t>(t.first_rows);
  p.o = pointer<float>(t.out);
  p.group_size = uint_fastdiv((uint32_t)(t.heads / t.kv));
  p.num_qo_heads = (uint32_t)t.heads;
  p.q_stride_n = t.heads * t.d;
  p.q_stride_h = t.d;
  p.window_left = -1;
  p.sm_scale = t.scale;
  p.request_indices = pointer<int32_t>(t.tile_requests);
  p.qo_tile_indices = pointer<int32_t>(t.tile_numbers);
  p.kv_tile_indices = pointer<int32_t>(t.tile_chunks);
  p.kv_chunk_size_ptr = pointer<int32_t>(t.chunk);
  p.block_valid_mask = pointer<bool>(t.tile_there);
  p.padded_batch_size = (uint32_t)t.tiles;
  p.lens = pointer<int32_t>(t.lens);
  p.window = (uint32_t)t.window;
  return p;
}

template <int D, int DTYPE> int attend(const msgl_fi_task &task) {
  typedef std::conditional_t<DTYPE == MSGL_BF16, nv_bfloat16, half> T;
  enum { MMA_D = D / 16, MMA_KV = 256 / D, WARPS = 4 };
  typedef KernelTraits<MaskMode::kCausal, MSGL_FI_TILE, 1, MMA_KV, MMA_D, MMA_D, 1, WARPS, PosEncodingMode::kNone, T, T, float, float, int32_t, Variant> Traits;
  static_assert(!Traits::IsInvalid(), "FlashInfer has no such tile");
  constexpr size_t SHARED = sizeof(typename Traits::SharedStoragePaged);
  static_assert(SHARED <= 99 << 10, "GPUs have no such shared memory");
  auto kernel = BatchPrefillWithPagedKVCacheKernel<true, Traits, Params<T>>;
  cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED);
  if (code != cudaSuccess) return code;
  kernel<<<dim3((unsigned)task.tiles, 1, (unsigned)task.kv), dim3(32, 1, WARPS), SHARED, (cudaStream_t)(uintptr_t)task.stream>>>(params_of<T>(task));
  return cudaPeekAtLastError();
}

template int attend<MSGL_FI_D, MSGL_FI_DTYPE>(const msgl_fi_task &task);

}  // namespace msgl_fi
