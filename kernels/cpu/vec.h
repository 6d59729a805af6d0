// vec.h: vectors of VW floats, one definition per instruction set.
//
// The kernels are written against this file and compiled once per instruction
// set. Multiply-adds are explicit (vfma): the compiler is told not to contract
// (cpu.go), so AVX2 and AVX-512 round alike and give the same bits.
#ifndef MSGL_VEC_H
#define MSGL_VEC_H

#include <math.h>
#include <string.h>

#include "internal.h"

#if defined(MSGL_ISA_AVX512) || defined(MSGL_ISA_AVX2)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(MSGL_ISA_AVX512)
#define VW 16
#elif defined(MSGL_ISA_AVX2)
#define VW 8
#else
#define VW 4
#endif

#define ALWAYS static inline __attribute__((always_inline))

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#define UNROLL _Pragma("unroll")
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define UNROLL _Pragma("GCC unroll 64")
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

enum { LANES = 16, NV = LANES / VW };  // a reduction has 16 lanes, NV vectors, everywhere

typedef float vf __attribute__((vector_size(4 * VW)));
typedef int32_t vi __attribute__((vector_size(4 * VW)));
typedef uint32_t vu __attribute__((vector_size(4 * VW)));
typedef uint16_t vh __attribute__((vector_size(2 * VW)));
typedef int8_t vb __attribute__((vector_size(VW)));
typedef float vf_any __attribute__((vector_size(4 * VW), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(4 * VW), aligned(4), may_alias));

// Into the second cache: all that is asked for ahead is more than the first one has, and a line on its
// way there holds one of the core's few miss buffers.
ALWAYS void prefetch(const void *p) { __builtin_prefetch(p, 0, 2); }

ALWAYS vf vld(const float *p) { return *(const vf_any *)p; }
ALWAYS void vst(float *p, vf v) { *(vf_any *)p = v; }
ALWAYS vu vldu(const void *p) { return *(const vu_any *)p; }

#if defined(MSGL_ISA_AVX512)
ALWAYS vf vset1(float x) { return _mm512_set1_ps(x); }
ALWAYS vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
ALWAYS vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
ALWAYS vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
#elif defined(MSGL_ISA_AVX2)
ALWAYS vf vset1(float x) { return _mm256_set1_ps(x); }
ALWAYS vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
ALWAYS vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
ALWAYS vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
#else
ALWAYS vf vset1(float x) { return (vf){x, x, x, x}; }
ALWAYS vf vpick(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
ALWAYS vf vmax(vf a, vf b) { return vpick(a > b, a, b); }
ALWAYS vf vmin(vf a, vf b) { return vpick(a < b, a, b); }
#if defined(__aarch64__)
ALWAYS vf vfma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#else
// Without the instruction: two roundings, so not the bits of the others.
ALWAYS vf vfma(vf a, vf b, vf c) { return a * b + c; }
#endif
#endif

// *sum += a * b, for tiles that take all registers: compilers would give the sum
// another register each time, and move loads of what comes next before it.
ALWAYS void vadd_product(vf *sum, vf a, vf b) {
#if defined(MSGL_ISA_AVX2)
  __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(a), "x"(b));
#else
  *sum = vfma(a, b, *sum);
#endif
}

// vmax and vmin return b where either is a NaN: put the constant first to let NaNs through.

// VW bfloat16 values as floats.
ALWAYS vf vld_bf16(const uint16_t *p) {
  // One instruction, of which gcc 12 makes four.
#if defined(MSGL_ISA_AVX512)
  return (vf)((vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)) << 16);
#elif defined(MSGL_ISA_AVX2)
  return (vf)((vu)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)) << 16);
#else
  vh h;
  memcpy(&h, p, sizeof h);
  return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

