// device.cuh: what the kernels share.
//
// Arithmetic is the CPU kernels': multiply-adds are explicit (fmaf), the compilers
// are told not to make others, exp is a polynomial of our own. So the emulation and a GPU
// round alike, but for what the tensor cores add up.
#ifndef MSGL_DEVICE_CUH
#define MSGL_DEVICE_CUH

#include "platform.h"

namespace msgl {

__host__ __device__ inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
__host__ __device__ inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
__host__ __device__ inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

__device__ inline float minus_infinity() { return __uint_as_float(0xff800000u); }

__device__ inline float from_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }

// Rounds to nearest even. A NaN stays one.
__device__ inline uint16_t to_bf16(float x) {
  uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

__device__ inline float from_f16(uint16_t h) {
  uint32_t infinite = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
  float magnitude = __uint_as_float((h & 0x7fffu) << 13) * 5192296858534827628530496329220096.0f;  // 2^112
  return __uint_as_float(__float_as_uint(magnitude) | infinite | (uint32_t)(h & 0x8000u) << 16);
}

// Rounds to nearest even; what is too large becomes infinite. A NaN stays one.
__device__ inline uint16_t to_f16(float x) {
  uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);  // 2^16 and above
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 leaves multiples of 2^-24 in the mantissa
    return (uint16_t)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000));
  }
  return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13));
}

// Rounds to e4m3, to nearest even; what is too large becomes 448. A NaN stays one.
__device__ inline uint8_t to_f8(float x) {
  uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7f);
  if (magnitude >= 0x43e00000) return (uint8_t)(sign | 0x7e);
  if (magnitude < 0x3c800000) {  // subnormal: adding 2^14 leaves multiples of 2^-9 in the mantissa
    return (uint8_t)(sign | (__float_as_uint(__uint_as_float(magnitude) + 16384.0f) - 0x46800000));
  }
  return (uint8_t)(sign | ((magnitude - (120u << 23) + 0x7ffff + (magnitude >> 20 & 1)) >> 20));
}

// Widens e4m3 times a scale that is multiplied by F8_SCALE. A NaN becomes 480.
__device__ inline float from_f8(uint32_t code, float scale) { return __uint_as_float((code & 0x80) << 24 | (code & 0x7f) << 20) * scale; }

// exp to about one unit in the last place: vexp of kernels/cpu/vec.h, bit for bit.
__device__ inline float exp_of(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = -105.0f > x ? -105.0f : x;    // a NaN passes
  x = 89.0f < x ? 89.0f : x;
  float shifted = fmaf(x, 1.44269504088896341f, magic), n = shifted - magic;
  float f = fmaf(n, -0.693359375f, x);
  f = fmaf(n, 2.12194440e-4f, f);
  float p = 1.9875691500e-4f;
  p = fmaf(p, f, 1.3981999507e-3f);
  p = fmaf(p, f, 8.3334519073e-3f);
  p = fmaf(p, f, 4.1665795894e-2f);
  p = fmaf(p, f, 1.6666665459e-1f);
  p = fmaf(p, f, 5.0000001201e-1f);
  float y = fmaf(p, f * f, f) + 1.0f;
  // 2^n in two factors, so that neither leaves the range of exponents.
  int k = (int)(__float_as_uint(shifted) - __float_as_uint(magic)), half = k >> 1;
  return y * __uint_as_float((uint32_t)(half + 127) << 23) * __uint_as_float((uint32_t)(k - half + 127) << 23);
}

__device__ inline float silu(float x) { return x / (1.0f + exp_of(-x)); }

template <class T> __device__ T warp_sum(T v) {
  for (int mask = WARP / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
  return v;
}

__device__ inline float warp_max(float v) {
  for (int mask = WARP / 2; mask > 0; mask /= 2) {
    float other = __shfl_xor_sync(0xffffffffu, v, mask);
    v = other > v ? other : v;
  }
  return v;
}

// The sum of the lanes before this one.
template <class T> __device__ T warp_before(T v) {
  T sum = v;
  int lane = (int)threadIdx.x % WARP;
  for (int delta = 1; delta < WARP; delta *= 2) {
    T other = __shfl_up_sync(0xffffffffu, sum, delta);
    if (lane >= delta) sum += other;
  }
  return sum - v;
}

// The sum over the block's threads, for all of them. room: WARP values of shared
// memory that nobody reads meanwhile
template <class T> __device__ T block_sum(T v, T *room) {
  int warps = (int)blockDim.x / WARP, warp = (int)threadIdx.x / WARP;
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % WARP == 0) room[warp] = v;
  __syncthreads();
  T sum = room[0];
  for (int i = 1; i < warps; i++) sum += room[i];
  return sum;
}

__device__ inline float block_max(float v, float *room) {
  int warps = (int)blockDim.x / WARP, warp = (int)threadIdx.x / WARP;
  v = warp_max(v);
  __syncthreads();
  if (threadIdx.x % WARP == 0) room[warp] = v;
  __syncthreads();
  float most = room[0];
  for (int i = 1; i < warps; i++) most = room[i] > most ? room[i] : most;
  return most;
}

// The sum of the threads before this one, and that of all in *total.
template <class T> __device__ T block_before(T v, T *room, T *total) {
  int warps = (int)blockDim.x / WARP, warp = (int)threadIdx.x / WARP;
  T before = warp_before(v);
  __syncthreads();
  if (threadIdx.x % WARP == WARP - 1) room[warp] = before + v;
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < warps; i++) {
    if (i == warp) before += sum;
    sum += room[i];
  }
  *total = sum;
  return before;
}

// Bytes of an element of a dense tensor.
__host__ __device__ inline int elem_size(int dtype) {
  return dtype == MSGL_I8 || dtype == MSGL_F8 ? 1 : dtype == MSGL_BF16 || dtype == MSGL_F16 ? 2 : 4;
}

// A matrix of floats.
struct Floats {
  float *p;
  int64_t stride;
  __device__ float *row(int64_t r) const { return p + r * stride; }
};

// A row of indices.
typedef const int32_t *Indices;

inline Floats floats(const msgl_tensor &t) { return {(float *)(uintptr_t)t.addr, t.stride}; }
inline int32_t *ints(const msgl_tensor &t) { return (int32_t *)(uintptr_t)t.addr; }

// An id below zero stands for last[-id - 1]; -1 if there is no such row.
__device__ inline int resolve(int id, Indices last, int slots) {
  if (id >= 0) return id;
  return -(id + 1) < slots ? last[-(id + 1)] : -1;
}

}  // namespace msgl

#endif
