// op_test.c: the kernels against naive loops, in C alone, so that they can run
// under the sanitizers. Every buffer is a heap block of exactly its size. Here are
// the helpers and which sizes are tested; the tests are in the op_*.c files.
#include "op_test.h"

static int failures;
static uint32_t seed = 1;

float rnd(void) {
  seed = seed * 1664525u + 1013904223u;
  return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

float *floats(int n) {
  float *p = malloc((size_t)n * sizeof *p);
  for (int i = 0; i < n; i++) p[i] = rnd();
  return p;
}

float *nans(int n) {
  float *p = malloc((size_t)n * sizeof *p);
  for (int i = 0; i < n; i++) p[i] = NAN;
  return p;
}

msgl_tensor view(void *p, int rows, int cols, int stride, int dtype) {
  return (msgl_tensor){(uint64_t)(uintptr_t)p, rows, cols, stride, dtype};
}

msgl_tensor f32(float *p, int rows, int cols) { return view(p, rows, cols, cols, MSGL_F32); }
msgl_tensor i32(int32_t *p, int n) { return view(p, 1, n, n, MSGL_I32); }

void check(int ok, const char *what, int a, int b, int c) {
  if (ok) return;
  failures++;
  if (failures < 20) fprintf(stderr, "FAIL %s (%d, %d, %d)\n", what, a, b, c);
}

int near(double got, double want, double tolerance) {
  return fabs(got - want) <= tolerance * fmax(1, fabs(want));
}

int run(msgl_pool *pool, msgl_op *ops, int n) {
  int failed, code = msgl_submit(&failed, NULL, pool, ops, n);
  return code;
}

static float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// _Float16 is the compiler's own rounding to nearest even.
float rounded(float x, int dtype) {
  if (dtype == MSGL_F16) return (float)(_Float16)x;
  return dtype == MSGL_BF16 ? from_bf16(msgl_to_bf16(x)) : x;
}

float meeting(float x, int dtype) { return dtype == MSGL_BF16 ? rounded(x, dtype) : x; }

void *pack(const float *w, int n, int k, int dtype) {
  void *p = aligned_alloc(64, (msgl_packed_bytes(n, k, dtype) + 63) / 64 * 64);
  for (int i = 0; i < n; i += MSGL_PANEL) {
    int m = n - i < MSGL_PANEL ? n - i : MSGL_PANEL;
    check(msgl_pack_panel(p, w + (size_t)i * (size_t)k, MSGL_F32, m, k, dtype, i / MSGL_PANEL) == MSGL_OK, "pack", n, k, i);
  }
  return p;
}

static void test_errors(msgl_pool *pool) {
  float x[16] = {0};
  msgl_op ops[2] = {{.kind = MSGL_RMS_NORM}, {.kind = 77}};
  for (int i = 0; i < 3; i++) ops[0].t[i] = f32(x, 1, 16);
  int failed = -2;
  check(msgl_submit(&failed, NULL, pool, ops, 2) == MSGL_ERR_KIND && failed == 1, "unknown kind", failed, 0, 0);
  ops[0].t[1].dtype = MSGL_BF16;
  check(msgl_submit(&failed, NULL, pool, ops, 1) == MSGL_ERR_DTYPE && failed == 0, "dtype", failed, 0, 0);
  check(msgl_submit(&failed, NULL, pool, ops, 0) == MSGL_OK && failed == -1, "empty list", failed, 0, 0);
}

static void test_isa(const char *isa, int threads) {
  setenv("MINISGL_CPU_ISA", isa, 1);
  msgl_pool *pool;
  int code = msgl_pool_new(&pool, threads);
  if (code == MSGL_ERR_ISA) {
    if (threads == 1) printf("%s: not tested, this machine lacks it\n", isa);
    return;
  }
  check(code == MSGL_OK, "pool", threads, code, 0);
  if (code != MSGL_OK) return;
  static const int ms[] = {1, 2, 3, 4, 5, 7, 8, 12, 13, 17, 25};
  static const int nk[][2] = {{1, 1}, {16, 2}, {33, 7}, {40, 65}, {70, 300}};
  for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
    for (size_t j = 0; j < sizeof nk / sizeof *nk; j++) {
      static const int dtypes[] = {MSGL_F32, MSGL_BF16, MSGL_F16};
      test_linear(pool, ms[i], nk[j][0], nk[j][1], dtypes[(i + j) % 3]);
    }
    for (int dtype = MSGL_Q8; dtype <= MSGL_Q8M; dtype++) {
      test_quant(pool, ms[i], 33 + 40 * (dtype % 3), 32 * (1 + (int)i % 4) + 512 * (ms[i] == 17), dtype);
    }
    test_rows(pool, ms[i], 5 + 23 * (int)i);
  }
  test_linear(pool, 33, 40, 65, MSGL_BF16);
  test_linear(pool, 70, 50, 192, MSGL_BF16);
  test_linear(pool, 200, 17, 300, MSGL_BF16);
  test_greedy(pool, 1, 333, 65, MSGL_F32);
  test_greedy(pool, 2, 7, 64, MSGL_F16);
  test_greedy(pool, 5, 333, 300, MSGL_BF16);
  test_greedy(pool, 41, 150, 64, MSGL_BF16);
  for (int dtype = MSGL_Q8; dtype <= MSGL_Q8M; dtype++) test_greedy(pool, 4 * (dtype - MSGL_Q8) + 1, 100, 96, dtype);
  test_quant(pool, 2, 300, 1088, MSGL_Q8);
  test_quant(pool, 1, 300, 1088, MSGL_Q4);
  test_pack_bf16(33, 65);
  test_pack_bf16(16, 2);
  test_attention(pool, 4, 2, 16, 16, 40, 0, MSGL_BF16);
  test_attention(pool, 3, 1, 24, 3, 70, 0, MSGL_F32);
  test_attention(pool, 2, 2, 64, 1, 33, 9, MSGL_BF16);
  test_attention(pool, 4, 1, 32, 64, 290, 0, MSGL_BF16);
  test_attention(pool, 2, 1, 8, 16, 530, 260, MSGL_F32);
  test_attention(pool, 6, 2, 48, 4, 70, 0, MSGL_BF16);  // three rows in a tile
  test_attention(pool, 2, 1, 24, 1, 70, 0, MSGL_BF16);  // a padded head
  test_attention(pool, 4, 2, 128, 16, 70, 0, MSGL_BF16);
  test_attention(pool, 4, 2, 64, 16, 290, 0, MSGL_F16);
  test_attention(pool, 8, 1, 24, 3, 70, 20, MSGL_F16);
  test_attention(pool, 4, 2, 64, 1, 290, 0, MSGL_I8);
  test_attention(pool, 12, 2, 40, 16, 70, 20, MSGL_I8);
  test_exp(pool);
  test_sample(pool, 9, 3);
  test_sample(pool, 40, 1000);
  test_mask(pool, 1, 3);
  test_mask(pool, 7, 1000);
  test_logits(pool, 1, 3);
  test_logits(pool, 7, 1000);
  test_moe(pool, 1, 1, 1, 7, 3, MSGL_F32);
  test_moe(pool, 5, 4, 3, 33, 24, MSGL_BF16);
  test_moe(pool, 40, 8, 8, 17, 21, MSGL_F32);
  test_moe(pool, 30, 20, 2, 48, 40, MSGL_BF16);
  test_moe(pool, 3600, 8, 8, 3, 200, MSGL_F32);  // in two passes
  test_errors(pool);
  msgl_pool_free(pool);
}

