// mma.cuh: the tensor cores' tile of 16 x 8 x 16 in bfloat16 and float16, for the GPU and
// for the emulation, and the same in float32 without tensor cores.
//
// d += a * b. Lane 4g + j holds of a, [16, 16], rows g and g + 8, of b, [16, 8], column
// g, and of d, [16, 8], columns 2j and 2j + 1 of rows g and g + 8. Which columns of
// a (and rows of b) a lane's values stand for is the caller's choice: the same for both.
#ifndef MSGL_MMA_CUH
#define MSGL_MMA_CUH

#include "device.cuh"

namespace msgl {

// A lane's part of a and b in float32: of a the first two columns of rows g and g + 8,
// then the last two of both. The words of uint4 and uint2 hold two halves in that order.
struct FloatsA {
  float v[8];
};
struct FloatsB {
  float v[4];
};

#if defined(__CUDACC__)

// Two halves, the first in the low one. A NaN stays one.
__device__ inline uint32_t pair_bf16(float a, float b) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}

__device__ inline uint32_t pair_f16(float a, float b) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}

// a * b + c of two bfloat16 each, rounded once.
__device__ inline uint32_t fma_pair_bf16(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

__device__ inline void mma_bf16(float d[4], uint4 a, uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

__device__ inline void mma_f16(float d[4], uint4 a, uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

// All lanes' a and b.
struct Lanes {
  FloatsA a;
  FloatsB b;
  __device__ FloatsA row(int from) const {
    FloatsA got;
    for (int i = 0; i < 8; i++) got.v[i] = __shfl_sync(0xffffffffu, a.v[i], from);
    return got;
  }
  __device__ FloatsB column(int from) const {
    FloatsB got;
    for (int i = 0; i < 4; i++) got.v[i] = __shfl_sync(0xffffffffu, b.v[i], from);
    return got;
  }
};

#else

inline uint32_t pair_bf16(float a, float b) { return (uint32_t)to_bf16(a) | (uint32_t)to_bf16(b) << 16; }
inline uint32_t pair_f16(float a, float b) { return (uint32_t)to_f16(a) | (uint32_t)to_f16(b) << 16; }

inline float low_bf16(uint32_t pair) { return from_bf16((uint16_t)pair); }
inline float high_bf16(uint32_t pair) { return from_bf16((uint16_t)(pair >> 16)); }

inline float low_f16(uint32_t pair) { return from_f16((uint16_t)pair); }
inline float high_f16(uint32_t pair) { return from_f16((uint16_t)(pair >> 16)); }

inline uint32_t fma_pair_bf16(uint32_t a, uint32_t b, uint32_t c) {
  return pair_bf16(fmaf(low_bf16(a), low_bf16(b), low_bf16(c)), fmaf(high_bf16(a), high_bf16(b), high_bf16(c)));
}

struct Lanes {
  const emu::Slot *slots;
  FloatsA row(int from) const { return emu::lane_value<Ab>(slots, from).a; }
  FloatsB column(int from) const { return emu::lane_value<Ab>(slots, from).b; }
  struct Ab {
    FloatsA a;
    FloatsB b;
  };
};

#endif

// In float32: multiply-adds in order of the lanes that hold the columns of a.
__device__ inline void add_product(float d[4], const Lanes &lanes) {
  int lane = (int)threadIdx.x % WARP, j = lane % 4, first = lane / 4 * 4;
#pragma unroll 1
  for (int i = 0; i < 4; i++) {
    FloatsA a = lanes.row(first + i);
    for (int c = 0; c < 2; c++) {
      FloatsB b = lanes.column((2 * j + c) * 4 + i);
      for (int half = 0; half < 2; half++) {
        const float *low = a.v + 2 * half, *high = low + 4;
        d[2 * half + c] = fmaf(low[1], b.v[1], fmaf(low[0], b.v[0], d[2 * half + c]));
        d[2 * half + c] = fmaf(high[1], b.v[3], fmaf(high[0], b.v[2], d[2 * half + c]));
      }
    }
  }
}

#if defined(__CUDACC__)

__device__ inline void mma_f32(float d[4], const FloatsA &a, const FloatsB &b) { add_product(d, {a, b}); }

#else

inline void mma_f32(float d[4], const FloatsA &a, const FloatsB &b, EMU_HERE) {
  Lanes::Ab both = {a, b};
  add_product(d, {emu::exchange(EMU_SITE("mma"), &both, sizeof both)});
}

inline void mma_bf16(float d[4], uint4 a, uint2 b, EMU_HERE) {
  FloatsA wide = {{low_bf16(a.x), high_bf16(a.x), low_bf16(a.y), high_bf16(a.y), low_bf16(a.z), high_bf16(a.z), low_bf16(a.w), high_bf16(a.w)}};
  mma_f32(d, wide, {{low_bf16(b.x), high_bf16(b.x), low_bf16(b.y), high_bf16(b.y)}}, file, line);
}

inline void mma_f16(float d[4], uint4 a, uint2 b, EMU_HERE) {
  FloatsA wide = {{low_f16(a.x), high_f16(a.x), low_f16(a.y), high_f16(a.y), low_f16(a.z), high_f16(a.z), low_f16(a.w), high_f16(a.w)}};
  mma_f32(d, wide, {{low_f16(b.x), high_f16(b.x), low_f16(b.y), high_f16(b.y)}}, file, line);
}

#endif

}  // namespace msgl

#endif