// The even or the odd ones of 2 * VW bfloat16 values, as floats. In assembly for AVX2, since compilers
// keep the pairs for the second part, where a tile leaves no register to keep them in.
ALWAYS vf vld_half_bf16(const void *p, int odd) {
#if defined(MSGL_ISA_AVX2)
  typedef const vu_any *pairs;
  static const uint32_t upper[VW] __attribute__((aligned(32))) = {
      0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
  vf v;
  if (odd) {
    __asm__("vmovdqu %1, %0\n\tvpand %2, %0, %0" : "=x"(v) : "m"(*(pairs)p), "m"(upper));
  } else {
    __asm__("vmovdqu %1, %0\n\tvpslld $16, %0, %0" : "=x"(v) : "m"(*(pairs)p));
  }
  return v;
#else
  vu pairs = vldu(p);
  return (vf)(odd ? pairs & 0xffff0000u : pairs << 16);
#endif
}

// Rounds to bfloat16, to nearest even. A NaN stays one.
ALWAYS vf vround_bf16(vf x) {
  vu u = (vu)x, number = (vu)(x == x);
  vu rounded = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
  return (vf)((rounded & number) | ((u | 0x400000u) & ~number));
}

// VW float16 values as floats.
ALWAYS vf vld_f16(const void *p) {
#if defined(MSGL_ISA_AVX512)
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(MSGL_ISA_AVX2)
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
  vh h;
  memcpy(&h, p, sizeof h);
  vu u = __builtin_convertvector(h, vu), infinite = (vu)((u & 0x7c00u) == 0x7c00u);
  vf magnitude = (vf)((u & 0x7fffu) << 13) * vset1(0x1p112f);
  return (vf)((vu)magnitude | (infinite & 0x7f800000u) | (u & 0x8000u) << 16);
#endif
}

// VW values rounded to bfloat16.
ALWAYS void vst_bf16(uint16_t *p, vf v) {
  vh h = __builtin_convertvector((vu)vround_bf16(v) >> 16, vh);
  memcpy(p, &h, sizeof h);
}

// VW values rounded to float16, to nearest even.
ALWAYS void vst_f16(uint16_t *p, vf v) {
#if defined(MSGL_ISA_AVX512)
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(MSGL_ISA_AVX2)
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < VW; i++) p[i] = msgl_to_f16(v[i]);
#endif
}

// VW signed bytes as floats.
ALWAYS vf vld_i8(const void *p) {
#if defined(MSGL_ISA_AVX2)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
  vb b;
  memcpy(&b, p, sizeof b);
  return __builtin_convertvector(__builtin_convertvector(b, vi), vf);
#endif
}

// VW values from i on of a row of any dense type.
ALWAYS vf vld_any(int dtype, const char *row, int i) {
  switch (dtype) {
    case MSGL_BF16: return vld_bf16((const uint16_t *)row + i);
    case MSGL_F16: return vld_f16((const uint16_t *)row + i);
    case MSGL_I8: return vld_i8((const int8_t *)row + i);
    default: return vld((const float *)row + i);
  }
}

// One of them.
ALWAYS float load_one(int dtype, const char *row, int i) {
  size_t size = msgl_elem_size(dtype);
  char lanes[4 * VW] = {0};
  memcpy(lanes, row + (size_t)i * size, size);
  return vld_any(dtype, lanes, 0)[0];
}

// n < VW values, the rest zero.
ALWAYS vf vld_part(const float *p, int n) {
  float tmp[VW] = {0};
  memcpy(tmp, p, (size_t)n * sizeof(float));
  return vld(tmp);
}

ALWAYS void vst_part(float *p, vf v, int n) { memcpy(p, &v, (size_t)n * sizeof(float)); }

// Sums 16 lanes, always in this order.
ALWAYS float lanes_sum(const float *lane) {
  float s[8];
  for (int i = 0; i < 8; i++) s[i] = lane[i] + lane[i + 8];
  for (int i = 0; i < 4; i++) s[i] += s[i + 4];
  return (s[0] + s[2]) + (s[1] + s[3]);
}

// Sum of squares of n values: element i belongs to lane i % 16.
ALWAYS float sum_squares(const float *x, int n) {
  float lane[LANES];
  vf acc[NV];
  int i = 0;
  UNROLL for (int v = 0; v < NV; v++) acc[v] = vset1(0);
  for (; i + LANES <= n; i += LANES) {
    UNROLL for (int v = 0; v < NV; v++) {
      vf a = vld(x + i + v * VW);
      acc[v] = vfma(a, a, acc[v]);
    }
  }
  float tail[LANES] = {0};
  memcpy(tail, x + i, (size_t)(n - i) * sizeof(float));
  UNROLL for (int v = 0; v < NV; v++) {
    vf a = vld(tail + v * VW);
    vst(lane + v * VW, vfma(a, a, acc[v]));
  }
  return lanes_sum(lane);
}

