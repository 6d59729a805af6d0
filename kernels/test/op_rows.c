// op_rows.c: operations of rows, and what is done with logits.
#include "op_test.h"

void test_rows(msgl_pool *pool, int m, int h) {
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

// vexp through silu: x / (1 + exp(-x)) at points all over its range.
void test_exp(msgl_pool *pool) {
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
void test_mask(msgl_pool *pool, int rows, int vocab) {
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
void test_logits(msgl_pool *pool, int rows, int vocab) {
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

void test_sample(msgl_pool *pool, int rows, int vocab) {
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
