// linear_tensor.cu: LINEAR for weights of bf16, on tensor cores.
//
// The columns are cut in four quarters, at fixed places. Each is one chain of tiles of
// 16 columns; the quarters are added in order. Few rows: a warp takes a quarter,
// so that many weights are on their way from memory at once. Many rows: a warp takes
// one quarter after the other. Either way a row's result has the same bits.
#include "linear.cuh"
#include "mma.cuh"

namespace msgl {
namespace {

enum {
  TENSOR_THREADS = 128,
  TENSOR_WARPS = TENSOR_THREADS / WARP,
  QUARTERS = 4,
  N_TILE = 8,                     // rows of x of a tile
  CHUNK_STEPS = 4,                // tiles of columns whose x is staged at a time
  CHUNK_COLS = CHUNK_STEPS * TILE_COLS,
  X_PITCH = CHUNK_COLS + 16,      // elements; eight rows of 8 bytes in different banks
  NARROW_ROWS = 32,               // up to here warps share the columns
};

// The lane's four values of row r of x (NULL: zeros), rounded to bf16; column c is its first.
__device__ uint2 x_fragment(const float *row, int c, int k) {
  float v[4];
  for (int i = 0; i < 4; i++) v[i] = row && c + i < k ? row[c + i] : 0;
  return {pair_bf16(v[0], v[1]), pair_bf16(v[2], v[3])};
}

// Stores a warp's sums of 16 outputs and a tile of rows: lane 4g + j has rows
// 2j, 2j + 1 of outputs g, g + 8.
__device__ void store_tile(const LinearArgs &a, const RowTile &t, int output, int row, const float sum[4]) {
  int lane = (int)threadIdx.x % WARP;
  for (int i = 0; i < 4; i++) {
    int n = output + lane / 4 + i / 2 * 8, r = row + lane % 4 * 2 + i % 2;
    if (n < a.n && r < t.rows) a.dst.row(t.first + r)[n] = a.bias ? sum[i] + a.bias[n] : sum[i];
  }
}

// TILES tiles of rows, 16 outputs, a warp a quarter.
template <int TILES> __global__ void __launch_bounds__(TENSOR_THREADS, 1) linear_narrow_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  RowTile t = row_tile(a, (int)blockIdx.x, TILES * N_TILE);
  if (t.rows <= 0) return;
  float *parts = shared_memory<float>();  // [quarters][tiles][4][lanes]
  int lane = (int)threadIdx.x % WARP, quarter = (int)threadIdx.x / WARP, steps = (int)tile_steps(a.k);
  int length = (int)ceil_div(steps, QUARTERS), end = (int)smaller(steps, (quarter + 1) * length);
  const uint4 *w = (const uint4 *)t.w + (int64_t)blockIdx.y * steps * WARP + lane;
  const float *x[TILES];
  for (int i = 0; i < TILES; i++) {
    int r = i * N_TILE + lane / 4;
    x[i] = r < t.rows ? a.x.row(source(a, t.first + r)) : nullptr;
  }
  float acc[TILES][4] = {};
#pragma unroll 4
  for (int s = quarter * length; s < end; s++) {
    uint4 weights = w[(int64_t)s * WARP];
    for (int i = 0; i < TILES; i++) mma_bf16(acc[i], weights, x_fragment(x[i], s * TILE_COLS + lane % 4 * 4, a.k));
  }
  for (int i = 0; i < TILES * 4; i++) parts[(quarter * TILES * 4 + i) * WARP + lane] = acc[i / 4][i % 4];
  __syncthreads();
  for (int i = quarter; i < TILES; i += TENSOR_WARPS) {
    float sum[4];
    for (int e = 0; e < 4; e++) {
      sum[e] = parts[(i * 4 + e) * WARP + lane];
      for (int q = 1; q < QUARTERS; q++) sum[e] += parts[(q * TILES * 4 + i * 4 + e) * WARP + lane];
    }
    store_tile(a, t, (int)blockIdx.y * PANEL, i * N_TILE, sum);
  }
}

// Stages rows of x, columns [c, c + CHUNK_COLS), as bf16 [rows][X_PITCH].
__device__ void stage_rows(uint16_t *xs, const LinearArgs &a, const RowTile &t, int rows, int c) {
  for (int i = (int)threadIdx.x; i < rows * CHUNK_COLS / 2; i += TENSOR_THREADS) {
    int r = i / (CHUNK_COLS / 2), col = i % (CHUNK_COLS / 2) * 2;
    const float *row = r < t.rows ? a.x.row(source(a, t.first + r)) + c + col : nullptr;
    float first = row && c + col < a.k ? row[0] : 0, second = row && c + col + 1 < a.k ? row[1] : 0;
    *(uint32_t *)(xs + r * X_PITCH + col) = pair_bf16(first, second);
  }
}

// TILES tiles of rows, 16 outputs a warp, quarter after quarter.
template <int TILES> __global__ void __launch_bounds__(TENSOR_THREADS, 1) linear_wide_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  RowTile t = row_tile(a, (int)blockIdx.x, TILES * N_TILE);
  if (t.rows <= 0) return;
  uint16_t *xs = shared_memory<uint16_t>();
  int lane = (int)threadIdx.x % WARP, panel = (int)blockIdx.y * TENSOR_WARPS + (int)threadIdx.x / WARP;
  int steps = (int)tile_steps(a.k), length = (int)ceil_div(steps, QUARTERS);
  bool idle = panel * PANEL >= a.n;
  const uint4 *w = (const uint4 *)t.w + (int64_t)(idle ? 0 : panel) * steps * WARP + lane;
  float total[TILES][4];
  for (int quarter = 0; quarter < QUARTERS; quarter++) {
    int end = (int)smaller(steps, (quarter + 1) * length);
    float acc[TILES][4] = {};
    for (int s = quarter * length; s < end; s += CHUNK_STEPS) {
      int count = (int)smaller(CHUNK_STEPS, end - s);
      uint4 weights[CHUNK_STEPS];
      for (int i = 0; i < CHUNK_STEPS; i++) weights[i] = i < count ? w[(int64_t)(s + i) * WARP] : uint4{0, 0, 0, 0};
      __syncthreads();
      stage_rows(xs, a, t, TILES * N_TILE, s * TILE_COLS);
      __syncthreads();
      for (int i = 0; i < count; i++) {
        for (int j = 0; j < TILES; j++) {
          const uint16_t *x = xs + (j * N_TILE + lane / 4) * X_PITCH + i * TILE_COLS + lane % 4 * 4;
          mma_bf16(acc[j], weights[i], *(const uint2 *)x);
        }
      }
    }
    for (int i = 0; i < TILES * 4; i++) total[i / 4][i % 4] = quarter ? total[i / 4][i % 4] + acc[i / 4][i % 4] : acc[i / 4][i % 4];
  }
  for (int i = 0; i < TILES && !idle; i++) store_tile(a, t, panel * PANEL, i * N_TILE, total[i]);
}

