// op_moe.c: MOE.
#include "op_test.h"

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

void test_moe(msgl_pool *pool, int m, int e, int k, int h, int f, int dtype) {
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