// Pools come and go; a thread may be late for everything.
static void test_start_stop(int rounds) {
  float x[64] = {0}, dst[64];
  for (int i = 0; i < rounds; i++) {
    msgl_pool *pool;
    check(msgl_pool_new(&pool, 1 + i % 5) == MSGL_OK, "start", i, 0, 0);
    msgl_op ops[3];
    for (int j = 0; j < 3; j++) {
      int32_t rows[4] = {0, 1, 2, 3};
      ops[j] = (msgl_op){.kind = MSGL_GATHER_ROWS};
      ops[j].t[0] = f32(dst, 4, 16);
      ops[j].t[1] = f32(x, 4, 16);
      ops[j].t[2] = i32(rows, 4);
      if (i % 2) check(run(pool, &ops[j], 1) == MSGL_OK, "run", i, j, 0);
    }
    test_sample(pool, 8, 100);  // a parallel phase
    msgl_pool_free(pool);
  }
}

int main(void) {
  static const char *isas[] = {"portable", "neon_dot", "neon_i8mm", "avx2", "avx512", "avx512_bf16", "amx"};
  test_start_stop(200);
  test_to_f16();
  for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
    for (int threads = 1; threads <= 3; threads++) test_isa(isas[i], threads);
  }
  if (failures) {
    fprintf(stderr, "%d checks failed\n", failures);
    return 1;
  }
  printf("ok\n");
  return 0;
}
