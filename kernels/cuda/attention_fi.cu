// attention_fi.cu: ATTENTION by FlashInfer: what its kernel needs of a batch. See msgl_fi.h.
//
// The plan that FlashInfer makes on the host is made here, on the device, for as many tiles as
// there can be: so a launch does not depend on lengths, and is captured in graphs.
#include "check.h"
#include "device.cuh"

namespace msgl {
namespace {

enum { PLAN_THREADS = 256 };

struct FiArgs {
  Floats q;
  uint16_t *halves;  // q, rounded to the caches' type
  Indices table, cu, lens;
  int64_t table_stride;
  int32_t *pages, *page_starts, *tile_requests, *tile_numbers, *tile_chunks, *chunk;
  uint8_t *tile_there;
  int tiles, requests, rows, heads, kv, d, page, table_cols, cache_pages, dtype;
};

// The tiles of a request. What does not fit is a fault, and has none.
__device__ int tiles_of(Guard g, const FiArgs &a, int r) {
  int rows = a.cu[r + 1] - a.cu[r], length = a.lens[r];
  bool ends = (r > 0 || a.cu[0] == 0) && (r + 1 < a.requests || a.cu[a.requests] == a.rows);
  if (!ends || rows < 0 || length < rows || a.cu[r] < 0 || a.cu[r + 1] > a.rows || ceil_div(length, a.page) > a.table_cols) {
    fail(g, MSGL_ERR_INDEX);
    return 0;
  }
  return (int)ceil_div((int64_t)rows * (a.heads / a.kv), MSGL_FI_TILE);
}

// Finds the request of the block's tile; of a request, the tiles that see most come first.
__device__ void plan_tile(Guard g, const FiArgs &a, int tile) {
  int *room = shared_memory<int>(), before = 0, sum;
  for (int first = 0; first < a.requests; first += PLAN_THREADS) {
    int r = first + (int)threadIdx.x, count = r < a.requests ? tiles_of(g, a, r) : 0;
    int at = tile - before - block_before(count, room, &sum);
    before += sum;
    if (at < 0 || at >= count) continue;
    a.tile_requests[tile] = r;
    a.tile_numbers[tile] = count - 1 - at;
    a.tile_chunks[tile] = 0;
  }
  if (threadIdx.x == 0) a.tile_there[tile] = tile < before;
}

// Copies a request's pages, with page 0 in place of what is none: FlashInfer's kernel checks nothing.
__device__ void copy_pages(Guard g, const FiArgs &a, int r) {
  int64_t used = ceil_div(a.lens[r], a.page);
  for (int c = (int)threadIdx.x; c < a.table_cols; c += PLAN_THREADS) {
    int page = c < used ? a.table[r * a.table_stride + c] : 0;
    if (page < 0 || page >= a.cache_pages) {
      fail(g, MSGL_ERR_INDEX);
      page = 0;
    }
    a.pages[(int64_t)r * a.table_cols + c] = page;
  }
  if (threadIdx.x == 0) a.page_starts[r + 1] = (r + 1) * a.table_cols;
}

// A block a tile; together they do the rest.
__global__ void fi_plan_kernel(Guard g, FiArgs a) {
  int tile = (int)blockIdx.x;
  if (stopped(g)) {
    if (threadIdx.x == 0) a.tile_there[tile] = 0;
    return;
  }
  plan_tile(g, a, tile);
  if (tile == 0 && threadIdx.x == 0) *a.page_starts = 0, *a.chunk = 1;
  for (int r = tile; r < a.requests; r += (int)gridDim.x) copy_pages(g, a, r);
  int cols = a.heads * a.d;
  for (int row = tile; row < a.rows; row += (int)gridDim.x) {
    for (int c = (int)threadIdx.x; c < cols; c += PLAN_THREADS) {
      float x = a.q.row(row)[c];
      a.halves[(int64_t)row * cols + c] = a.dtype == MSGL_F16 ? to_f16(x) : to_bf16(x);
    }
  }
}

// A block a row.
__global__ void fi_spread_kernel(Guard g, Floats dst, const float *out, int cols) {
  if (stopped(g)) return;
  for (int c = (int)threadIdx.x; c < cols; c += PLAN_THREADS) dst.row(blockIdx.x)[c] = out[(int64_t)blockIdx.x * cols + c];
}

uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }

}  // namespace

