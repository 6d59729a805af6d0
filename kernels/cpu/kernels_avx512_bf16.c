// kernels_avx512_bf16.c: the kernels for x86-64 with AVX-512 (F, BW, VL, DQ, VNNI, BF16).
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi2")
#endif
#define MSGL_ISA_AVX512
#define MSGL_BF16_DOT
#define MSGL_OTHER_TILES avx512
#define MSGL_ISA avx512_bf16
#include "kernels_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
