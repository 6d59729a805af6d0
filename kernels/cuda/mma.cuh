// mma.cuh: the tensor cores' tile of 16 x 8 x 16 in bfloat16, for the GPU and for
// the emulation.
#ifndef MSGL_MMA_CUH
#define MSGL_MMA_CUH

#include "device.cuh"

namespace msgl {

// Two bfloat16, the first in the low half.
__device__ inline uint32_t pair_bf16(float a, float b) { return (uint32_t)to_bf16(a) | (uint32_t)to_bf16(b) << 16; }

#if defined(__CUDACC__)

// d += a * b. Lane 4g + j holds of a, [16, 16], rows g and g + 8, of b, [16, 8], column
// g, and of d, [16, 8], columns 2j and 2j + 1 of rows g and g + 8. Which columns of
// a (and rows of b) a lane's words stand for is the caller's choice: the same for both.
__device__ inline void mma_bf16(float d[4], uint4 a, uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

#else

inline float half_of(uint32_t pair, int i) { return from_bf16((uint16_t)(pair >> (16 * i))); }

inline float dot_pair(float sum, uint32_t a, uint32_t b) {
  return fmaf(half_of(a, 1), half_of(b, 1), fmaf(half_of(a, 0), half_of(b, 0), sum));
}

inline void mma_bf16(float d[4], uint4 a, uint2 b, EMU_HERE) {
  const emu::Slot *all_b = emu::exchange(EMU_SITE("mma_bf16"), &b, sizeof b);
  uint2 columns[2][4];
  int j = emu::lane() % 4, g = emu::lane() / 4;
  for (int c = 0; c < 2; c++) {
    for (int i = 0; i < 4; i++) columns[c][i] = emu::lane_value<uint2>(all_b, (2 * j + c) * 4 + i);
  }
  const emu::Slot *all_a = emu::exchange(EMU_SITE("mma_bf16"), &a, sizeof a);
  for (int i = 0; i < 4; i++) {
    uint4 row = emu::lane_value<uint4>(all_a, g * 4 + i);
    for (int c = 0; c < 2; c++) {
      d[c] = dot_pair(dot_pair(d[c], row.x, columns[c][i].x), row.z, columns[c][i].y);
      d[2 + c] = dot_pair(dot_pair(d[2 + c], row.y, columns[c][i].x), row.w, columns[c][i].y);
    }
  }
}

#endif

}  // namespace msgl

#endif
