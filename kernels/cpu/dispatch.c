// dispatch.c: which instruction set to use.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(MSGL_AMX)
#include <sys/syscall.h>
#include <unistd.h>
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

#if defined(MSGL_AMX)
#if defined(MSGL_AMX_EMULATED)
enum { AMX_IS_FAST = 0 };
static const msgl_kernels *below_amx(void) { return has_avx2() ? &msgl_kernels_avx2 : &msgl_kernels_portable; }
#else
enum { AMX_IS_FAST = 1 };
// The kernels that a machine with tiles runs beside those, or NULL. The system has to allow tiles.
static const msgl_kernels *below_amx(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  if (!has_avx512_bf16() || !__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16")) return NULL;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? &msgl_kernels_avx512_bf16 : NULL;
}
#endif

static msgl_kernels amx;
static const msgl_kernels *found_amx;  // &amx, or NULL

static void find_amx(void) {
  const msgl_kernels *below = below_amx();
  if (!below) return;
  amx = *below;
  msgl_add_amx(&amx);
  found_amx = &amx;
}
#endif
#elif defined(__aarch64__)
static int has_neon_dot(void) { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }

static int has_neon_i8mm(void) {
  unsigned long need = HWCAP2_I8MM | HWCAP2_BF16;
  return has_neon_dot() && (getauxval(AT_HWCAP2) & need) == need;
}
#endif

int msgl_choose_kernels(const msgl_kernels **out) {
  const msgl_kernels *have[5];  // best first
  int n = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(MSGL_AMX)
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_amx);
  if (found_amx && AMX_IS_FAST) have[n++] = found_amx;
#endif
  if (has_avx512_bf16()) have[n++] = &msgl_kernels_avx512_bf16;
  if (has_avx512()) have[n++] = &msgl_kernels_avx512;
  if (has_avx2()) have[n++] = &msgl_kernels_avx2;
#elif defined(__aarch64__)
  if (has_neon_i8mm()) have[n++] = &msgl_kernels_neon_i8mm;
  if (has_neon_dot()) have[n++] = &msgl_kernels_neon_dot;
#endif
  have[n++] = &msgl_kernels_portable;
#if defined(MSGL_AMX)
  if (found_amx && !AMX_IS_FAST) have[n++] = found_amx;
#endif
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
