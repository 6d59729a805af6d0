// linear_tensor.cu: LINEAR for weights of bf16 and e4m3, on tensor cores.
//
// What is of e4m3 becomes bf16 on its way from memory to the tensor cores.
//
// The columns are cut in chunks of 64 and those in four quarters, at fixed places. A quarter
// is one chain of tiles of 16 columns; the quarters are added in order. Few rows, or few
// outputs: a warp takes a quarter, so that many weights are on their way from memory at
// once. Many: a warp takes one quarter after the other. Either way a row's result has
// the same bits.
#include "linear.cuh"
#include "mma.cuh"

namespace msgl {
namespace {

enum {
  SPLIT_WARPS = 4,
  QUARTERS = SPLIT_WARPS,
  N_TILE = 8,                           // rows of x of a tile
  ROW_CHUNK = CHUNK_COLS * 2,           // bytes
  HALVES_THREADS = 256,
};

// Bytes of a panel: of a tile, of a chunk, of all K columns, of which bf16's last chunk may not be whole.
template <int DTYPE> struct Panels;

template <> struct Panels<MSGL_BF16> {
  enum { STEP = TILE_VALUES * 2, CHUNK = CHUNK_STEPS * STEP };
  __device__ static int64_t bytes(int k) { return tile_steps(k) * STEP; }
};

template <> struct Panels<MSGL_F8> {
  enum { STEP = TILE_VALUES, CHUNK = F8_CHUNK };
  __device__ static int64_t bytes(int k) { return (int64_t)chunks_of(k) * CHUNK; }
};

// The lane's scales of a chunk.
struct Scales {
  float g, g8;  // of rows g and g + 8
};

template <int DTYPE> __device__ Scales scales_of(const char *chunk) {
  if (DTYPE == MSGL_BF16) return {};
  const float *scales = (const float *)(chunk + CHUNK_STEPS * Panels<DTYPE>::STEP) + (int)threadIdx.x % WARP / 4;
  return {scales[0], scales[8]};
}

// Two values of e4m3, the first in the low byte, as bf16.
__device__ inline uint32_t widen_pair(uint32_t codes, float scale) { return pair_bf16(from_f8(codes, scale), from_f8(codes >> 8, scale)); }

// The lane's part of a tile.
template <int DTYPE> __device__ uint4 fragment(const char *tile, const Scales &s) {
  int lane = (int)threadIdx.x % WARP;
  if constexpr (DTYPE == MSGL_BF16) {
    return ((const uint4 *)tile)[lane];
  } else {
    uint2 codes = ((const uint2 *)tile)[lane];
    return {widen_pair(codes.x, s.g), widen_pair(codes.x >> 16, s.g8), widen_pair(codes.y, s.g), widen_pair(codes.y >> 16, s.g8)};
  }
}

// Chunks of a quarter of K.
__host__ __device__ inline int quarter_of(int k) { return (int)ceil_div(chunks_of(k), QUARTERS); }

// Rounds x to bf16, padded with zeros to whole chunks. Of every 32 columns lane j of a warp needs
// columns 4j ... 4j + 3 of the first 16 and of the last: these eight lie together.
__global__ void round_kernel(Guard g, uint4 *to, Floats x, int rows, int k) {
  if (stopped(g)) return;
  int pieces = chunks_of(k) * CHUNK_COLS / 8;
  int64_t at = (int64_t)blockIdx.x * HALVES_THREADS + threadIdx.x;
  if (at >= (int64_t)rows * pieces) return;
  int piece = (int)(at % pieces), first = piece / 4 * 32 + piece % 4 * 4;
  const float *row = x.row(at / pieces);
  float v[8];
  for (int i = 0; i < 8; i++) {
    int c = first + i / 4 * 16 + i % 4;
    v[i] = c < k ? row[c] : 0;
  }
  to[at] = {pair_bf16(v[0], v[1]), pair_bf16(v[2], v[3]), pair_bf16(v[4], v[5]), pair_bf16(v[6], v[7])};
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

// Adds up the quarters of PANELS x TILES tiles, of which each warp has one, and stores them.
template <int PANELS, int TILES>
__device__ void store_quarters(float *parts, const LinearArgs &a, const RowTile &t, int panel, const float acc[PANELS][TILES][4]) {
  constexpr int SUMS = PANELS * TILES * 4;  // parts: [quarters][SUMS][lanes]
  int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
#pragma unroll
  for (int i = 0; i < SUMS; i++) parts[(warp * SUMS + i) * WARP + lane] = acc[i / 4 / TILES][i / 4 % TILES][i % 4];
  __syncthreads();
  for (int i = warp; i < PANELS * TILES; i += SPLIT_WARPS) {
    float sum[4] = {};
    for (int e = 0; e < 4; e++) {
      for (int q = 0; q < QUARTERS; q++) sum[e] += parts[(q * SUMS + i * 4 + e) * WARP + lane];
    }
    store_tile(a, t, (panel + i / TILES) * PANEL, i % TILES * N_TILE, sum);
  }
}

// The lane's four values of row r of x (NULL: zeros), rounded to bf16; column c is its first.
__device__ uint2 x_fragment(const float *row, int c, int k) {
  float v[4];
  for (int i = 0; i < 4; i++) v[i] = row && c + i < k ? row[c + i] : 0;
  return {pair_bf16(v[0], v[1]), pair_bf16(v[2], v[3])};
}

// One tile of rows and 16 outputs, a warp a quarter, straight from memory.
template <int DTYPE> __global__ void __launch_bounds__(SPLIT_WARPS *WARP, 1) linear_few_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  typedef Panels<DTYPE> P;
  RowTile t = row_tile(a, (int)blockIdx.x, N_TILE);
  if (t.rows <= 0) return;
  int lane = (int)threadIdx.x % WARP, quarter = (int)threadIdx.x / WARP, steps = (int)tile_steps(a.k);
  int length = quarter_of(a.k) * CHUNK_STEPS, end = (int)smaller(steps, (quarter + 1) * length);
  const char *w = t.w + (int64_t)blockIdx.y * P::bytes(a.k);
  const float *x = lane / 4 < t.rows ? a.x.row(source(a, t.first + lane / 4)) : nullptr;
  float acc[1][1][4] = {};
#pragma unroll 4
  for (int s = quarter * length; s < end; s++) {
    const char *chunk = w + (int64_t)(s / CHUNK_STEPS) * P::CHUNK;
    uint4 tile = fragment<DTYPE>(chunk + s % CHUNK_STEPS * P::STEP, scales_of<DTYPE>(chunk));
    mma_bf16(acc[0][0], tile, x_fragment(x, s * TILE_COLS + lane % 4 * 4, a.k));
  }
  store_quarters<1, 1>(shared_memory<float>(), a, t, (int)blockIdx.y, acc);
}

// What threads copy together, chunk by chunk, into a ring of stages: panels and rows, panels
// first. The threads are a warp with its quarter, or a block.
struct Feed {
  int me, size;
  int panel, panels, rows;
  char *ring;
};

template <int DTYPE, int STAGES> __device__ char *stage_of(const Feed &feed, int chunk) {
  return feed.ring + chunk % STAGES * (feed.panels * Panels<DTYPE>::CHUNK + feed.rows * ROW_CHUNK);
}

// Where 16 bytes of a row lie in a stage, permuted so that two rows that are read at once lie in different banks.
__device__ inline int row_piece(int row, int piece) { return row * ROW_CHUNK + (piece ^ (row & 1) * 4) * 16; }

// Starts to copy a chunk.
template <int DTYPE> __device__ void copy_chunk(const LinearArgs &a, const RowTile &t, const Feed &feed, char *stage, int chunk) {
  constexpr int PIECES = Panels<DTYPE>::CHUNK / 16;
  int64_t bytes = Panels<DTYPE>::bytes(a.k);
#pragma unroll 4
  for (int i = feed.me; i < feed.panels * PIECES; i += feed.size) {
    int panel = feed.panel + i / PIECES;
    int64_t at = (int64_t)chunk * Panels<DTYPE>::CHUNK + i % PIECES * 16;
    bool there = panel * PANEL < a.n && at < bytes;
    copy_async<16>(stage + i * 16, t.w + (there ? panel * bytes + at : 0), there);
  }
  stage += feed.panels * Panels<DTYPE>::CHUNK;
  int64_t row_bytes = (int64_t)chunks_of(a.k) * ROW_CHUNK;
#pragma unroll 4
  for (int i = feed.me; i < feed.rows * 8; i += feed.size) {
    int row = i / 8, piece = i % 8;
    bool there = row < t.rows;
    const char *from = (const char *)a.halves + (there ? source(a, t.first + row) * row_bytes + chunk * ROW_CHUNK + piece * 16 : 0);
    copy_async<16>(stage + row_piece(row, piece), from, there);
  }
}

// Adds a chunk's products of PANELS panels from `panels` on and TILES tiles of rows from `rows` on.
template <int DTYPE, int PANELS, int TILES>
__device__ void add_chunk(float acc[PANELS][TILES][4], const char *panels, const char *rows, int first_row) {
  typedef Panels<DTYPE> P;
  int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint4 w[2][PANELS];
    for (int i = 0; i < PANELS; i++) {
      const char *chunk = panels + i * P::CHUNK;
      Scales scales = scales_of<DTYPE>(chunk);
      for (int s = 0; s < 2; s++) w[s][i] = fragment<DTYPE>(chunk + (half * 2 + s) * P::STEP, scales);
    }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      uint4 x = *(const uint4 *)(rows + row_piece(first_row + j * N_TILE + lane / 4, half * 4 + lane % 4));
      for (int i = 0; i < PANELS; i++) mma_bf16(acc[i][j], w[0][i], {x.x, x.y});
      for (int i = 0; i < PANELS; i++) mma_bf16(acc[i][j], w[1][i], {x.z, x.w});
    }
  }
}

