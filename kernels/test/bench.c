// bench.c: speed of LINEAR on the shapes of two models, of their heads with SAMPLE, and of
// ATTENTION over a long context. Prints the fastest of a few runs.
//
//   bench [THREADS [WORD]]    WORD: only what has it in its name: a type (q8), 0.6B, head, attention
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *must_alloc(size_t bytes) {
  void *p;
  if (msgl_alloc(&p, bytes) != MSGL_OK) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  return p;
}

static msgl_tensor tensor(void *p, int rows, int cols, int dtype) {
  return (msgl_tensor){(uint64_t)(uintptr_t)p, rows, cols, cols, dtype};
}

// Bits that are small finite numbers in every type.
static msgl_tensor random_weight(int n, int k, int dtype) {
  size_t bytes = msgl_packed_bytes(n, k, dtype);
  uint16_t *p = must_alloc(bytes);
  uint32_t s = 1;
  for (size_t i = 0; i < bytes / 2; i++) {
    s = s * 1664525u + 1013904223u;
    p[i] = (uint16_t)(0x3c00 | (s >> 16 & 0x80ff));
  }
  return tensor(p, n, k, dtype);
}

static double best(msgl_pool *pool, const msgl_op *ops, int n, double seconds) {
  double least = 1e9, start = now();
  do {
    int failed;
    double t = now();
    int code = msgl_submit(&failed, NULL, pool, ops, n);
    t = now() - t;
    if (code != MSGL_OK) {
      fprintf(stderr, "operation %d: code %d\n", failed, code);
      exit(1);
    }
    if (t < least) least = t;
  } while (now() - start < seconds);
  return least;
}

typedef struct {
  const char *name;
  int layers, n[4], k[4], vocab, hidden;
} model;

typedef struct {
  const char *name;
  int dtype;
} type;

// All matmuls of a forward pass of m rows; the head for at most 16 of them.
static void bench_model(msgl_pool *pool, const model *md, const type *ty, const int *rows, int nrows) {
  enum { MAX_LAYERS = 30 };
  static msgl_op ops[MAX_LAYERS * 4 + 1];
  int count = 0, widest = 0;
  for (int l = 0; l < md->layers; l++) {
    for (int i = 0; i < 4; i++) {
      ops[count] = (msgl_op){.kind = MSGL_LINEAR};
      ops[count++].t[2] = random_weight(md->n[i], md->k[i], ty->dtype);
      if (md->n[i] > widest) widest = md->n[i];
    }
  }
  ops[count] = (msgl_op){.kind = MSGL_LINEAR};
  ops[count++].t[2] = random_weight(md->vocab, md->hidden, ty->dtype);
  size_t out = (size_t)512 * (size_t)widest, head = (size_t)16 * (size_t)md->vocab;
  float *x = must_alloc((size_t)512 * (size_t)widest * 4), *dst = must_alloc((out > head ? out : head) * 4);
  for (size_t i = 0; i < out; i++) x[i] = 0.01f * (float)(i % 13);
  for (int r = 0; r < nrows; r++) {
    int m = rows[r], used = m <= 16 ? count : count - 1;
    double params = 0, bytes = 0;
    for (int i = 0; i < used; i++) {
      msgl_tensor *w = &ops[i].t[2];
      ops[i].t[0] = tensor(dst, m, w->rows, MSGL_F32);
      ops[i].t[1] = tensor(x, m, w->cols, MSGL_F32);
      params += (double)w->rows * w->cols;
      bytes += (double)msgl_packed_bytes(w->rows, w->cols, w->dtype);
    }
    double t = best(pool, ops, used, 1.5);
    printf("%-11s %-4s rows %3d: %8.2f ms, %7.1f rows/s, %6.1f GB/s of weights, %7.1f GFLOP/s\n", md->name, ty->name, m, t * 1e3,
           m / t, bytes / t / 1e9, 2 * params * m / t / 1e9);
  }
  for (int i = 0; i < count; i++) {
    msgl_tensor *w = &ops[i].t[2];
    msgl_free((void *)(uintptr_t)w->addr, msgl_packed_bytes(w->rows, w->cols, w->dtype));
  }
  msgl_free(x, (size_t)512 * (size_t)widest * 4);
  msgl_free(dst, (out > head ? out : head) * 4);
}

// A head and the largest logit of each of m rows: in one, as the last operations are, and apart.
static void bench_head(msgl_pool *pool, const char *name, int vocab, int hidden, int m, int dtype) {
  int32_t *next = must_alloc((size_t)m * 4);
  msgl_sampling *args = must_alloc((size_t)m * sizeof *args);
  float *x = must_alloc((size_t)m * (size_t)hidden * 4), *dst = must_alloc((size_t)m * (size_t)vocab * 4);
  for (int i = 0; i < m * hidden; i++) x[i] = 0.01f * (float)(i % 13);
  for (int i = 0; i < m; i++) args[i].slot = -1;
  msgl_op ops[3] = {{.kind = MSGL_LINEAR}, {.kind = MSGL_SAMPLE, .i = {vocab}}, {.kind = MSGL_RMS_NORM}};
  ops[0].t[0] = ops[1].t[1] = tensor(dst, m, vocab, MSGL_F32);
  ops[0].t[1] = tensor(x, m, hidden, MSGL_F32);
  ops[0].t[2] = random_weight(vocab, hidden, dtype);
  ops[1].t[0] = tensor(next, 1, m, MSGL_I32);
  ops[1].t[2] = tensor(args, m, 8, MSGL_I32);
  for (int i = 0; i < 3; i++) ops[2].t[i] = tensor(x, 1, 16, MSGL_F32);
  double took[2] = {1e9, 1e9};
  for (int i = 0; i < 6; i++) {
    double t = best(pool, ops, 2 + i % 2, 0.5);
    if (t < took[i % 2]) took[i % 2] = t;
  }
  printf("head %-11s rows %3d: %8.3f ms with its sampling, %8.3f ms apart, %.3f of it\n", name, m, took[0] * 1e3, took[1] * 1e3, took[0] / took[1]);
  msgl_free((void *)(uintptr_t)ops[0].t[2].addr, msgl_packed_bytes(vocab, hidden, dtype));
  msgl_free(dst, (size_t)m * (size_t)vocab * 4);
  msgl_free(x, (size_t)m * (size_t)hidden * 4);
  msgl_free(args, (size_t)m * sizeof *args);
  msgl_free(next, (size_t)m * 4);
}

