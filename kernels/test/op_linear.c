// op_linear.c: LINEAR, the packing of weights and EMBED.
#include "op_test.h"

// All roundings to float16 at and beside the halves, and of what is between.
void test_to_f16(void) {
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

// Rows that are bf16 already are packed as those that are rounded to it.
void test_pack_bf16(int n, int k) {
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

void test_quant(msgl_pool *pool, int m, int n, int k, int dtype) {
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

void test_linear(msgl_pool *pool, int m, int n, int k, int dtype) {
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
  // A row alone has the same bits.
  float *row = nans(k > n ? k : n);
  op.t[0] = f32(row, 1, n);
  op.t[1] = f32(x + (m - 1) * k, 1, k);
  check(run(pool, &op, 1) == MSGL_OK && memcmp(row, dst + (m - 1) * n, (size_t)n * sizeof *row) == 0, "linear row", m, n, k);
  // EMBED reads the same layout.
  int32_t id = n - 1;
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

// LINEAR and SAMPLE, and behind them an operation or none.
static void run_head(msgl_pool *pool, const msgl_op *head, int others) {
  float zeros[4] = {0};
  msgl_op ops[3] = {head[0], head[1], {.kind = MSGL_RMS_NORM, .f = {1}}};
  for (int i = 0; i < 3; i++) ops[2].t[i] = f32(zeros, 1, 4);
  check(run(pool, ops, 2 + others) == MSGL_OK, "head code", others, 0, 0);
}

// Where rows want their largest logit alone, LINEAR and SAMPLE as the last operations give the
// tokens that they give among others, and no logits.
void test_greedy(msgl_pool *pool, int m, int n, int k, int dtype) {
  int vocab = n > 20 ? n - 3 : n;
  float *x = floats(m * k), *w = floats(n * k), *dst = nans(m * n);
  for (int c = 0; c < n; c++) memcpy(w + c * k, w + c / 2 * 2 * k, (size_t)k * sizeof *w);  // of each two equals the first
  for (int r = 3; r < m; r += 4) memset(x + r * k, 0, (size_t)k * sizeof *x);              // all equal
  if (m > 4) x[4 * k] = NAN;
  int quant = msgl_quant_of(dtype).bits > 0;
  quantized codes = {NULL, NULL};
  if (quant) codes = quantize(n, k, dtype);
  void *weights = quant ? codes.packed : pack(w, n, k, dtype);
  int32_t *next = calloc((size_t)m, 4), *want = calloc((size_t)m, 4), last[2] = {-1, -1};
  msgl_sampling *args = calloc((size_t)m, sizeof *args);
  for (int r = 0; r < m; r++) args[r] = (msgl_sampling){.top_p = 1, .slot = r == m - 1 ? 1 : -1};
  msgl_op ops[2] = {{.kind = MSGL_LINEAR}, {.kind = MSGL_SAMPLE, .i = {vocab}}};
  ops[0].t[0] = ops[1].t[1] = f32(dst, m, n);
  ops[0].t[1] = f32(x, m, k);
  ops[0].t[2] = view(weights, n, k, k, dtype);
  ops[1].t[0] = i32(next, m);
  ops[1].t[2] = view(args, m, 8, 8, MSGL_I32);
  ops[1].t[3] = i32(last, 2);
  const char *isa;
  msgl_isa(&isa);
  run_head(pool, ops, 0);
  int tiles = strcmp(isa, "amx") == 0 && dtype == MSGL_BF16;
  for (int i = 0; i < m * n && !tiles; i++) check(isnan(dst[i]), "unwritten logits", m, n, i);
  for (int r = 0; r < m; r++) check(next[r] >= 0 && next[r] < vocab && (quant || next[r] % 2 == 0), "greedy id", r, n, next[r]);
  check(last[0] == -1 && last[1] == next[m - 1], "greedy slot", m, n, last[1]);
  ops[1].t[0] = i32(want, m);
  run_head(pool, ops, 1);
  check(memcmp(next, want, (size_t)m * 4) == 0, "greedy", m, n, dtype);
  for (int r = 3; r < m; r += 4) check(quant || want[r] == 0, "greedy equals", r, n, want[r]);
  // A row that is drawn wants all logits.
  args[0].temperature = 1;
  for (int i = 0; i < m * n; i++) dst[i] = NAN;
  run_head(pool, ops, 0);
  check(!isnan(dst[0]) && (m == 1 || memcmp(next + 1, want + 1, (size_t)(m - 1) * 4) == 0), "greedy and drawn", m, n, dtype);
  free(args);
  free(want);
  free(next);
  free(codes.values);
  free(weights);
  free(dst);
  free(w);
  free(x);
}
