// linear_tensor.cu: LINEAR for weights of bf16, f16 and e4m3, on tensor cores.
//
// What is of e4m3 becomes bf16 on its way from memory to the tensor cores. x meets weights of
// f16 unrounded, or nearly: a row is scaled by a power of two, so that its largest value is
// within f16's range, and each value split in two of f16, of which the second is what the
// first leaves. That keeps 22 bits of a value, fewer only where it is below 2^-16 of the
// row's largest, and never loses more than 2^-38 of that.
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

// Bytes of a panel: of a tile, of a chunk, of all K columns, of which the last chunk of bf16 and f16 may
// not be whole. PARTS: how many x is split in
template <int DTYPE> struct Panels {
  enum { STEP = TILE_VALUES * 2, CHUNK = CHUNK_STEPS * STEP, PARTS = DTYPE == MSGL_F16 ? 2 : 1 };
  __device__ static int64_t bytes(int k) { return tile_steps(k) * STEP; }
};

template <> struct Panels<MSGL_F8> {
  enum { STEP = TILE_VALUES, CHUNK = F8_CHUNK, PARTS = 1 };
  __device__ static int64_t bytes(int k) { return (int64_t)chunks_of(k) * CHUNK; }
};

template <int DTYPE> __device__ void multiply(float d[4], uint4 w, uint2 x) {
  if (DTYPE == MSGL_F16) {
    mma_f16(d, w, x);
  } else {
    mma_bf16(d, w, x);
  }
}

// The lane's scales of a chunk.
struct Scales {
  float g, g8;  // of rows g and g + 8
};

template <int DTYPE> __device__ Scales scales_of(const char *chunk) {
  if (DTYPE != MSGL_F8) return {};
  const float *scales = (const float *)(chunk + CHUNK_STEPS * Panels<DTYPE>::STEP) + (int)threadIdx.x % WARP / 4;
  return {scales[0], scales[8]};
}

// Two values of e4m3, the first in the low byte, as bf16.
__device__ inline uint32_t widen_pair(uint32_t codes, float scale) { return pair_bf16(from_f8(codes, scale), from_f8(codes >> 8, scale)); }

// The lane's part of a tile.
template <int DTYPE> __device__ uint4 fragment(const char *tile, const Scales &s) {
  int lane = (int)threadIdx.x % WARP;
  if constexpr (DTYPE != MSGL_F8) {
    return ((const uint4 *)tile)[lane];
  } else {
    uint2 codes = ((const uint2 *)tile)[lane];
    return {widen_pair(codes.x, s.g), widen_pair(codes.x >> 16, s.g8), widen_pair(codes.y, s.g), widen_pair(codes.y >> 16, s.g8)};
  }
}

// Chunks of a quarter of K.
__host__ __device__ inline int quarter_of(int k) { return (int)ceil_div(chunks_of(k), QUARTERS); }

// Of every 32 columns lane j of a warp needs columns 4j ... 4j + 3 of the first 16 and of the
// last: these eight are a piece of a row, which is padded with zeros to whole chunks.
__host__ __device__ inline int pieces_of(int k) { return chunks_of(k) * CHUNK_COLS / 8; }

struct Piece {
  float v[8];
};

__device__ Piece piece_of(const float *row, int piece, int k) {
  Piece p;
  int first = piece / 4 * 32 + piece % 4 * 4;
  for (int i = 0; i < 8; i++) {
    int c = first + i / 4 * 16 + i % 4;
    p.v[i] = c < k ? row[c] : 0;
  }
  return p;
}

// Rounds x to bf16.
__global__ void round_kernel(Guard g, uint4 *to, Floats x, int rows, int k) {
  if (stopped(g)) return;
  int64_t at = (int64_t)blockIdx.x * HALVES_THREADS + threadIdx.x;
  if (at >= (int64_t)rows * pieces_of(k)) return;
  Piece p = piece_of(x.row(at / pieces_of(k)), (int)(at % pieces_of(k)), k);
  to[at] = {pair_bf16(p.v[0], p.v[1]), pair_bf16(p.v[2], p.v[3]), pair_bf16(p.v[4], p.v[5]), pair_bf16(p.v[6], p.v[7])};
}

