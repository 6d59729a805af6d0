// kernels_neon_dot.c: the kernels for 64-bit Arm with dot products of bytes (Armv8.2's DotProd).
#if defined(__aarch64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#define MSGL_ISA_NEON_DOT
#define MSGL_ISA neon_dot
#include "kernels_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
