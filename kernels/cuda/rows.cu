// rows.cu: the operations on rows: embed, norm, gate, gather. A block a row.
#include "check.h"
#include "device.cuh"

namespace msgl {
namespace {

enum { ROW_THREADS = 256 };

// One value of a weight.
__device__ float weight_value(const char *w, int dtype, int64_t r, int64_t c, int64_t k) {
  Quant q = quant_of(dtype);
  if (dtype == MSGL_BF16) return from_bf16(((const uint16_t *)w)[tile_index(r, c, k)]);
  if (dtype == MSGL_F16) return from_f16(((const uint16_t *)w)[tile_index(r, c, k)]);
  if (dtype == MSGL_F8) return from_bf16(to_bf16(from_f8((uint8_t)w[f8_index(r, c, k)], *(const float *)(w + f8_scale_index(r, c, k)))));
  const char *row = w + r * weight_row_bytes(k, dtype);
  if (q.bits == 0) return ((const float *)row)[c];
  int code = q.bits == 8 ? ((const uint8_t *)row)[c] : ((const uint8_t *)row)[c / 2] >> (c % 2 * 4) & 15;
  const char *scales = row + k * q.bits / 8, *minima = scales + k / q.group * q.scale_bytes;
  int64_t g = c / q.group;
  float scale = q.scale_bytes == 2 ? from_f16(((const uint16_t *)scales)[g]) : ((const float *)scales)[g];
  float x = (float)(code - q.zero) * scale;
  return q.minimum ? x + ((const float *)minima)[g] : x;
}

struct EmbedArgs {
  Floats dst;
  const char *table;
  Indices ids, last;
  int dtype, vocab, cols, slots;
  float scale;
};

__global__ void embed_kernel(Guard g, EmbedArgs a) {
  if (stopped(g)) return;
  int id = resolve(a.ids[blockIdx.x], a.last, a.slots);
  if (id < 0 || id >= a.vocab) {
    if (threadIdx.x == 0) fail(g, MSGL_ERR_INDEX);
    return;
  }
  float *out = a.dst.row(blockIdx.x);
  for (int c = (int)threadIdx.x; c < a.cols; c += ROW_THREADS) {
    float x = weight_value(a.table, a.dtype, id, c, a.cols);
    out[c] = a.scale != 0 ? x * a.scale : x;
  }
}

// residual.p NULL: none
__global__ void rms_norm_kernel(Guard g, Floats dst, Floats x, const float *w, Floats residual, int cols, float eps) {
  if (stopped(g)) return;
  float *room = shared_memory<float>(), *in = x.row(blockIdx.x), *out = dst.row(blockIdx.x);
  if (residual.p) {
    float *sum = residual.row(blockIdx.x);
    for (int c = (int)threadIdx.x; c < cols; c += ROW_THREADS) sum[c] += in[c];
    in = sum;
  }
  float squares = 0;
  for (int c = (int)threadIdx.x; c < cols; c += ROW_THREADS) squares = fmaf(in[c], in[c], squares);
  squares = block_sum(squares, room);
  float scale = 1.0f / sqrtf(squares / (float)cols + eps);
  for (int c = (int)threadIdx.x; c < cols; c += ROW_THREADS) out[c] = in[c] * scale * w[c];
}

// The tanh approximation of GELU: x/2 (1 + tanh(u)) = x / (1 + exp(-2u)),
// u = sqrt(2/pi) (x + 0.044715 x^3).
__device__ float gelu_tanh(float x) {
  float twice = x * fmaf(x * x, 0.0713548162726f, 1.5957691216057f);
  return x / (1.0f + exp_of(-twice));
}

__global__ void act_mul_kernel(Guard g, Floats dst, Floats x, int cols, int kind) {
  if (stopped(g)) return;
  int c = (int)(blockIdx.y * ROW_THREADS + threadIdx.x);
  if (c >= cols) return;
  const float *gate = x.row(blockIdx.x);
  dst.row(blockIdx.x)[c] = (kind == MSGL_GELU_TANH ? gelu_tanh(gate[c]) : silu(gate[c])) * gate[cols + c];
}

__global__ void gather_rows_kernel(Guard g, Floats dst, Floats x, Indices rows, int limit, int cols) {
  if (stopped(g)) return;
  int row = rows[blockIdx.x];
  if (row < 0 || row >= limit) {
    if (threadIdx.x == 0) fail(g, MSGL_ERR_INDEX);
    return;
  }
  for (int c = (int)threadIdx.x; c < cols; c += ROW_THREADS) dst.row(blockIdx.x)[c] = x.row(row)[c];
}

}  // namespace

int embed(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &table = op.t[1], &ids = op.t[2], &last = op.t[3];
  int code = first_error(columns(dst, MSGL_F32, table.cols), packed(table, dst.cols), view(ids, MSGL_I32, 1, dst.rows),
                         optional(last, MSGL_I32, 1, last.cols));
  if (code != MSGL_OK) return code;
  EmbedArgs a = {floats(dst), (const char *)(uintptr_t)table.addr, ints(ids), ints(last), table.dtype, table.rows,
                 dst.cols,    last.addr ? last.cols : 0,            op.f[0]};
  return launch(run, embed_kernel, dim3((unsigned)dst.rows), ROW_THREADS, 0, run.guard, a);
}

int rms_norm(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &x = op.t[1], &w = op.t[2], &residual = op.t[3];
  int code = first_error(columns(x, MSGL_F32, dst.cols), view(dst, MSGL_F32, x.rows, x.cols), view(w, MSGL_F32, 1, x.cols),
                         optional(residual, MSGL_F32, x.rows, x.cols));
  if (code != MSGL_OK) return code;
  return launch(run, rms_norm_kernel, dim3((unsigned)x.rows), ROW_THREADS, WARP * sizeof(float), run.guard, floats(dst), floats(x),
                (const float *)floats(w).p, floats(residual), (int)x.cols, op.f[0]);
}

int act_mul(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &x = op.t[1];
  int code = both(columns(dst, MSGL_F32, dst.cols), view(x, MSGL_F32, dst.rows, 2 * (int64_t)dst.cols));
  if (code != MSGL_OK) return code;
  if (op.i[0] != MSGL_SILU && op.i[0] != MSGL_GELU_TANH) return MSGL_ERR_KIND;
  dim3 grid((unsigned)dst.rows, (unsigned)ceil_div(dst.cols, ROW_THREADS));
  return launch(run, act_mul_kernel, grid, ROW_THREADS, 0, run.guard, floats(dst), floats(x), (int)dst.cols, (int)op.i[0]);
}

int gather_rows(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &x = op.t[1], &rows = op.t[2];
  int code = first_error(columns(dst, MSGL_F32, x.cols), columns(x, MSGL_F32, dst.cols), view(rows, MSGL_I32, 1, dst.rows));
  if (code != MSGL_OK) return code;
  return launch(run, gather_rows_kernel, dim3((unsigned)dst.rows), ROW_THREADS, 0, run.guard, floats(dst), floats(x), (Indices)ints(rows),
                (int)x.rows, (int)dst.cols);
}

}  // namespace msgl