// exp to about one unit in the last place, infinities, NaN and subnormal results
// included: exp(x) = 2^n exp(f), n = round(x / ln 2), with Cephes' polynomial.
ALWAYS vf vexp(vf x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = vmin(vset1(89.0f), vmax(vset1(-105.0f), x));
  vf shifted = vfma(x, vset1(1.44269504088896341f), vset1(magic));
  vf n = shifted - vset1(magic);
  vf f = vfma(n, vset1(-0.693359375f), x);
  f = vfma(n, vset1(2.12194440e-4f), f);
  vf p = vset1(1.9875691500e-4f);
  p = vfma(p, f, vset1(1.3981999507e-3f));
  p = vfma(p, f, vset1(8.3334519073e-3f));
  p = vfma(p, f, vset1(4.1665795894e-2f));
  p = vfma(p, f, vset1(1.6666665459e-1f));
  p = vfma(p, f, vset1(5.0000001201e-1f));
  vf y = vfma(p, f * f, f) + vset1(1.0f);
  // 2^n in two factors, so that neither leaves the range of exponents.
  vi k = (vi)shifted - (vi)vset1(magic), half = k >> 1;
  return y * (vf)((half + 127) << 23) * (vf)((k - half + 127) << 23);
}

ALWAYS float exp_one(float x) { return vexp(vset1(x))[0]; }

// Transposes VW x VW 32-bit elements: in round s, the lanes whose bit s is set
// change places with the registers whose bit s is set.
#define T_LO(s, l) ((l) & (s) ? (l) - (s) + VW : (l))
#define T_HI(s, l) ((l) & (s) ? (l) + VW : (l) + (s))
#define T_4(T, s, l) T(s, l), T(s, (l) + 1), T(s, (l) + 2), T(s, (l) + 3)
#if VW == 16
#define T_ALL(T, s) T_4(T, s, 0), T_4(T, s, 4), T_4(T, s, 8), T_4(T, s, 12)
#elif VW == 8
#define T_ALL(T, s) T_4(T, s, 0), T_4(T, s, 4)
#else
#define T_ALL(T, s) T_4(T, s, 0)
#endif
#define T_ROUND(s)                                \
  UNROLL for (int i = 0; i < VW; i++) {           \
    if (i & (s)) continue;                        \
    vi a = r[i], b = r[i + (s)];                  \
    r[i] = SHUFFLE(a, b, T_ALL(T_LO, s));         \
    r[i + (s)] = SHUFFLE(a, b, T_ALL(T_HI, s));   \
  }

ALWAYS void transpose(vi r[VW]) {
  T_ROUND(1)
  T_ROUND(2)
#if VW >= 8
  T_ROUND(4)
#endif
#if VW >= 16
  T_ROUND(8)
#endif
}

// All lanes become what OP makes of all.
#define T_XOR(s, l) ((l) ^ (s))
#define FOLD(v, OP, s) (v) = OP(v, SHUFFLE(v, v, T_ALL(T_XOR, s)))
#if VW == 16
#define FOLD_ALL(v, OP) FOLD(v, OP, 8); FOLD(v, OP, 4); FOLD(v, OP, 2); FOLD(v, OP, 1)
#elif VW == 8
#define FOLD_ALL(v, OP) FOLD(v, OP, 4); FOLD(v, OP, 2); FOLD(v, OP, 1)
#else
#define FOLD_ALL(v, OP) FOLD(v, OP, 2); FOLD(v, OP, 1)
#endif

ALWAYS float vec_max(vf v) {
  FOLD_ALL(v, vmax);
  return v[0];
}

ALWAYS vi vadd_int(vi a, vi b) { return a + b; }

ALWAYS int32_t vec_sum(vi v) {
  FOLD_ALL(v, vadd_int);
  return v[0];
}

#endif