// Attention of a model's layers, each with a bf16 cache of its own, as memory sees it:
// `requests` requests of `context` positions, `rows` new rows each.
static void bench_attention(msgl_pool *pool, int q, int kv, int d, int requests, int context, int rows) {
  enum { LAYERS = 28 };
  int page = 16, pages = (context + page - 1) / page, total = requests * pages, m = requests * rows;
  size_t cache = (size_t)total * (size_t)page * (size_t)kv * (size_t)d * 2;
  uint16_t *caches = must_alloc(2 * LAYERS * cache);
  for (size_t i = 0; i < LAYERS * cache; i++) caches[i] = (uint16_t)(0x3c00 | (i * 2654435761u >> 20 & 0x80ff));
  float *x = must_alloc((size_t)m * (size_t)(q * d) * 4), *dst = must_alloc((size_t)m * (size_t)(q * d) * 4);
  for (int i = 0; i < m * q * d; i++) x[i] = 0.01f * (float)(i % 13 - 6);
  int32_t *table = must_alloc((size_t)total * 4), *cu = must_alloc((size_t)(requests + 1) * 4), *lens = must_alloc((size_t)requests * 4);
  for (int i = 0; i < total; i++) table[i] = (int)((int64_t)i * 7919 % total);
  for (int r = 0; r < requests; r++) {
    cu[r + 1] = (r + 1) * rows;
    lens[r] = context;
  }
  msgl_op op = {.kind = MSGL_ATTENTION, .f = {0.088f}, .i = {q, kv, d, page, 0}};
  op.t[0] = tensor(dst, m, q * d, MSGL_F32);
  op.t[1] = tensor(x, m, q * d, MSGL_F32);
  op.t[4] = tensor(table, requests, pages, MSGL_I32);
  op.t[5] = tensor(cu, 1, requests + 1, MSGL_I32);
  op.t[6] = tensor(lens, 1, requests, MSGL_I32);
  msgl_op ops[LAYERS];
  for (int i = 0; i < LAYERS; i++) {
    ops[i] = op;
    for (int j = 0; j < 2; j++) {
      char *at = (char *)caches + (size_t)(2 * i + j) * cache;
      ops[i].t[2 + j] = tensor(at, total * page, kv * d, MSGL_BF16);
    }
  }
  double t = best(pool, ops, LAYERS, 1.0) / LAYERS;
  double seen = (double)rows * (context - (rows - 1) / 2.0);
  printf("attention %2d/%d heads of %3d, %2d x %4d positions, %3d rows: %7.3f ms, %5.1f GB/s of cache, %6.1f GFLOP/s\n", q, kv,
         d, requests, context, rows, t * 1e3, (double)requests * context * kv * d * 4 / t / 1e9,
         (double)requests * seen * q * d * 4 / t / 1e9);
  msgl_free(caches, 2 * LAYERS * cache);
  msgl_free(x, (size_t)m * (size_t)(q * d) * 4);
  msgl_free(dst, (size_t)m * (size_t)(q * d) * 4);
  msgl_free(table, (size_t)total * 4);
  msgl_free(cu, (size_t)(requests + 1) * 4);
  msgl_free(lens, (size_t)requests * 4);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 2;
  const char *word = argc > 2 ? argv[2] : "";
  static const model models[] = {
      {"135M (576)", 30, {960, 576, 3072, 576}, {576, 576, 576, 1536}, 49152, 576},
      {"0.6B (1024)", 28, {4096, 1024, 6144, 1024}, {1024, 2048, 1024, 3072}, 151936, 1024},
  };
  static const int rows[] = {1, 2, 4, 8, 12, 16, 24, 512};
  const char *isa;
  msgl_pool *pool;
  if (msgl_isa(&isa) != MSGL_OK || msgl_pool_new(&pool, threads) != MSGL_OK) {
    fprintf(stderr, "no pool of %d threads\n", threads);
    return 1;
  }
  static const type types[] = {{"bf16", MSGL_BF16}, {"q8", MSGL_Q8}, {"q4", MSGL_Q4}, {"q4m", MSGL_Q4M}};
  printf("%s, %d threads\n", isa, threads);
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    for (size_t j = 0; j < sizeof types / sizeof *types; j++) {
      if (!strstr(models[i].name, word) && !strstr(types[j].name, word)) continue;
      bench_model(pool, &models[i], &types[j], rows, sizeof rows / sizeof *rows);
    }
  }
  for (int m = 1; m <= 16 && strstr("head", word); m *= 4) {
    bench_head(pool, "135M, q4m", 49152, 576, m, MSGL_Q4M);
    bench_head(pool, "0.6B, bf16", 151936, 1024, m, MSGL_BF16);
  }
  if (strstr("attention", word)) {
    bench_attention(pool, 16, 8, 128, 1, 2048, 1);
    bench_attention(pool, 16, 8, 128, 16, 272, 1);
    bench_attention(pool, 9, 3, 64, 1, 512, 1);
    bench_attention(pool, 16, 8, 128, 1, 512, 512);
  }
  msgl_pool_free(pool);
  return 0;
}
