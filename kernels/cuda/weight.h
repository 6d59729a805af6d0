// weight.h: how weights lie in the device's memory. pack.cc writes it.
//
// A weight is panels of 16 rows (outputs).
//   f32, f16   the rows, one after the other
//   bf16       tiles of 16 rows and 16 columns, as the tensor cores take them: lane
//              l of a warp finds its 8 values at 16 bytes * l. With g = l / 4 and
//              j = l % 4 they are columns 4j and 4j+1 of row g, then of row g + 8,
//              then columns 4j+2 and 4j+3 of both. Columns are padded with zeros.
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
  TILE_COLS = 16,  // columns of a tile of bf16
  X_GROUP = 32,    // values of x that share a scale when they meet a quantized weight
};

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

__host__ __device__ inline int64_t tile_steps(int64_t k) { return (k + TILE_COLS - 1) / TILE_COLS; }

// Bytes from row to row; of bf16, of a sixteenth of a panel.
__host__ __device__ inline int64_t weight_row_bytes(int64_t k, int dtype) {
  Quant q = quant_of(dtype);
  if (q.bits) return (k * q.bits / 8 + k / q.group * q.scale_bytes * (q.minimum ? 2 : 1) + 3) / 4 * 4;
  if (dtype == MSGL_BF16) return tile_steps(k) * TILE_COLS * 2;
  return k * (dtype == MSGL_F16 ? 2 : 4);
}

// Where column c of row r of a bf16 weight is, in elements.
__host__ __device__ inline int64_t tile_index(int64_t r, int64_t c, int64_t k) {
  int64_t tile = r / PANEL * tile_steps(k) + c / TILE_COLS;
  int row = (int)(r % PANEL), col = (int)(c % TILE_COLS);
  int lane = row % 8 * 4 + col / 4, at = col % 4 / 2 * 4 + row / 8 * 2 + col % 2;
  return (tile * 32 + lane) * 8 + at;
}

}  // namespace msgl

#endif