int attention_fi(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &q = op.t[1], &k = op.t[2], &v = op.t[3], &table = op.t[4];
  if (k.dtype != MSGL_BF16 && k.dtype != MSGL_F16) return MSGL_ERR_DTYPE;
  FiArgs a = {};
  a.q = floats(q);
  a.table = ints(table);
  a.cu = ints(op.t[5]);
  a.lens = ints(op.t[6]);
  a.table_stride = table.stride;
  a.requests = table.rows;
  a.rows = q.rows;
  a.heads = op.i[0];
  a.kv = op.i[1];
  a.d = op.i[2];
  a.page = op.i[3];
  a.table_cols = table.cols;
  a.cache_pages = (int)(k.rows / a.page);
  a.dtype = k.dtype;
  int64_t cols = q.cols, pages = (int64_t)a.requests * a.table_cols, misaligned = k.addr | v.addr | (uint64_t)k.stride * 2 | (uint64_t)a.d * 2;
  int64_t tiles = ((int64_t)a.rows * (a.heads / a.kv) + (int64_t)a.requests * (MSGL_FI_TILE - 1)) / MSGL_FI_TILE;
  // FlashInfer counts in 32 bits.
  bool small = pages * a.page <= INT32_MAX && a.rows * cols <= INT32_MAX && tiles <= INT32_MAX;
  if (a.requests == 0 || k.stride != v.stride || misaligned % 16 || !small) return MSGL_ERR_SHAPE;
  a.tiles = (int)tiles;
  a.halves = take<uint16_t>(run, a.rows * cols);
  a.pages = take<int32_t>(run, pages);
  a.page_starts = take<int32_t>(run, a.requests + 1);
  a.tile_requests = take<int32_t>(run, tiles);
  a.tile_numbers = take<int32_t>(run, tiles);
  a.tile_chunks = take<int32_t>(run, tiles);
  a.chunk = take<int32_t>(run, 1);
  a.tile_there = take<uint8_t>(run, tiles);
  bool direct = (dst.rows == 1 || dst.stride == cols) && dst.addr % 8 == 0;
  float *out = direct ? floats(dst).p : take<float>(run, a.rows * cols);
  if (run.dry) return MSGL_OK;
  int code = launch(run, fi_plan_kernel, dim3((unsigned)tiles), PLAN_THREADS, WARP * sizeof(int), run.guard, a);
  if (code != MSGL_OK) return code;
  msgl_fi_task task = {};
  task.stream = run.args->stream;
  task.out = address(out);
  task.q = address(a.halves);
  task.k = k.addr;
  task.v = v.addr;
  task.first_rows = address(a.cu);
  task.lens = address(a.lens);
  task.pages = address(a.pages);
  task.page_starts = address(a.page_starts);
  task.tile_there = address(a.tile_there);
  task.tile_requests = address(a.tile_requests);
  task.tile_numbers = address(a.tile_numbers);
  task.tile_chunks = address(a.tile_chunks);
  task.chunk = address(a.chunk);
  task.tiles = a.tiles;
  task.requests = a.requests;
  task.heads = a.heads;
  task.kv = a.kv;
  task.d = a.d;
  task.page = a.page;
  task.row_elems = k.stride;
  task.dtype = k.dtype;
  task.window = op.i[4];
  task.scale = op.f[0];
  code = run.args->attention(&task);
  if (code != 0) {
    run.args->attention_code = code;
    return code == MSGL_FI_LACKS ? MSGL_ERR_SHAPE : MSGL_ERR_DEVICE;
  }
  if (direct) return MSGL_OK;
  return launch(run, fi_spread_kernel, dim3((unsigned)a.rows), PLAN_THREADS, 0, run.guard, floats(dst), out, (int)cols);
}

}  // namespace msgl
