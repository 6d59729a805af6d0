// op_test.c: the kernels against naive loops, in C alone, so that they can run
// under the sanitizers. Every buffer is a heap block of exactly its size.
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static int failures;
static uint32_t seed = 1;

static float rnd(void) {  // uniform in [-1, 1)
  seed = seed * 1664525u + 1013904223u;
  return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

static float *floats(int n) {
  float *p = malloc((size_t)n * sizeof *p);
  for (int i = 0; i < n; i++) p[i] = rnd();
  return p;
}

static float *nans(int n) {
  float *p = malloc((size_t)n * sizeof *p);
  for (int i = 0; i < n; i++) p[i] = NAN;
  return p;
}

static msgl_tensor view(void *p, int rows, int cols, int stride, int dtype) {
  return (msgl_tensor){(uint64_t)(uintptr_t)p, rows, cols, stride, dtype};
}

static msgl_tensor f32(float *p, int rows, int cols) { return view(p, rows, cols, cols, MSGL_F32); }
static msgl_tensor i32(int32_t *p, int n) { return view(p, 1, n, n, MSGL_I32); }

static void check(int ok, const char *what, int a, int b, int c) {
  if (ok) return;
  failures++;
  if (failures < 20) fprintf(stderr, "FAIL %s (%d, %d, %d)\n", what, a, b, c);
}

static int near(double got, double want, double tolerance) {
  return fabs(got - want) <= tolerance * fmax(1, fabs(want));
}

static int run(msgl_pool *pool, msgl_op *ops, int n) {
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
static float rounded(float x, int dtype) {
  if (dtype == MSGL_F16) return (float)(_Float16)x;
  return dtype == MSGL_BF16 ? from_bf16(msgl_to_bf16(x)) : x;
}

// A value of x as it meets a weight.
static float meeting(float x, int dtype) { return dtype == MSGL_BF16 ? rounded(x, dtype) : x; }

// All roundings to float16 at and beside the halves, and of what is between.
static void test_to_f16(void) {
  for (uint32_t u = 0; u < 0x7f800000; u += u % 0x1000 == 1 ? 0xffe : 1) {  // 0, 1, 0xfff, 0x1000, 0x1001, …
    float x;
    memcpy(&x, &u, 4);
    _Float16 want = (_Float16)x;
    uint16_t bits;
    memcpy(&bits, &want, 2);
    check(msgl_to_f16(x) == bits && msgl_to_f16(-x) == (bits | 0x8000), "to f16", (int)u, msgl_to_f16(x), bits);
  }
  check(msgl_to_f16(INFINITY) == 0x7c00 && (msgl_to_f16(NAN) & 0x7fff) > 0x7c00, "to f16", 0, 0, 0);
}

// What an i8 cache keeps of element i of a head.
static float rounded_i8(const float *head, int d, int i) {
  float most = 0;
  for (int j = 0; j < d; j++) most = fmaxf(most, fabsf(head[j]));
  return most > 0 ? nearbyintf(head[i] * (127.0f / most)) * (most / 127.0f) : 0;
}

static void *pack(const float *w, int n, int k, int dtype) {
  void *p = aligned_alloc(64, (msgl_packed_bytes(n, k, dtype) + 63) / 64 * 64);
  for (int i = 0; i < n; i += MSGL_PANEL) {
    int m = n - i < MSGL_PANEL ? n - i : MSGL_PANEL;
    check(msgl_pack_panel(p, w + (size_t)i * (size_t)k, MSGL_F32, m, k, dtype, i / MSGL_PANEL) == MSGL_OK, "pack", n, k, i);
  }
  return p;
}

// Rows that are bf16 already are packed as those that are rounded to it.
static void test_pack_bf16(int n, int k) {
  float *w = floats(n * k);
  uint16_t *rows = malloc((size_t)(n * k) * sizeof *rows);
  for (int i = 0; i < n * k; i++) rows[i] = msgl_to_bf16(w[i]);
  void *want = pack(w, n, k, MSGL_BF16), *got = aligned_alloc(64, (msgl_packed_bytes(n, k, MSGL_BF16) + 63) / 64 * 64);
  for (int i = 0; i < n; i += MSGL_PANEL) {
    int m = n - i < MSGL_PANEL ? n - i : MSGL_PANEL;
    check(msgl_pack_panel(got, rows + i * k, MSGL_BF16, m, k, MSGL_BF16, i / MSGL_PANEL) == MSGL_OK, "pack bf16 code", n, k, i);
  }
  check(memcmp(got, want, msgl_packed_bytes(n, k, MSGL_BF16)) == 0, "pack bf16", n, k, 0);
  check(msgl_pack_panel(got, rows, MSGL_BF16, 1, k, MSGL_F32, 0) == MSGL_ERR_DTYPE, "pack bf16 as f32", n, k, 0);
  free(got);
  free(want);
  free(rows);
  free(w);
}

// A quantized weight and the values that it stands for.
typedef struct {
  void *packed;
  float *values;  // [n, k]
} quantized;

static quantized quantize(int n, int k, int dtype) {
  msgl_quant q = msgl_quant_of(dtype);
  int groups = k / q.group;
  uint8_t *codes = malloc((size_t)(n * k));
  float *scales = floats(n * groups), *minima = floats(n * groups);
  quantized out = {aligned_alloc(64, msgl_packed_bytes(n, k, dtype)), malloc((size_t)(n * k) * sizeof(float))};
  for (int i = 0; i < n * groups; i++) scales[i] = (float)(int)(scales[i] * 1024) / 65536;  // f16 values
  for (int i = 0; i < n * k; i++) {
    float scale = scales[i / q.group];
    codes[i] = (uint8_t)((int)((rnd() + 1) * 128) & (q.bits == 4 ? 15 : 255));
    if (i < 64) codes[i] = q.bits == 4 ? 15 : 255;
    out.values[i] = q.minimum ? (float)codes[i] * scale + minima[i / q.group] : (float)(codes[i] - q.zero) * scale;
  }
  for (int i = 0; i < n; i += MSGL_PANEL) {
    int m = n - i < MSGL_PANEL ? n - i : MSGL_PANEL;
    int code = msgl_pack_quant(out.packed, codes + i * k, scales + i * groups, minima + i * groups, m, k, dtype, i / MSGL_PANEL);
    check(code == MSGL_OK, "pack quant", n, k, dtype);
  }
  free(minima);
  free(scales);
  free(codes);
  return out;
}

// Rounds 32 values to 8 bits.
static void round_group(float *out, const float *x) {
  float most = 0;
  for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
  float inverse = most > 0 ? 127.0f / most : 0;
  for (int i = 0; i < 32; i++) out[i] = nearbyintf(x[i] * inverse) * (most / 127.0f);
}

// What LINEAR makes of a row of x before it meets a quantized weight.
static void round_row(double *out, const float *x, int k) {
  double squares = 0;
  for (int i = 0; i < k; i++) squares += (double)x[i] * x[i];
  for (int g = 0; g < k; g += 32) {
    float rounded[32], left[32], again[32] = {0};
    double most = 0;
    for (int i = 0; i < 32; i++) most = fmax(most, fabs((double)x[g + i]));
    round_group(rounded, x + g);
    for (int i = 0; i < 32; i++) left[i] = x[g + i] - rounded[i];
    if (most * most > 144 * squares / k) round_group(again, left);
    for (int i = 0; i < 32; i++) out[g + i] = (double)rounded[i] + again[i];
  }
}

static void test_quant(msgl_pool *pool, int m, int n, int k, int dtype) {
  float *x = floats(m * k), *bias = floats(n), *dst = nans(m * n), *row = nans(k);
  for (int r = 0; r < m; r += 2) x[r * k + (7 * r) % k] = 100;  // in long rows, far out
  quantized w = quantize(n, k, dtype);
  int32_t id = n - 1;
  msgl_op ops[2] = {{.kind = MSGL_LINEAR}, {.kind = MSGL_EMBED}};
  ops[0].t[0] = f32(dst, m, n);
  ops[0].t[1] = f32(x, m, k);
  ops[0].t[2] = ops[1].t[1] = view(w.packed, n, k, k, dtype);
  ops[0].t[3] = f32(bias, 1, n);
  ops[1].t[0] = f32(row, 1, k);
  ops[1].t[2] = i32(&id, 1);
  check(run(pool, ops, 2) == MSGL_OK, "quant code", m, n, k);
  double *in = malloc((size_t)k * sizeof *in);
  for (int r = 0; r < m; r++) {
    round_row(in, x + r * k, k);
    for (int c = 0; c < n; c++) {
      double sum = 0;
      for (int i = 0; i < k; i++) sum += in[i] * (double)w.values[c * k + i];
      check(near(dst[r * n + c], sum + bias[c], 2e-5), "quant", m, n, dtype);
    }
  }
  for (int i = 0; i < k; i++) check(row[i] == w.values[(n - 1) * k + i], "embed quant", n, k, dtype);
  free(in);
  free(w.values);
  free(w.packed);
  free(row);
  free(dst);
  free(bias);
  free(x);
}

static void test_linear(msgl_pool *pool, int m, int n, int k, int dtype) {
  float *x = floats(m * k), *w = floats(n * k), *bias = floats(n), *dst = nans(m * n);
  void *packed = pack(w, n, k, dtype);
  msgl_op op = {.kind = MSGL_LINEAR};
  op.t[0] = f32(dst, m, n);
  op.t[1] = f32(x, m, k);
  op.t[2] = view(packed, n, k, k, dtype);
  op.t[3] = f32(bias, 1, n);
  check(run(pool, &op, 1) == MSGL_OK, "linear code", m, n, k);
  for (int r = 0; r < m; r++) {
    for (int c = 0; c < n; c++) {
      double sum = 0;
      for (int i = 0; i < k; i++) sum += (double)meeting(x[r * k + i], dtype) * rounded(w[c * k + i], dtype);
      check(near(dst[r * n + c], sum + bias[c], 2e-5), "linear", m, n, k);
    }
  }
  // EMBED reads the same layout.
  int32_t id = n - 1;
  float *row = nans(k);
  op = (msgl_op){.kind = MSGL_EMBED};
  op.t[0] = f32(row, 1, k);
  op.t[1] = view(packed, n, k, k, dtype);
  op.t[2] = i32(&id, 1);
  check(run(pool, &op, 1) == MSGL_OK, "embed code", m, n, k);
  for (int i = 0; i < k; i++) check(row[i] == rounded(w[(n - 1) * k + i], dtype), "embed", n, k, i);
  free(row);
  free(packed);
  free(dst);
  free(bias);
  free(w);
  free(x);
}

static void test_rows(msgl_pool *pool, int m, int h) {
  float *x = floats(m * 2 * h), *w = floats(h), *dst = nans(m * h), *gelu = nans(m * h), *normed = nans(m * h);
  msgl_op ops[3] = {{.kind = MSGL_ACT_MUL}, {.kind = MSGL_RMS_NORM, .f = {1e-5f}}, {.kind = MSGL_ACT_MUL, .i = {MSGL_GELU_TANH}}};
  ops[0].t[0] = f32(dst, m, h);
  ops[0].t[1] = f32(x, m, 2 * h);
  ops[1].t[0] = f32(normed, m, h);
  ops[1].t[1] = view(x, m, h, 2 * h, MSGL_F32);
  ops[1].t[2] = f32(w, 1, h);
  ops[2].t[0] = f32(gelu, m, h);
  ops[2].t[1] = ops[0].t[1];
  check(run(pool, ops, 3) == MSGL_OK, "rows code", m, h, 0);
  for (int r = 0; r < m; r++) {
    double sum = 0;
    for (int i = 0; i < h; i++) sum += (double)x[r * 2 * h + i] * x[r * 2 * h + i];
    double scale = 1 / sqrt(sum / h + 1e-5);
    for (int i = 0; i < h; i++) {
      double gate = x[r * 2 * h + i], up = x[r * 2 * h + h + i];
      check(near(dst[r * h + i], gate / (1 + exp(-gate)) * up, 1e-6), "silu", m, h, i);
      double u = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate);
      check(near(gelu[r * h + i], gate / 2 * (1 + tanh(u)) * up, 1e-6), "gelu", m, h, i);
      check(near(normed[r * h + i], gate * scale * w[i], 2e-6), "norm", m, h, i);
    }
  }
  free(normed);
  free(gelu);
  free(dst);
  free(w);
  free(x);
}

static float cached(const float *head, int d, int i, int dtype) {
  return dtype == MSGL_I8 ? rounded_i8(head, d, i) : rounded(head[i], dtype);
}

// One request of `len` positions in one batch, then its last row alone.
static void test_attention(msgl_pool *pool, int q, int kv, int d, int page, int len, int window, int dtype) {
  int pages = (len + page - 1) / page, width = (q + 2 * kv) * d, row = kv * (dtype == MSGL_I8 ? d + 4 : d);
  int elem = (int)msgl_elem_size(dtype);
  float *qkv = floats(len * width), *given = malloc((size_t)(len * width) * 4), *table = floats(len * d);
  float *dst = nans(len * q * d), *one = nans(q * d);
  char *k = malloc((size_t)(pages * page * row * elem)), *v = malloc((size_t)(pages * page * row * elem));
  memset(k, 0xff, (size_t)(pages * page * row * elem));
  memset(v, 0xff, (size_t)(pages * page * row * elem));
  int32_t *positions = malloc((size_t)len * 4), *slots = malloc((size_t)len * 4), *list = malloc((size_t)pages * 4);
  int32_t cu[2] = {0, len}, lens[1] = {len};
  memcpy(given, qkv, (size_t)(len * width) * 4);
  for (int i = 0; i < pages; i++) list[i] = pages - 1 - i;
  for (int i = 0; i < len; i++) {
    positions[i] = i;
    slots[i] = list[i / page] * page + i % page;
  }
  float scale = 1 / sqrtf((float)d);
  msgl_op ops[2] = {{.kind = MSGL_ROPE_STORE, .f = {1e-6f}, .i = {q, kv, d, page}},
                    {.kind = MSGL_ATTENTION, .f = {scale}, .i = {q, kv, d, page, window}}};
  msgl_tensor kc = view(k, pages * page, row, row, dtype), vc = view(v, pages * page, row, row, dtype);
  memcpy(ops[0].t, (msgl_tensor[6]){f32(qkv, len, width), i32(positions, len), i32(slots, len), f32(table, len, d), kc, vc},
         6 * sizeof(msgl_tensor));
  memcpy(ops[1].t, (msgl_tensor[7]){f32(dst, len, q * d), view(qkv, len, q * d, width, MSGL_F32), kc, vc,
                                    view(list, 1, pages, pages, MSGL_I32), i32(cu, 2), i32(lens, 1)},
         7 * sizeof(msgl_tensor));
  check(run(pool, ops, 2) == MSGL_OK, "attention code", q, d, len);
  // Every product and sum of the rotation is rounded: no fused multiply-add.
  for (int i = 0; i < len * width; i++) {
    int r = i / width, col = i % width, e = col % d, head = col - e, half = d / 2;
    if (col >= (q + kv) * d) continue;
    const float *in = given + r * width + head, *cs = table + r * d;
    volatile float a = e < half ? in[e] * cs[e] : in[e] * cs[e - half];
    volatile float b = e < half ? in[e + half] * cs[e + half] : in[e - half] * cs[e];
    check(qkv[i] == (e < half ? a - b : a + b), "rope", r, col, d);
  }
  double *p = malloc((size_t)len * sizeof *p);
  for (int r = 0; r < len; r += 1 + len / 37) {
    for (int h = 0; h < q; h++) {
      const float *qh = qkv + r * width + h * d;
      int kh = (q + h / (q / kv)) * d, vh = (q + kv + h / (q / kv)) * d, first = window > 0 && r + 1 > window ? r + 1 - window : 0;
      double most = -1e30, total = 0;
      for (int j = first; j <= r; j++) {
        p[j] = 0;
        for (int i = 0; i < d; i++) p[j] += (double)qh[i] * cached(qkv + j * width + kh, d, i, dtype);
        p[j] *= scale;
        most = fmax(most, p[j]);
      }
      for (int j = first; j <= r; j++) total += p[j] = exp(p[j] - most);
      for (int i = 0; i < d; i++) {
        double sum = 0;
        for (int j = first; j <= r; j++) sum += p[j] * cached(qkv + j * width + vh, d, i, dtype);
        check(near(dst[(r * q + h) * d + i], sum / total, 1e-5), "attention", q, d, len);
      }
    }
  }
  free(p);
  ops[1].t[0] = f32(one, 1, q * d);
  ops[1].t[1] = view(qkv + (len - 1) * width, 1, q * d, width, MSGL_F32);
  cu[1] = 1;
  check(run(pool, ops + 1, 1) == MSGL_OK, "decode code", q, d, len);
  check(memcmp(one, dst + (len - 1) * q * d, (size_t)(q * d) * 4) == 0, "decode equals prefill", q, d, len);
  void *all[] = {qkv, given, table, dst, one, k, v, positions, slots, list};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

// vexp through silu: x / (1 + exp(-x)) at points all over its range.
static void test_exp(msgl_pool *pool) {
  enum { N = 40000 };
  float *x = malloc(2 * N * sizeof *x), *dst = nans(N);
  for (int i = 0; i < N; i++) {
    x[i] = -110.0f + 0.0055f * (float)i;
    x[N + i] = 1;
  }
  msgl_op op = {.kind = MSGL_ACT_MUL};
  op.t[0] = f32(dst, 1, N);
  op.t[1] = f32(x, 1, 2 * N);
  check(run(pool, &op, 1) == MSGL_OK, "exp code", 0, 0, 0);
  for (int i = 0; i < N; i++) {
    double want = x[i] / (1 + exp(-(double)x[i]));
    // From -88.7 down, exp(-x) is infinite in float32 and the result is -0.
    if (x[i] < -88.7f) want = fabs(dst[i]) < 1e-36 ? dst[i] : want;
    check(fabs(dst[i] - want) <= 4e-7 * fabs(want), "exp", i, 0, 0);
  }
  free(dst);
  free(x);
}

// MASK leaves every third token.
static void test_mask(msgl_pool *pool, int rows, int vocab) {
  float *logits = floats(rows * vocab);
  int words = (vocab + 31) / 32;
  int32_t *bits = calloc((size_t)(rows * words), 4), *which = calloc((size_t)rows, 4);
  for (int r = 0; r < rows; r++) {
    which[r] = rows - 1 - r;
    for (int id = 0; id < vocab; id += 3) bits[r * words + id / 32] |= (int32_t)(1u << (id % 32));
  }
  msgl_op op = {.kind = MSGL_MASK, .i = {vocab}};
  op.t[0] = f32(logits, rows, vocab);
  op.t[1] = i32(which, rows);
  op.t[2] = view(bits, rows, words, words, MSGL_I32);
  check(run(pool, &op, 1) == MSGL_OK, "mask code", rows, vocab, 0);
  for (int i = 0; i < rows * vocab; i++) check((isinf(logits[i]) != 0) == (i % vocab % 3 != 0), "mask", i / vocab, i % vocab, logits[i]);
  which[0] = rows;
  check(run(pool, &op, 1) == MSGL_ERR_INDEX, "mask row beyond the logits", rows, vocab, 0);
  free(which);
  free(bits);
  free(logits);
}

// ADJUST forbids all tokens but one, then LOGPROBS finds that one certain.
static void test_logits(msgl_pool *pool, int rows, int vocab) {
  float *logits = floats(rows * vocab), forbidden = -INFINITY;
  int32_t bits, *data = calloc((size_t)(2 * vocab), 4), *dst = calloc((size_t)rows * 3, 4), last[1] = {0};
  msgl_adjustment *rules = calloc((size_t)rows, sizeof *rules);
  msgl_scoring *args = calloc((size_t)rows, sizeof *args);
  memcpy(&bits, &forbidden, 4);
  data[0] = -1;  // the token on its way
  for (int i = 1; i < vocab; i++) {
    data[2 * i - 1] = i;
    data[2 * i] = bits;
  }
  for (int r = 0; r < rows; r++) {
    rules[r] = (msgl_adjustment){.row = r, .presence = 1, .repetition = 2, .outputs = 1, .biases = vocab - 1};
    args[r] = (msgl_scoring){.row = r, .token = 0, .top = 1, .temperature = 0.5f};
  }
  msgl_op ops[2] = {{.kind = MSGL_ADJUST, .i = {vocab}}, {.kind = MSGL_LOGPROBS, .i = {vocab}}};
  ops[0].t[0] = ops[1].t[1] = f32(logits, rows, vocab);
  ops[0].t[1] = view(rules, rows, 8, 8, MSGL_I32);
  ops[0].t[2] = i32(data, 2 * vocab - 1);
  ops[0].t[3] = i32(last, 1);
  ops[1].t[0] = view(dst, rows, 3, 3, MSGL_I32);
  ops[1].t[2] = view(args, rows, 4, 4, MSGL_I32);
  check(run(pool, ops, 2) == MSGL_OK, "logits code", rows, vocab, 0);
  for (int r = 0; r < rows; r++) {
    check(dst[3 * r] == 0 && dst[3 * r + 1] == 0 && dst[3 * r + 2] == 0, "certain token", r, vocab, dst[3 * r]);
  }
  free(args);
  free(rules);
  free(dst);
  free(data);
  free(logits);
}

static void test_sample(msgl_pool *pool, int rows, int vocab) {
  float *logits = floats(rows * vocab);
  int32_t *next = calloc((size_t)rows, 4), last[3] = {0};
  msgl_sampling *args = calloc((size_t)rows, sizeof *args);
  for (int r = 0; r < rows; r++) {
    args[r] = (msgl_sampling){.temperature = r % 4 ? 0.1f * (float)(r % 4) : 0, .top_p = r % 3 ? 1 : 0.7f,
                              .min_p = r % 5 ? 0 : 0.1f, .top_k = r % 2 ? 5 : 0, .position = (uint32_t)r, .slot = r < 3 ? r : -1};
    if (r % 7 == 6) logits[r * vocab] = NAN;
  }
  msgl_op op = {.kind = MSGL_SAMPLE, .i = {vocab}};
  op.t[0] = i32(next, rows);
  op.t[1] = f32(logits, rows, vocab);
  op.t[2] = view(args, rows, 8, 8, MSGL_I32);
  op.t[3] = i32(last, 3);
  check(run(pool, &op, 1) == MSGL_OK, "sample code", rows, vocab, 0);
  for (int r = 0; r < rows; r++) {
    check(next[r] >= 0 && next[r] < vocab, "sample range", r, vocab, next[r]);
    int above = 0;
    for (int i = 0; i < vocab; i++) above += logits[r * vocab + i] > logits[r * vocab + next[r]];
    if (args[r].temperature == 0) check(above == 0, "greedy", r, vocab, next[r]);
    if (args[r].top_k > 0) check(above < args[r].top_k, "top-k", r, vocab, above);
    if (args[r].slot >= 0) check(last[args[r].slot] == next[r], "slot", r, vocab, next[r]);
  }
  free(args);
  free(next);
  free(logits);
}

// Packs e experts of n rows, each from a panel of its own.
static void *pack_experts(const float *w, int e, int n, int k, int dtype) {
  int panels = (n + MSGL_PANEL - 1) / MSGL_PANEL;
  size_t one = msgl_packed_bytes(n, k, dtype);
  char *p = aligned_alloc(64, (one * (size_t)e + 63) / 64 * 64);
  for (int i = 0; i < e * panels; i++) {
    int row = i % panels * MSGL_PANEL, m = n - row < MSGL_PANEL ? n - row : MSGL_PANEL;
    check(msgl_pack_panel(p, w + (size_t)(i / panels * n + row) * (size_t)k, MSGL_F32, m, k, dtype, i) == MSGL_OK, "pack", n, k, i);
  }
  return p;
}

// What one expert gives for one row.
static void expert(double *out, const float *x, const float *gate_up, const float *down, int h, int f, int dtype) {
  for (int c = 0; c < h; c++) out[c] = 0;
  for (int i = 0; i < f; i++) {
    double gate = 0, up = 0;
    for (int c = 0; c < h; c++) {
      gate += (double)meeting(x[c], dtype) * rounded(gate_up[i * h + c], dtype);
      up += (double)meeting(x[c], dtype) * rounded(gate_up[(f + i) * h + c], dtype);
    }
    double exact = gate / (1 + exp(-gate)) * up, act = dtype == MSGL_BF16 ? meeting((float)exact, dtype) : exact;
    for (int c = 0; c < h; c++) out[c] += act * rounded(down[c * f + i], dtype);
  }
}

static void test_moe(msgl_pool *pool, int m, int e, int k, int h, int f, int dtype) {
  float *x = floats(m * h), *logits = floats(m * e), *gate_up = floats(e * 2 * f * h), *down = floats(e * h * f), *dst = nans(m * h);
  void *packed_gate_up = pack_experts(gate_up, e, 2 * f, h, dtype), *packed_down = pack_experts(down, e, h, f, dtype);
  msgl_op op = {.kind = MSGL_MOE, .i = {k, 1}};
  op.t[0] = f32(dst, m, h);
  op.t[1] = f32(x, m, h);
  op.t[2] = f32(logits, m, e);
  op.t[3] = view(packed_gate_up, e * ((2 * f + 15) / 16 * 16), h, h, dtype);
  op.t[4] = view(packed_down, e * ((h + 15) / 16 * 16), f, f, dtype);
  check(run(pool, &op, 1) == MSGL_OK, "moe code", m, h, f);
  double *one = malloc((size_t)h * sizeof *one), *sum = malloc((size_t)h * sizeof *sum);
  for (int r = 0; r < m; r += 1 + m / 50) {
    const float *l = logits + r * e;
    double total = 0;
    for (int c = 0; c < h; c++) sum[c] = 0;
    for (int i = 0; i < e; i++) {
      int above = 0;
      for (int j = 0; j < e; j++) above += l[j] > l[i] || (l[j] == l[i] && j < i);
      if (above >= k) continue;
      total += exp(l[i]);
      expert(one, x + r * h, gate_up + i * 2 * f * h, down + i * h * f, h, f, dtype);
      for (int c = 0; c < h; c++) sum[c] += exp(l[i]) * one[c];
    }
    // Rounded to bf16, an activation may fall the other way than here.
    double bound = dtype == MSGL_BF16 ? 2e-3 : 2e-5;
    for (int c = 0; c < h; c++) check(near(dst[r * h + c], sum[c] / total, bound), "moe", m, h, f);
  }
  op.i[0] = e + 1;
  check(run(pool, &op, 1) == MSGL_ERR_SHAPE, "moe, too many experts", m, h, f);
  void *all[] = {x, logits, gate_up, down, dst, packed_gate_up, packed_down, one, sum};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
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
  if (code == MSGL_ERR_ISA) return;
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
  test_quant(pool, 2, 300, 1088, MSGL_Q8);
  test_quant(pool, 1, 300, 1088, MSGL_Q4);
  test_pack_bf16(33, 65);
  test_pack_bf16(16, 2);
  test_attention(pool, 4, 2, 16, 16, 40, 0, MSGL_BF16);
  test_attention(pool, 3, 1, 24, 3, 70, 0, MSGL_F32);
  test_attention(pool, 2, 2, 64, 1, 33, 9, MSGL_BF16);
  test_attention(pool, 4, 1, 32, 64, 290, 0, MSGL_BF16);
  test_attention(pool, 2, 1, 8, 16, 530, 260, MSGL_F32);
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
  static const char *isas[] = {"portable", "avx2", "avx512", "avx512_bf16"};
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
