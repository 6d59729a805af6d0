// kernels_neon_i8mm.c: the kernels for 64-bit Arm with products of bytes of mixed signs and of bfloat16
// (Armv8.6's I8MM and BF16).
#if defined(__aarch64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm,bf16"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm+bf16")
#endif
#define MSGL_ISA_NEON_I8MM
#define MSGL_BF16_DOT
#define MSGL_ISA neon_i8mm
#include "kernels_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
