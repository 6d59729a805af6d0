// weight.h: how weights lie in the device's memory. pack.cc writes it.
//
// A weight is panels of 16 rows (outputs).
//   f32        the rows, one after the other
//   bf16, f16  tiles of 16 rows and 16 columns, as the tensor cores take them: lane
//              l of a warp finds its 8 values at 16 bytes * l. With g = l / 4 and
//              j = l % 4 they are columns 4j and 4j+1 of row g, then of row g + 8,
//              then columns 4j+2 and 4j+3 of both. Columns are padded with zeros.
//   e4m3       chunks of 64 columns: four such tiles of bytes, and the rows' 16 scales, which
//              are multiplied by F8_SCALE. Columns are padded with zeros.
//   quantized  the rows, each its codes (4 bits: column 2i in the low half of byte
//              i), its scales, and its minima where the type has them
#ifndef MSGL_WEIGHT_H
#define MSGL_WEIGHT_H

#include "msgl_cuda.h"

#if !defined(__CUDACC__) && !defined(__host__)
#define __host__
#define __device__
#endif

namespace msgl {

enum {
  PANEL = 16,      // rows of a panel
  TILE_COLS = 16,  // columns of a tile
  TILE_VALUES = PANEL * TILE_COLS,
  CHUNK_STEPS = 4,  // tiles of columns of a chunk
  CHUNK_COLS = CHUNK_STEPS * TILE_COLS,
  F8_CHUNK = CHUNK_STEPS * TILE_VALUES + PANEL * 4,  // bytes of a chunk of e4m3
  X_GROUP = 32,    // values of x that share a scale when they meet a quantized weight
};

// The bits of an e4m3 value in the places of a float's make 2^-120 of it.
constexpr float F8_SCALE = 1329227995784915872903807060280344576.0f;  // 2^120

// How the codes of a quantized weight are stored; bits 0: the type is not one. See msgl_dtype.
struct Quant {
  int bits, group, zero;
  int scale_bytes;
  bool minimum;
};

__host__ __device__ constexpr Quant quant_of(int dtype) {
  return dtype == MSGL_Q8    ? Quant{8, 32, 128, 2, false}
         : dtype == MSGL_Q4  ? Quant{4, 32, 8, 2, false}
         : dtype == MSGL_Q4M ? Quant{4, 32, 0, 4, true}
         : dtype == MSGL_Q6  ? Quant{8, 16, 128, 4, false}
         : dtype == MSGL_Q8M ? Quant{8, 16, 0, 4, true}
                             : Quant{0, 0, 0, 0, false};
}

// Chunks of K columns.
__host__ __device__ inline int chunks_of(int64_t k) { return (int)((k + CHUNK_COLS - 1) / CHUNK_COLS); }

__host__ __device__ inline int64_t tile_steps(int64_t k) { return (k + TILE_COLS - 1) / TILE_COLS; }

// Bytes from row to row; of bf16, f16 and e4m3, of a sixteenth of a panel.
__host__ __device__ inline int64_t weight_row_bytes(int64_t k, int dtype) {
  Quant q = quant_of(dtype);
  if (q.bits) return (k * q.bits / 8 + k / q.group * q.scale_bytes * (q.minimum ? 2 : 1) + 3) / 4 * 4;
  if (dtype == MSGL_BF16 || dtype == MSGL_F16) return tile_steps(k) * TILE_COLS * 2;
  if (dtype == MSGL_F8) return chunks_of(k) * (F8_CHUNK / PANEL);
  return k * 4;
}

// Where a row's column is within a tile, in elements.
__host__ __device__ inline int in_tile(int row, int col) {
  int lane = row % 8 * 4 + col / 4, at = col % 4 / 2 * 4 + row / 8 * 2 + col % 2;
  return lane * 8 + at;
}

// Where column c of row r of a weight of bf16 or f16 is, in elements.
__host__ __device__ inline int64_t tile_index(int64_t r, int64_t c, int64_t k) {
  int64_t tile = r / PANEL * tile_steps(k) + c / TILE_COLS;
  return tile * TILE_VALUES + in_tile((int)(r % PANEL), (int)(c % TILE_COLS));
}

// Where column c of row r of an e4m3 weight is, in bytes, and the chunk's scale of the row.
__host__ __device__ inline int64_t f8_index(int64_t r, int64_t c, int64_t k) {
  int64_t chunk = r / PANEL * chunks_of(k) + c / CHUNK_COLS;
  return chunk * F8_CHUNK + c % CHUNK_COLS / TILE_COLS * TILE_VALUES + in_tile((int)(r % PANEL), (int)(c % TILE_COLS));
}
__host__ __device__ inline int64_t f8_scale_index(int64_t r, int64_t c, int64_t k) {
  int64_t chunk = r / PANEL * chunks_of(k) + c / CHUNK_COLS;
  return chunk * F8_CHUNK + CHUNK_STEPS * TILE_VALUES + r % PANEL * 4;
}

}  // namespace msgl

#endif
