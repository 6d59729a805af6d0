// rope.cu: norm of queries and keys, rotary embedding, store into the cache. A
// block a row, a warp a head.
#include "check.h"
#include "device.cuh"

namespace msgl {
namespace {

enum { ROPE_THREADS = 256 };

struct RopeArgs {
  Floats qkv, table;
  Indices positions, slots;
  char *k, *v;
  const float *q_norm, *k_norm;  // [D] or NULL
  int64_t row_bytes;             // of the caches
  int cache_dtype, cache_rows, table_rows;
  int q, kv, d;
  float eps;
};

// Normalises (w NULL: does not) and rotates one head, element i with element i + D/2.
// Products and sums are rounded one by one.
__device__ void rotate_head(float *x, const float *w, const float *cos_sin, int d, float eps) {
  int lane = (int)threadIdx.x % WARP, half = d / 2;
  float scale = 1;
  if (w) {
    float squares = 0;
    for (int i = lane; i < d; i += WARP) squares = fmaf(x[i], x[i], squares);
    scale = 1.0f / sqrtf(warp_sum(squares) / (float)d + eps);
  }
  for (int i = lane; i < half; i += WARP) {
    float a = x[i], b = x[half + i], c = cos_sin[i], s = cos_sin[half + i];
    if (w) {
      a = a * scale * w[i];
      b = b * scale * w[half + i];
    }
    x[i] = a * c - b * s;
    x[half + i] = b * c + a * s;
  }
  __syncwarp();
}

// Rounds a head to codes, its scale being its largest magnitude / 127.
__device__ void store_i8(int8_t *codes, float *scale, const float *x, int d) {
  int lane = (int)threadIdx.x % WARP;
  float most = 0;
  for (int i = lane; i < d; i += WARP) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
  most = warp_max(most);
  float inverse = most > 0 ? 127.0f / most : 0;
  for (int i = lane; i < d; i += WARP) codes[i] = (int8_t)rintf(x[i] * inverse);
  if (lane == 0) *scale = most / 127.0f;
}

// Writes head h of a row of a cache.
__device__ void store_head(const RopeArgs &a, char *row, int h, const float *x) {
  int lane = (int)threadIdx.x % WARP;
  switch (a.cache_dtype) {
    case MSGL_I8: store_i8((int8_t *)row + h * a.d, (float *)(row + a.kv * a.d) + h, x, a.d); return;
    case MSGL_BF16:
      for (int i = lane; i < a.d; i += WARP) ((uint16_t *)row)[h * a.d + i] = to_bf16(x[i]);
      return;
    case MSGL_F16:
      for (int i = lane; i < a.d; i += WARP) ((uint16_t *)row)[h * a.d + i] = to_f16(x[i]);
      return;
    case MSGL_F8:
      for (int i = lane; i < a.d; i += WARP) ((uint8_t *)row)[h * a.d + i] = to_f8(x[i]);
      return;
    default:
      for (int i = lane; i < a.d; i += WARP) ((float *)row)[h * a.d + i] = x[i];
  }
}

__global__ void rope_store_kernel(Guard g, RopeArgs a) {
  if (stopped(g)) return;
  int position = a.positions[blockIdx.x], slot = a.slots[blockIdx.x];
  if (position < 0 || position >= a.table_rows || slot < 0 || slot >= a.cache_rows) {
    if (threadIdx.x == 0) fail(g, MSGL_ERR_INDEX);
    return;
  }
  float *row = a.qkv.row(blockIdx.x);
  const float *cos_sin = a.table.row(position);
  for (int h = (int)threadIdx.x / WARP; h < a.q + 2 * a.kv; h += ROPE_THREADS / WARP) {
    float *head = row + (int64_t)h * a.d;
    if (h < a.q + a.kv) rotate_head(head, h < a.q ? a.q_norm : a.k_norm, cos_sin, a.d, a.eps);
    if (h >= a.q && h < a.q + a.kv) store_head(a, a.k + slot * a.row_bytes, h - a.q, head);
    if (h >= a.q + a.kv) store_head(a, a.v + slot * a.row_bytes, h - a.q - a.kv, head);
  }
}

}  // namespace

int check_heads(const msgl_op &op) {
  int q = op.i[0], kv = op.i[1], d = op.i[2];
  if (q <= 0 || kv <= 0 || q % kv || d <= 0 || d % 8 || d > 256 || op.i[3] <= 0) return MSGL_ERR_SHAPE;
  return q > INT32_MAX / d / 4 ? MSGL_ERR_SHAPE : MSGL_OK;
}

int check_caches(const msgl_op &op, const msgl_tensor &k, const msgl_tensor &v) {
  bool known = k.dtype == MSGL_F32 || k.dtype == MSGL_BF16 || k.dtype == MSGL_F16 || k.dtype == MSGL_I8 || k.dtype == MSGL_F8;
  if (!known) return MSGL_ERR_DTYPE;
  int64_t cols = (int64_t)op.i[1] * (k.dtype == MSGL_I8 ? op.i[2] + 4 : op.i[2]);
  if (k.stride != cols || v.stride != cols) return MSGL_ERR_SHAPE;
  return both(view(k, k.dtype, k.rows, cols), view(v, k.dtype, k.rows, cols));
}

int rope_store(Run &run, const msgl_op &op) {
  int code = check_heads(op);
  if (code != MSGL_OK) return code;
  int64_t q = op.i[0], kv = op.i[1], d = op.i[2];
  const msgl_tensor &qkv = op.t[0], &table = op.t[3], &k = op.t[4], &v = op.t[5];
  code = first_error(columns(qkv, MSGL_F32, (q + 2 * kv) * d), columns(table, MSGL_F32, d), view(op.t[1], MSGL_I32, 1, qkv.rows),
                     view(op.t[2], MSGL_I32, 1, qkv.rows), check_caches(op, k, v), optional(op.t[6], MSGL_F32, 1, d),
                     optional(op.t[7], MSGL_F32, 1, d));
  if (code != MSGL_OK) return code;
  RopeArgs a = {floats(qkv), floats(table), ints(op.t[1]), ints(op.t[2]), (char *)(uintptr_t)k.addr, (char *)(uintptr_t)v.addr,
                floats(op.t[6]).p, floats(op.t[7]).p, (int64_t)k.stride * elem_size(k.dtype), k.dtype, k.rows, table.rows,
                (int)q, (int)kv, (int)d, op.f[0]};
  return launch(run, rope_store_kernel, dim3((unsigned)qkv.rows), ROPE_THREADS, 0, run.guard, a);
}

}  // namespace msgl
