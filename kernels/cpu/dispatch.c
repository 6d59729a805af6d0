// dispatch.c: which instruction set to use.
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
static int has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("f16c");
}

static int has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

static int has_avx512_bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#elif defined(__aarch64__)
static int has_neon_dot(void) { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#endif

int msgl_choose_kernels(const msgl_kernels **out) {
  const msgl_kernels *have[4];  // best first
  int n = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (has_avx512_bf16()) have[n++] = &msgl_kernels_avx512_bf16;
  if (has_avx512()) have[n++] = &msgl_kernels_avx512;
  if (has_avx2()) have[n++] = &msgl_kernels_avx2;
#elif defined(__aarch64__)
  if (has_neon_dot()) have[n++] = &msgl_kernels_neon_dot;
#endif
  have[n++] = &msgl_kernels_portable;
  const char *name = getenv("MINISGL_CPU_ISA");
  *out = have[0];
  if (!name || !*name) return MSGL_OK;
  for (int i = 0; i < n; i++) {
    *out = have[i];
    if (strcmp(name, have[i]->name) == 0) return MSGL_OK;
  }
  return MSGL_ERR_ISA;
}

int msgl_isa(const char **name) {
  const msgl_kernels *k;
  int code = msgl_choose_kernels(&k);
  *name = code == MSGL_OK ? k->name : "";
  return code;
}