// Of a warp's quarter.
template <int DTYPE, int PANELS, int TILES, int STAGES>
__global__ void __launch_bounds__(SPLIT_WARPS *WARP, 1) linear_split_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  RowTile t = row_tile(a, (int)blockIdx.x, TILES * N_TILE);
  if (t.rows <= 0) return;
  int warp = (int)threadIdx.x / WARP, first = warp * quarter_of(a.k), end = (int)smaller(chunks_of(a.k), first + quarter_of(a.k));
  constexpr int RING = STAGES * (PANELS * Panels<DTYPE>::CHUNK + TILES * N_TILE * ROW_CHUNK);
  Feed feed = {(int)threadIdx.x % WARP, WARP, (int)blockIdx.y * PANELS, PANELS, TILES * N_TILE, shared_memory<char>() + warp * RING};
  float acc[PANELS][TILES][4] = {};
#pragma unroll 1
  for (int chunk = first - STAGES + 1; chunk < end; chunk++) {
    if (chunk >= first) {
      wait_copies<STAGES - 2>();
      __syncwarp();
    }
    int next = chunk + STAGES - 1;
    if (next < end) copy_chunk<DTYPE>(a, t, feed, stage_of<DTYPE, STAGES>(feed, next), next);
    commit_copies();
    if (chunk < first) continue;
    const char *stage = stage_of<DTYPE, STAGES>(feed, chunk);
    add_chunk<DTYPE, PANELS, TILES>(acc, stage, stage + PANELS * Panels<DTYPE>::CHUNK, 0);
  }
  __syncthreads();
  store_quarters<PANELS, TILES>(shared_memory<float>(), a, t, feed.panel, acc);
}