// A block a row: splits x in two parts of f16. The largest value becomes one of [2^14, 2^15); a
// one of the parts stands for units[row].
__global__ void split_kernel(Guard g, uint4 *first, uint4 *second, float *units, Floats x, int k) {
  if (stopped(g)) return;
  const float *row = x.row(blockIdx.x);
  float most = 0;
  for (int c = (int)threadIdx.x; c < k; c += HALVES_THREADS) most = fabsf(row[c]) > most ? fabsf(row[c]) : most;
  uint32_t exponent = __float_as_uint(block_max(most, shared_memory<float>())) >> 23;
  exponent = exponent < 15 ? 15 : exponent;
  float scale = __uint_as_float((268 - exponent) << 23);
  if (threadIdx.x == 0) units[blockIdx.x] = __uint_as_float((exponent - 14) << 23);
  for (int i = (int)threadIdx.x; i < pieces_of(k); i += HALVES_THREADS) {
    Piece p = piece_of(row, i, k);
    uint32_t words[2][4];
    for (int w = 0; w < 4; w++) {
      float a = p.v[2 * w] * scale, b = p.v[2 * w + 1] * scale;
      uint32_t pair = pair_f16(a, b);
      words[0][w] = pair;
      words[1][w] = pair_f16(a - from_f16((uint16_t)pair), b - from_f16((uint16_t)(pair >> 16)));
    }
    int64_t at = (int64_t)blockIdx.x * pieces_of(k) + i;
    first[at] = {words[0][0], words[0][1], words[0][2], words[0][3]};
    second[at] = {words[1][0], words[1][1], words[1][2], words[1][3]};
  }
}

// Stores a warp's sums of 16 outputs and a tile of rows: lane 4g + j has rows
// 2j, 2j + 1 of outputs g, g + 8.
template <int DTYPE> __device__ void store_tile(const LinearArgs &a, const RowTile &t, int output, int row, const float sums[4]) {
  int lane = (int)threadIdx.x % WARP;
  for (int i = 0; i < 4; i++) {
    int n = output + lane / 4 + i / 2 * 8, r = row + lane % 4 * 2 + i % 2;
    if (n >= a.n || r >= t.rows) continue;
    float sum = DTYPE == MSGL_F16 ? sums[i] * a.units[source(a, t.first + r)] : sums[i];
    a.dst.row(t.first + r)[n] = a.bias ? sum + a.bias[n] : sum;
  }
}

// Adds up the quarters of PANELS x TILES tiles, of which each warp has one, and stores them.
template <int DTYPE, int PANELS, int TILES>
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
    store_tile<DTYPE>(a, t, (panel + i / TILES) * PANEL, i % TILES * N_TILE, sum);
  }
}

__device__ inline int64_t row_bytes_of(int k) { return (int64_t)chunks_of(k) * ROW_CHUNK; }

// The lane's four values of tile `step` of a row of x (-1: zeros), of one of its parts.
template <int DTYPE> __device__ uint2 x_fragment(const LinearArgs &a, int64_t row, int part, int step) {
  int j = (int)threadIdx.x % 4;
  if (row < 0) return {};
  if constexpr (DTYPE == MSGL_F16) {
    const char *halves = (const char *)a.halves + part * a.half_bytes + row * row_bytes_of(a.k);
    return *(const uint2 *)(halves + step / 2 * 64 + j * 16 + step % 2 * 8);
  } else {
    float v[4];
    int first = step * TILE_COLS + j * 4;
    for (int i = 0; i < 4; i++) v[i] = first + i < a.k ? a.x.row(row)[first + i] : 0;
    return {pair_bf16(v[0], v[1]), pair_bf16(v[2], v[3])};
  }
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
  int64_t row = lane / 4 < t.rows ? source(a, t.first + lane / 4) : -1;
  float acc[1][1][4] = {};
#pragma unroll 4
  for (int s = quarter * length; s < end; s++) {
    const char *chunk = w + (int64_t)(s / CHUNK_STEPS) * P::CHUNK;
    uint4 tile = fragment<DTYPE>(chunk + s % CHUNK_STEPS * P::STEP, scales_of<DTYPE>(chunk));
    for (int part = 0; part < P::PARTS; part++) multiply<DTYPE>(acc[0][0], tile, x_fragment<DTYPE>(a, row, part, s));
  }
  store_quarters<DTYPE, 1, 1>(shared_memory<float>(), a, t, (int)blockIdx.y, acc);
}