template <int TILES> int launch_narrow(Run &run, const LinearArgs &a) {
  dim3 grid(row_tiles(a, TILES * N_TILE), (unsigned)ceil_div(a.n, PANEL));
  return launch(run, linear_narrow_kernel<TILES>, grid, TENSOR_THREADS, QUARTERS * TILES * 4 * WARP * sizeof(float), run.guard, a);
}

template <int TILES> int launch_wide(Run &run, const LinearArgs &a) {
  dim3 grid(row_tiles(a, TILES * N_TILE), (unsigned)ceil_div(a.n, TENSOR_WARPS * PANEL));
  return launch(run, linear_wide_kernel<TILES>, grid, TENSOR_THREADS, TILES * N_TILE * X_PITCH * sizeof(uint16_t), run.guard, a);
}

}  // namespace

int launch_linear_tensor(Run &run, const LinearArgs &a) {
  // Of groups the host knows no sizes: as many rows as there are on average.
  int64_t rows = a.starts ? ceil_div(a.rows, a.groups) : a.rows;
  if (rows <= N_TILE) return launch_narrow<1>(run, a);
  if (rows <= NARROW_ROWS) return launch_narrow<NARROW_ROWS / N_TILE>(run, a);
  int64_t blocks = ceil_div(rows, 64) * ceil_div(a.n, TENSOR_WARPS * PANEL);
  return blocks < 2 * multiprocessors() ? launch_wide<4>(run, a) : launch_wide<8>(run, a);
}

}  // namespace msgl
