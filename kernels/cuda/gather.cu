// gather.cu: the exchange between the ranks of a model that several GPUs hold together.
#include "check.h"
#include "device.cuh"

namespace msgl {
namespace {

enum { SPREAD_THREADS = 256 };

// all holds [rows, n] of each rank, one rank after the other; they become columns of dst.
__global__ void spread_kernel(Guard g, Floats dst, const float *all, int rows, int n) {
  if (stopped(g)) return;
  int row = (int)blockIdx.x, rank = (int)blockIdx.y;
  const float *from = all + ((int64_t)rank * rows + row) * n;
  float *to = dst.row(row) + (int64_t)rank * n;
  for (int c = (int)threadIdx.x; c < n; c += SPREAD_THREADS) to[c] = from[c];
}

}  // namespace

// Of one row, what the ranks computed lies one after the other as it is to.
int all_gather(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &x = op.t[1];
  const msgl_cuda_exchange &exchange = run.args->exchange;
  if (!exchange.gather) return MSGL_ERR_KIND;
  int code = both(columns(x, MSGL_F32, x.cols), view(dst, MSGL_F32, x.rows, (int64_t)exchange.ranks * x.cols));
  if (code != MSGL_OK || x.rows == 0) return code;
  if (x.rows > 1 && x.stride != x.cols) return MSGL_ERR_SHAPE;
  int64_t count = (int64_t)x.rows * x.cols;
  float *all = x.rows == 1 ? (float *)(uintptr_t)dst.addr : take<float>(run, exchange.ranks * count);
  if (run.dry) return MSGL_OK;
  code = exchange.gather(exchange.rank, all, (const void *)(uintptr_t)x.addr, (uint64_t)count, run.args->stream);
  if (code != 0) {
    run.args->exchange_code = code;
    return MSGL_ERR_DEVICE;
  }
  if (x.rows == 1) return MSGL_OK;
  dim3 grid((unsigned)x.rows, (unsigned)exchange.ranks);
  return launch(run, spread_kernel, grid, SPREAD_THREADS, 0, run.guard, floats(dst), all, x.rows, x.cols);
}

}  // namespace msgl