enum { WIDE_PANELS = 2, WIDE_TILES = 8, WIDE_ROWS = WIDE_TILES * N_TILE, WIDE_STAGES = 3, OUTPUT_WARPS = 4, WIDE_WARPS = 8 };

// Of all quarters; four warps beside each other have 128 outputs, and four more the next 64 rows.
template <int DTYPE> __global__ void __launch_bounds__(WIDE_WARPS *WARP, 1) linear_wide_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  int rows = (int)blockDim.x / WARP / OUTPUT_WARPS * WIDE_ROWS, warp = (int)threadIdx.x / WARP;
  RowTile t = row_tile(a, (int)blockIdx.x, rows);
  if (t.rows <= 0) return;
  constexpr int PANELS = OUTPUT_WARPS * WIDE_PANELS;
  Feed feed = {(int)threadIdx.x, (int)blockDim.x, (int)blockIdx.y * PANELS, PANELS, rows, shared_memory<char>()};
  int panel = warp % OUTPUT_WARPS * WIDE_PANELS, row = warp / OUTPUT_WARPS * WIDE_ROWS, end = chunks_of(a.k), quarter = quarter_of(a.k);
  float acc[WIDE_PANELS][WIDE_TILES][4] = {}, total[WIDE_PANELS][WIDE_TILES][4] = {};
