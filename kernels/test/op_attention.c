// op_attention.c: ROPE_STORE and ATTENTION.
#include "op_test.h"

// What an i8 cache keeps of element i of a head.
static float rounded_i8(const float *head, int d, int i) {
  float most = 0;
  for (int j = 0; j < d; j++) most = fmaxf(most, fabsf(head[j]));
  return most > 0 ? nearbyintf(head[i] * (127.0f / most)) * (most / 127.0f) : 0;
}

static float cached(const float *head, int d, int i, int dtype) {
  return dtype == MSGL_I8 ? rounded_i8(head, d, i) : rounded(head[i], dtype);
}

// One request of `len` positions in one batch, then its last row alone.
void test_attention(msgl_pool *pool, int q, int kv, int d, int page, int len, int window, int dtype) {
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
