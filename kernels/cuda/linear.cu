// linear.cu: LINEAR, and its kernel for weights of f32.
//
// An output is one chain of multiply-adds over k = 0, 1, ...: the CPU kernels' bits.
#include "linear.cuh"

namespace msgl {
namespace {

enum {
  LINEAR_THREADS = 128,
  OUTPUTS = 64,  // of a block: 4 of a thread
  ROWS = 16,     // of a block: 2 of a thread
  STEP = 32,     // columns that are staged at a time
  W_STRIDE = OUTPUTS + 1,
  X_STRIDE = ROWS + 1,
};

// Stages columns [k, k + STEP) of the block's weights, [STEP][W_STRIDE], and rows of x, [STEP][X_STRIDE].
__device__ void stage(float *ws, float *xs, const LinearArgs &a, const RowTile &t, int output, int k) {
  for (int i = (int)threadIdx.x; i < OUTPUTS * STEP; i += LINEAR_THREADS) {
    int n = output + i / STEP, c = k + i % STEP;
    ws[i % STEP * W_STRIDE + i / STEP] = n < a.n && c < a.k ? ((const float *)t.w)[(int64_t)n * a.k + c] : 0;
  }
  for (int i = (int)threadIdx.x; i < ROWS * STEP; i += LINEAR_THREADS) {
    int r = i / STEP, c = k + i % STEP;
    xs[i % STEP * X_STRIDE + r] = r < t.rows && c < a.k ? a.x.row(source(a, t.first + r))[c] : 0;
  }
}

__global__ void __launch_bounds__(LINEAR_THREADS, 1) linear_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  float *ws = shared_memory<float>(), *xs = ws + STEP * W_STRIDE;
  RowTile t = row_tile(a, (int)blockIdx.x, ROWS);
  if (t.rows <= 0) return;
  int output = (int)blockIdx.y * OUTPUTS, n = (int)threadIdx.x % 16 * 4, r = (int)threadIdx.x / 16 * 2;
  float acc[2][4] = {};
  for (int k = 0; k < a.k; k += STEP) {
    __syncthreads();
    stage(ws, xs, a, t, output, k);
    __syncthreads();
    int steps = r < t.rows ? (int)smaller(STEP, a.k - k) : 0;
    for (int c = 0; c < steps; c++) {
      for (int i = 0; i < 2; i++) {
        float x = xs[c * X_STRIDE + r + i];
        for (int j = 0; j < 4; j++) acc[i][j] = fmaf(ws[c * W_STRIDE + n + j], x, acc[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int at = output + n + j;
      if (r + i < t.rows && at < a.n) a.dst.row(t.first + r + i)[at] = a.bias ? acc[i][j] + a.bias[at] : acc[i][j];
    }
  }
}

}  // namespace

// Of weights that are not quantized.
static bool on_tensor_cores(const LinearArgs &a) { return a.dtype != MSGL_F32; }

int launch_linear(Run &run, const LinearArgs &a) {
  if (quant_of(a.dtype).bits) return launch_linear_quant(run, a);
  if (on_tensor_cores(a)) return launch_linear_tensor(run, a);
  dim3 grid(row_tiles(a, ROWS), (unsigned)ceil_div(a.n, OUTPUTS));
  size_t shared = STEP * (W_STRIDE + X_STRIDE) * sizeof(float);
  return launch(run, linear_kernel, grid, LINEAR_THREADS, shared, run.guard, a);
}

int launch_rounding(Run &run, LinearArgs *a, int rows) {
  if (quant_of(a->dtype).bits) return launch_quantize(run, &a->codes, a->x, rows, a->k);
  return on_tensor_cores(*a) ? launch_round(run, a, rows) : MSGL_OK;
}

int linear(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &x = op.t[1], &w = op.t[2], &bias = op.t[3];
  int code = first_error(columns(x, MSGL_F32, w.cols), packed(w, x.cols), view(dst, MSGL_F32, x.rows, w.rows),
                         optional(bias, MSGL_F32, 1, w.rows));
  if (code != MSGL_OK || x.rows == 0) return code;
  LinearArgs a = {};
  a.dst = floats(dst);
  a.x = floats(x);
  a.w = (const char *)(uintptr_t)w.addr;
  a.bias = floats(bias).p;
  a.n = w.rows;
  a.k = w.cols;
  a.dtype = w.dtype;
  a.rows = x.rows;
  code = launch_rounding(run, &a, a.rows);
  return code == MSGL_OK ? launch_linear(run, a) : code;
}

}  // namespace msgl
