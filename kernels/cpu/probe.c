// probe.c: measures what the kernels are compared with.
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "pool.h"

enum { READ_BYTES = 512 << 20, READ_ITEM = 1 << 20, FMA_ITEMS = 256, RUNS = 5 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The fastest of some runs of an operation, in seconds.
static int fastest(double *seconds, msgl_pool *pool, const msgl_op *op) {
  for (int i = 0; i < RUNS; i++) {
    int failed;
    double start = now();
    int code = msgl_submit(&failed, NULL, pool, op, 1);
    if (code != MSGL_OK) return code;
    double took = now() - start;
    if (i == 0 || took < *seconds) *seconds = took;
  }
  return MSGL_OK;
}

int msgl_probe(double *bytes_per_second, double *flops_per_second, msgl_pool *pool) {
  void *memory;
  int code = msgl_alloc(&memory, READ_BYTES);
  if (code != MSGL_OK) return code;
  memset(memory, 1, READ_BYTES);
  msgl_op op = {.kind = MSGL_PROBE, .i = {READ_BYTES / READ_ITEM}};
  op.t[0] = (msgl_tensor){(uint64_t)(uintptr_t)memory, 1, READ_BYTES / 4, READ_BYTES / 4, MSGL_F32};
  double seconds = 1;
  code = fastest(&seconds, pool, &op);
  *bytes_per_second = READ_BYTES / seconds;
  msgl_free(memory, READ_BYTES);
  if (code != MSGL_OK) return code;
  op = (msgl_op){.kind = MSGL_PROBE, .i = {FMA_ITEMS}};
  code = fastest(&seconds, pool, &op);
  *flops_per_second = (double)FMA_ITEMS * (double)pool->job.kernels->probe_flops / seconds;
  return code;
}
