// logits.cu: penalties, biases and masks.
#include "check.h"
#include "device.cuh"

namespace msgl {
namespace {

enum { LOGITS_THREADS = 256, ADJUST_BLOCKS = 32 };

struct AdjustArgs {
  Floats logits;
  const char *rows;
  int64_t rows_bytes;  // from row to row
  Indices data, last;
  int count, logit_rows, vocab, size, slots;
  int32_t *counts;     // [blocks, vocab]
};

// The number of a row's operands that are out of range.
__device__ int faults(const AdjustArgs &a, const msgl_adjustment &adj, int *room) {
  if (adj.row < 0 || adj.row >= a.logit_rows || adj.first < 0 || adj.outputs < 0 || adj.biases < 0) return 1;
  if (adj.first + (int64_t)adj.outputs + 2 * (int64_t)adj.biases > a.size) return 1;
  Indices ids = a.data + adj.first, pairs = ids + adj.outputs;
  int bad = 0;
  for (int i = (int)threadIdx.x; i < adj.outputs; i += LOGITS_THREADS) {
    int id = resolve(ids[i], a.last, a.slots);
    bad += id < 0 || id >= a.vocab;
  }
  for (int i = (int)threadIdx.x; i < adj.biases; i += LOGITS_THREADS) bad += pairs[2 * i] < 0 || pairs[2 * i] >= a.vocab;
  return block_sum(bad, room);
}

// Penalises each token that was generated, once. counts is as it was left: only
// the tokens' own are set to zero.
__device__ void penalise(const AdjustArgs &a, const msgl_adjustment &adj, float *x, int32_t *counts) {
  Indices ids = a.data + adj.first;
  for (int i = (int)threadIdx.x; i < adj.outputs; i += LOGITS_THREADS) counts[resolve(ids[i], a.last, a.slots)] = 0;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < adj.outputs; i += LOGITS_THREADS) atomicAdd(&counts[resolve(ids[i], a.last, a.slots)], 1);
  __syncthreads();
  for (int i = (int)threadIdx.x; i < adj.outputs; i += LOGITS_THREADS) {
    int id = resolve(ids[i], a.last, a.slots), n = counts[id];
    if (n == 0 || atomicCAS(&counts[id], n, 0) != n) continue;  // another thread has it
    float y = x[id] - (adj.frequency * (float)n + adj.presence);
    x[id] = y < 0 ? y * adj.repetition : y / adj.repetition;
  }
}

// Adds biases; of several for a token the first's thread adds all, in order.
__device__ void bias(const msgl_adjustment &adj, Indices pairs, float *x) {
  for (int i = (int)threadIdx.x; i < adj.biases; i += LOGITS_THREADS) {
    int id = pairs[2 * i];
    bool first = true;
    for (int j = 0; j < i; j++) first = first && pairs[2 * j] != id;
    for (int j = i; j < adj.biases && first; j++) {
      if (pairs[2 * j] == id) x[id] += __int_as_float(pairs[2 * j + 1]);
    }
  }
}

__global__ void adjust_kernel(Guard g, AdjustArgs a) {
  if (stopped(g)) return;
  int *room = shared_memory<int>();
  int32_t *counts = a.counts + (int64_t)blockIdx.x * a.vocab;
  for (int i = (int)blockIdx.x; i < a.count; i += (int)gridDim.x) {
    const msgl_adjustment adj = *(const msgl_adjustment *)(a.rows + i * a.rows_bytes);
    if (faults(a, adj, room) > 0) {
      if (threadIdx.x == 0) fail(g, MSGL_ERR_INDEX);
      continue;
    }
    float *x = a.logits.row(adj.row);
    penalise(a, adj, x, counts);
    __syncthreads();
    bias(adj, a.data + adj.first + adj.outputs, x);
    __syncthreads();
  }
}

__global__ void mask_kernel(Guard g, Floats logits, Indices rows, Indices bits, int64_t bits_stride, int limit, int vocab) {
  if (stopped(g)) return;
  int row = rows[blockIdx.x], id = (int)(blockIdx.y * LOGITS_THREADS + threadIdx.x);
  if (row < 0 || row >= limit) {
    if (threadIdx.x == 0) fail(g, MSGL_ERR_INDEX);
    return;
  }
  if (id >= vocab) return;
  uint32_t word = (uint32_t)bits[blockIdx.x * bits_stride + id / 32];
  if (!(word >> (id % 32) & 1)) logits.row(row)[id] = minus_infinity();
}

}  // namespace

int adjust(Run &run, const msgl_op &op) {
  const msgl_tensor &logits = op.t[0], &rows = op.t[1], &data = op.t[2], &last = op.t[3];
  int code = first_error(logits_of(logits, op.i[0]), view(rows, MSGL_I32, rows.rows, sizeof(msgl_adjustment) / 4),
                         view(data, MSGL_I32, 1, data.cols), optional(last, MSGL_I32, 1, last.cols));
  if (code != MSGL_OK) return code;
  unsigned blocks = (unsigned)smaller(rows.rows, ADJUST_BLOCKS);
  AdjustArgs a = {floats(logits), (const char *)ints(rows), (int64_t)rows.stride * 4, ints(data), ints(last), rows.rows,
                  logits.rows,    op.i[0],                  data.cols,                last.addr ? last.cols : 0, nullptr};
  a.counts = take<int32_t>(run, (int64_t)blocks * a.vocab);
  return launch(run, adjust_kernel, dim3(blocks), LOGITS_THREADS, WARP * sizeof(int), run.guard, a);
}

int mask(Run &run, const msgl_op &op) {
  const msgl_tensor &logits = op.t[0], &rows = op.t[1], &bits = op.t[2];
  int code = first_error(logits_of(logits, op.i[0]), view(rows, MSGL_I32, 1, rows.cols),
                         view(bits, MSGL_I32, rows.cols, ceil_div(op.i[0], 32)));
  if (code != MSGL_OK) return code;
  dim3 grid((unsigned)rows.cols, (unsigned)ceil_div(op.i[0], LOGITS_THREADS));
  return launch(run, mask_kernel, grid, LOGITS_THREADS, 0, run.guard, floats(logits), (Indices)ints(rows), (Indices)ints(bits),
                (int64_t)bits.stride, (int)logits.rows, (int)op.i[0]);
}

}  // namespace msgl