// What threads copy together, chunk by chunk, into a ring of stages: panels, then rows, of which the
// second parts come behind all first ones. The threads are a warp with its quarter, or a block.
struct Feed {
  int me, size;
  int panel, panels, rows;
  char *ring;
};

template <int DTYPE> __host__ __device__ constexpr int stage_bytes(int panels, int rows) {
  return panels * Panels<DTYPE>::CHUNK + rows * Panels<DTYPE>::PARTS * ROW_CHUNK;
}

template <int DTYPE, int STAGES> __device__ char *stage_of(const Feed &feed, int chunk) {
  return feed.ring + chunk % STAGES * stage_bytes<DTYPE>(feed.panels, feed.rows);
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
#pragma unroll 1
  for (int part = 0; part < Panels<DTYPE>::PARTS; part++) {
    const char *halves = (const char *)a.halves + part * a.half_bytes;
#pragma unroll 4
    for (int i = feed.me; i < feed.rows * 8; i += feed.size) {
      int row = i / 8, piece = i % 8;
      bool there = row < t.rows;
      const char *from = halves + (there ? source(a, t.first + row) * row_bytes_of(a.k) + chunk * ROW_CHUNK + piece * 16 : 0);
      copy_async<16>(stage + row_piece(part * feed.rows + row, piece), from, there);
    }
  }
}

// Adds a chunk's products of PANELS panels from `panels` on and TILES tiles of rows from first_row on, of
// `all` rows at `rows`.
template <int DTYPE, int PANELS, int TILES>
__device__ void add_chunk(float acc[PANELS][TILES][4], const char *panels, const char *rows, int first_row, int all) {
  typedef Panels<DTYPE> P;
  int lane = (int)threadIdx.x % WARP;
#pragma unroll (3 - P::PARTS)
  for (int half = 0; half < 2; half++) {
    uint4 w[2][PANELS];
    for (int i = 0; i < PANELS; i++) {
      const char *chunk = panels + i * P::CHUNK;
      Scales scales = scales_of<DTYPE>(chunk);
      for (int s = 0; s < 2; s++) w[s][i] = fragment<DTYPE>(chunk + (half * 2 + s) * P::STEP, scales);
    }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      uint4 x[P::PARTS];
      for (int part = 0; part < P::PARTS; part++) {
        x[part] = *(const uint4 *)(rows + row_piece(part * all + first_row + j * N_TILE + lane / 4, half * 4 + lane % 4));
      }
      for (int part = 0; part < P::PARTS; part++) {
        for (int i = 0; i < PANELS; i++) multiply<DTYPE>(acc[i][j], w[0][i], {x[part].x, x[part].y});
      }
      for (int part = 0; part < P::PARTS; part++) {
        for (int i = 0; i < PANELS; i++) multiply<DTYPE>(acc[i][j], w[1][i], {x[part].z, x[part].w});
      }
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
  constexpr int RING = STAGES * stage_bytes<DTYPE>(PANELS, TILES * N_TILE);
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
    add_chunk<DTYPE, PANELS, TILES>(acc, stage, stage + PANELS * Panels<DTYPE>::CHUNK, 0, TILES * N_TILE);
  }
  __syncthreads();
  store_quarters<DTYPE, PANELS, TILES>(shared_memory<float>(), a, t, feed.panel, acc);
}

enum { WIDE_PANELS = 2, WIDE_TILES = 8, WIDE_ROWS = WIDE_TILES * N_TILE, OUTPUT_WARPS = 4, WIDE_WARPS = 8 };

// So that all GPUs have the shared memory.
template <int DTYPE> constexpr int WIDE_STAGES = Panels<DTYPE>::PARTS == 2 ? 2 : 3;

// Of all quarters; four warps beside each other have 128 outputs, and four more the next 64 rows.
template <int DTYPE> __global__ void __launch_bounds__(WIDE_WARPS *WARP, 1) linear_wide_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  int rows = (int)blockDim.x / WARP / OUTPUT_WARPS * WIDE_ROWS, warp = (int)threadIdx.x / WARP;
  RowTile t = row_tile(a, (int)blockIdx.x, rows);
  if (t.rows <= 0) return;
  constexpr int PANELS = OUTPUT_WARPS * WIDE_PANELS, STAGES = WIDE_STAGES<DTYPE>;
  Feed feed = {(int)threadIdx.x, (int)blockDim.x, (int)blockIdx.y * PANELS, PANELS, rows, shared_memory<char>()};
  int panel = warp % OUTPUT_WARPS * WIDE_PANELS, row = warp / OUTPUT_WARPS * WIDE_ROWS, end = chunks_of(a.k), quarter = quarter_of(a.k);
  float acc[WIDE_PANELS][WIDE_TILES][4] = {}, total[WIDE_PANELS][WIDE_TILES][4] = {};