#pragma unroll 1
  for (int chunk = 1 - WIDE_STAGES; chunk < end; chunk++) {
    if (chunk >= 0) {
      wait_copies<WIDE_STAGES - 2>();
      __syncthreads();
    }
    int next = chunk + WIDE_STAGES - 1;
    if (next < end) copy_chunk<DTYPE>(a, t, feed, stage_of<DTYPE, WIDE_STAGES>(feed, next), next);
    commit_copies();
    if (chunk < 0) continue;
    const char *stage = stage_of<DTYPE, WIDE_STAGES>(feed, chunk);
    add_chunk<DTYPE, WIDE_PANELS, WIDE_TILES>(acc, stage + panel * Panels<DTYPE>::CHUNK, stage + PANELS * Panels<DTYPE>::CHUNK, row);
    if ((chunk + 1) % quarter && chunk + 1 < end) continue;
#pragma unroll
    for (int i = 0; i < WIDE_PANELS * WIDE_TILES * 4; i++) {
      float &sum = acc[i / 4 / WIDE_TILES][i / 4 % WIDE_TILES][i % 4];
      total[i / 4 / WIDE_TILES][i / 4 % WIDE_TILES][i % 4] += sum;
      sum = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < WIDE_PANELS * WIDE_TILES; i++) {
    store_tile(a, t, (feed.panel + panel + i / WIDE_TILES) * PANEL, row + i % WIDE_TILES * N_TILE, total[i / WIDE_TILES][i % WIDE_TILES]);
  }
}

template <int DTYPE, int PANELS, int TILES, int STAGES> int launch_split(Run &run, const LinearArgs &a) {
  dim3 grid(row_tiles(a, TILES * N_TILE), (unsigned)ceil_div(a.n, PANELS * PANEL));
  size_t shared = SPLIT_WARPS * STAGES * (PANELS * Panels<DTYPE>::CHUNK + TILES * N_TILE * ROW_CHUNK);
  return launch(run, linear_split_kernel<DTYPE, PANELS, TILES, STAGES>, grid, SPLIT_WARPS * WARP, shared, run.guard, a);
}

template <int DTYPE> int launch_wide(Run &run, const LinearArgs &a, int warps) {
  int rows = warps / OUTPUT_WARPS * WIDE_ROWS, panels = OUTPUT_WARPS * WIDE_PANELS;
  dim3 grid(row_tiles(a, rows), (unsigned)ceil_div(a.n, panels * PANEL));
  size_t shared = WIDE_STAGES * (size_t)(panels * Panels<DTYPE>::CHUNK + rows * ROW_CHUNK);
  return launch(run, linear_wide_kernel<DTYPE>, grid, warps * WARP, shared, run.guard, a);
}

// Rows of a weight. Of groups the host knows no sizes: as many as there are on average.
int64_t rows_of(const LinearArgs &a) { return a.starts ? ceil_div(a.rows, a.groups) : a.rows; }

template <int DTYPE> int launch_dtype(Run &run, const LinearArgs &a) {
  int64_t rows = rows_of(a), outputs = OUTPUT_WARPS * WIDE_PANELS * PANEL, across = ceil_div(a.n, outputs), enough = multiprocessors();
  if (rows <= N_TILE) {
    dim3 grid(row_tiles(a, N_TILE), (unsigned)ceil_div(a.n, PANEL));
    return launch(run, linear_few_kernel<DTYPE>, grid, SPLIT_WARPS * WARP, QUARTERS * 4 * WARP * sizeof(float), run.guard, a);
  }
  if (rows <= 4 * N_TILE) return launch_split<DTYPE, 1, 4, 3>(run, a);
  if (across * ceil_div(rows, 2 * WIDE_ROWS) >= enough) return launch_wide<DTYPE>(run, a, 2 * OUTPUT_WARPS);
  if (4 * across * ceil_div(rows, WIDE_ROWS) >= 3 * enough) return launch_wide<DTYPE>(run, a, OUTPUT_WARPS);
  return launch_split<DTYPE, 2, 8, 2>(run, a);
}

}  // namespace

int launch_round(Run &run, LinearArgs *a, int rows) {
  if (rows_of(*a) <= N_TILE) return MSGL_OK;
  int64_t pieces = (int64_t)rows * chunks_of(a->k) * CHUNK_COLS / 8;
  uint4 *halves = take<uint4>(run, pieces);
  a->halves = halves;
  return launch(run, round_kernel, dim3((unsigned)ceil_div(pieces, HALVES_THREADS)), HALVES_THREADS, 0, run.guard, halves, a->x, rows, a->k);
}

int launch_linear_tensor(Run &run, const LinearArgs &a) {
  return a.dtype == MSGL_F8 ? launch_dtype<MSGL_F8>(run, a) : launch_dtype<MSGL_BF16>(run, a);
}

}  // namespace msgl
