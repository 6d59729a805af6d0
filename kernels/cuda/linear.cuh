// linear.cuh: a product of rows with a weight, or with several: what LINEAR and MOE share.
#ifndef MSGL_LINEAR_CUH
#define MSGL_LINEAR_CUH

#include "check.h"
#include "device.cuh"

namespace msgl {

// x rounded to 8 bits, as it meets quantized weights: the codes, and what the rounding
// left of groups with outliers, rounded again.
struct Codes {
  int8_t *codes[2];  // [rows, K]
  float *scales[2];  // [rows, K / 32]; of what was left 0 where there are no outliers
};

// dst = x wT + bias. With groups, rows starts[e] ... starts[e+1]-1 of dst belong to
// weight e, and row i of dst is made of row sources[i] of x.
struct LinearArgs {
  Floats dst, x;
  Codes codes;         // instead of x, for quantized weights
  const void *halves;  // instead of x, for weights of f16, and of bf16 and e4m3 with many rows
  const float *units;  // [rows of x]: what a one stands for in halves, for weights of f16
  int64_t half_bytes;  // from the first part of halves to the second, likewise
  const char *w;
  const float *bias;  // [N] or NULL
  int n, k, dtype, rows;
  Indices starts, sources;  // NULL without groups; sources NULL: row i
  int groups;
  int64_t group_bytes;  // from weight to weight
};

int launch_linear(Run &run, const LinearArgs &a);

// Rounds the rows of x to what the weight meets, if that is not x itself, in scratch.
int launch_rounding(Run &run, LinearArgs *a, int rows);

// The rows of one block: those of one weight.
struct RowTile {
  int first, rows;
  const char *w;
};

// Tile number `index` of tile_rows rows; rows 0: there is none. Whole warps ask, lane e for weight e.
__device__ inline RowTile row_tile(const LinearArgs &a, int index, int tile_rows) {
  if (!a.starts) {
    int first = index * tile_rows;
    return {first, (int)smaller(tile_rows, a.rows - first), a.w};
  }
  int lane = (int)threadIdx.x % WARP;
  for (int first = 0; first < a.groups; first += WARP) {
    int e = first + lane, start = e < a.groups ? a.starts[e] : 0, count = e < a.groups ? a.starts[e + 1] - start : 0;
    int tiles = (int)ceil_div(count, tile_rows), before = warp_before(tiles);
    bool mine = index >= before && index < before + tiles;
    if (__ballot_sync(0xffffffffu, mine)) {
      int owner = warp_sum(mine ? lane : 0);
      start = __shfl_sync(0xffffffffu, start, owner);
      count = __shfl_sync(0xffffffffu, count, owner);
      int at = (index - __shfl_sync(0xffffffffu, before, owner)) * tile_rows;
      return {start + at, (int)smaller(tile_rows, count - at), a.w + (first + owner) * a.group_bytes};
    }
    index -= __shfl_sync(0xffffffffu, before + tiles, WARP - 1);
  }
  return {0, 0, a.w};
}

// The row of x behind row i of dst.
__device__ inline int64_t source(const LinearArgs &a, int i) { return a.sources ? a.sources[i] : i; }

// An upper bound of the number of row tiles, which the host knows.
inline unsigned row_tiles(const LinearArgs &a, int tile_rows) {
  int64_t tiles = ceil_div(a.rows, tile_rows);
  return (unsigned)(a.starts ? smaller(a.rows, tiles + a.groups) : tiles);
}

// linear_tensor.cu, linear_quant.cu
int launch_round(Run &run, LinearArgs *a, int rows);
int launch_quantize(Run &run, Codes *codes, Floats x, int rows, int k);
int launch_linear_tensor(Run &run, const LinearArgs &a);
int launch_linear_quant(Run &run, const LinearArgs &a);

}  // namespace msgl

#endif