#pragma unroll 1
  for (int chunk = 1 - STAGES; chunk < end; chunk++) {
    if (chunk >= 0) {
      wait_copies<STAGES - 2>();
      __syncthreads();
    }
    int next = chunk + STAGES - 1;
    if (next < end) copy_chunk<DTYPE>(a, t, feed, stage_of<DTYPE, STAGES>(feed, next), next);
    commit_copies();
    if (chunk < 0) continue;
    const char *stage = stage_of<DTYPE, STAGES>(feed, chunk);
    add_chunk<DTYPE, WIDE_PANELS, WIDE_TILES>(acc, stage + panel * Panels<DTYPE>::CHUNK, stage + PANELS * Panels<DTYPE>::CHUNK, row, rows);
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
    store_tile<DTYPE>(a, t, (feed.panel + panel + i / WIDE_TILES) * PANEL, row + i % WIDE_TILES * N_TILE, total[i / WIDE_TILES][i % WIDE_TILES]);
  }
}

template <int DTYPE, int PANELS, int TILES, int STAGES> int launch_split(Run &run, const LinearArgs &a) {
  dim3 grid(row_tiles(a, TILES * N_TILE), (unsigned)ceil_div(a.n, PANELS * PANEL));
  size_t shared = SPLIT_WARPS * STAGES * stage_bytes<DTYPE>(PANELS, TILES * N_TILE);
  return launch(run, linear_split_kernel<DTYPE, PANELS, TILES, STAGES>, grid, SPLIT_WARPS * WARP, shared, run.guard, a);
}

template <int DTYPE> int launch_wide(Run &run, const LinearArgs &a, int warps) {
  int rows = warps / OUTPUT_WARPS * WIDE_ROWS, panels = OUTPUT_WARPS * WIDE_PANELS;
  dim3 grid(row_tiles(a, rows), (unsigned)ceil_div(a.n, panels * PANEL));
  size_t shared = WIDE_STAGES<DTYPE> * (size_t)stage_bytes<DTYPE>(panels, rows);
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
  constexpr int PARTS = Panels<DTYPE>::PARTS;
  if (rows <= 4 * N_TILE) return launch_split<DTYPE, 1, 4, PARTS == 2 ? 2 : 3>(run, a);
  if (across * ceil_div(rows, 2 * WIDE_ROWS) >= enough) return launch_wide<DTYPE>(run, a, 2 * OUTPUT_WARPS);
  if (4 * across * ceil_div(rows, WIDE_ROWS) >= 3 * enough) return launch_wide<DTYPE>(run, a, OUTPUT_WARPS);
  return launch_split<DTYPE, 2, 8 / PARTS, 2>(run, a);
}

}  // namespace

int launch_round(Run &run, LinearArgs *a, int rows) {
  int64_t pieces = (int64_t)rows * pieces_of(a->k);
  if (a->dtype == MSGL_F16) {
    uint4 *parts = take<uint4>(run, 2 * pieces);
    float *units = take<float>(run, rows);
    a->halves = parts;
    a->half_bytes = pieces * (int64_t)sizeof *parts;
    a->units = units;
    return launch(run, split_kernel, dim3((unsigned)rows), HALVES_THREADS, WARP * sizeof(float), run.guard, parts, parts + pieces, units, a->x, a->k);
  }
  if (rows_of(*a) <= N_TILE) return MSGL_OK;
  uint4 *halves = take<uint4>(run, pieces);
  a->halves = halves;
  return launch(run, round_kernel, dim3((unsigned)ceil_div(pieces, HALVES_THREADS)), HALVES_THREADS, 0, run.guard, halves, a->x, rows, a->k);
}

int launch_linear_tensor(Run &run, const LinearArgs &a) {
  switch (a.dtype) {
    case MSGL_F8: return launch_dtype<MSGL_F8>(run, a);
    case MSGL_F16: return launch_dtype<MSGL_F16>(run, a);
    default: return launch_dtype<MSGL_BF16>(run, a);
  }
}

}  // namespace msgl
