// elementwise_impl.h: the operations on rows: embed, norm, rope, gate, gather.

// Decodes output n of a panel of a quantized weight, h values.
ALWAYS void unpack_quant(float *out, const char *panel, int dtype, int n, int h) {
  const msgl_quant q = msgl_quant_of(dtype);
  const msgl_step step = msgl_step_of(dtype);
  for (int i = 0; i < h; i++) {
    const char *at = panel + (size_t)(i / step.cols) * (size_t)step.bytes;
    int c = i % step.cols, per_line = 32 / q.bits;
    uint8_t code = ((const uint8_t *)at)[step.head + c / per_line * LINE + n * 4 + c % 4];
    if (q.bits == 4) code = code >> (c / 4 % 2 * 4) & 15;
    out[i] = (float)(code - q.zero) * group_scale_one(&q, at, c / q.group, 0, n);
    if (q.minimum) out[i] += group_scale_one(&q, at, c / q.group, 1, n);
  }
}

// Copies row `id` of a packed table, h values.
ALWAYS void unpack_row(float *out, const msgl_tensor *table, int id, int h) {
  const char *panels = (const char *)(uintptr_t)table->addr;
  const char *panel = panels + (size_t)(id / MSGL_PANEL) * msgl_panel_bytes(msgl_steps(h, table->dtype), table->dtype);
  int col = id % MSGL_PANEL;
  if (msgl_quant_of(table->dtype).bits) {
    unpack_quant(out, panel, table->dtype, col, h);
    return;
  }
  for (int i = 0; i < h; i++) {
    int at = table->dtype == MSGL_BF16 ? (i / 2 * MSGL_PANEL + col) * 2 + i % 2 : i * MSGL_PANEL + col;
    out[i] = load_one(table->dtype, panel, at);
  }
}

// table: packed [V, H]; dst: [T, H]
static void embed(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_tensor *dst = &job->op->t[0], *table = &job->op->t[1];
  const int32_t *ids = msgl_i32(&job->op->t[2]), *last = msgl_i32(&job->op->t[3]);
  float scale = job->op->f[0];
  for (int64_t r = from; r < to; r++) {
    float *out = msgl_row(dst, r);
    unpack_row(out, table, ids[r] < 0 ? last[-(ids[r] + 1)] : ids[r], dst->cols);
    for (int i = 0; i < dst->cols && scale != 0; i++) out[i] *= scale;
  }
}

// dst = x / sqrt(mean(x^2) + eps) * w, n values; dst may be x
ALWAYS void norm_row(float *dst, const float *x, const float *w, int n, float eps) {
  float scale = 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
  int i = 0;
  for (; i + VW <= n; i += VW) vst(dst + i, vld(x + i) * vset1(scale) * vld(w + i));
  for (; i < n; i++) dst[i] = x[i] * scale * w[i];
}

static void rms_norm(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_tensor *dst = &job->op->t[0], *x = &job->op->t[1], *residual = &job->op->t[3];
  const float *w = msgl_f32(&job->op->t[2]);
  int h = x->cols;
  for (int64_t r = from; r < to; r++) {
    const float *in = msgl_row(x, r);
    if (residual->addr) {
      float *res = msgl_row(residual, r);
      int i = 0;
      for (; i + VW <= h; i += VW) vst(res + i, vld(res + i) + vld(in + i));
      for (; i < h; i++) res[i] += in[i];
      in = res;
    }
    norm_row(msgl_row(dst, r), in, w, h, job->op->f[0]);
  }
}

// Rotates one head by the angles whose cosines and sines are given, in the
// half-split form: element i with element i + d/2.
ALWAYS void rotate(float *x, const float *cos_sin, int d) {
  int half = d / 2, i = 0;
  const float *cosine = cos_sin, *sine = cos_sin + half;
  for (; i + VW <= half; i += VW) {
    vf a = vld(x + i), b = vld(x + half + i), c = vld(cosine + i), s = vld(sine + i);
    vst(x + i, a * c - b * s);
    vst(x + half + i, b * c + a * s);
  }
  for (; i < half; i++) {
    float a = x[i], b = x[half + i];
    x[i] = a * cosine[i] - b * sine[i];
    x[half + i] = b * cosine[i] + a * sine[i];
  }
}

// Rounds a head's d values to codes and returns their scale.
ALWAYS float store_i8(int8_t *codes, const float *x, int d) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  vf most = vset1(0);
  for (int i = 0; i < d; i += VW) {
    vf v = i + VW <= d ? vld(x + i) : vld_part(x + i, d - i);
    most = vmax(most, (vf)((vu)v & 0x7fffffffu));
  }
  float largest = vec_max(most), inverse = largest > 0 ? 127.0f / largest : 0;
  for (int i = 0; i < d; i += VW) {
    int n = i + VW <= d ? VW : d - i;
    vf v = n == VW ? vld(x + i) : vld_part(x + i, n);
    vb code = __builtin_convertvector((vi)(v * vset1(inverse) + vset1(magic)) - (vi)vset1(magic), vb);
    memcpy(codes + i, &code, (size_t)n);
  }
  return largest / 127.0f;
}

// Writes heads of d values into row `slot` of a cache.
ALWAYS void store_cache(const msgl_tensor *cache, int64_t slot, const float *x, int heads, int d) {
  char *to = (char *)(uintptr_t)cache->addr + (size_t)slot * (size_t)cache->stride * msgl_elem_size(cache->dtype);
  int n = heads * d, i = 0;
  switch (cache->dtype) {
    case MSGL_BF16:
      for (; i + VW <= n; i += VW) vst_bf16((uint16_t *)to + i, vld(x + i));
      for (; i < n; i++) ((uint16_t *)to)[i] = msgl_to_bf16(x[i]);
      return;
    case MSGL_F16:
      for (; i + VW <= n; i += VW) vst_f16((uint16_t *)to + i, vld(x + i));
      for (; i < n; i++) ((uint16_t *)to)[i] = msgl_to_f16(x[i]);
      return;
    case MSGL_I8:
      for (; i < heads; i++) {
        float scale = store_i8((int8_t *)to + (size_t)i * (size_t)d, x + (size_t)i * (size_t)d, d);
        memcpy(to + n + i * 4, &scale, 4);
      }
      return;
    default: memcpy(to, x, (size_t)n * sizeof(float));
  }
}

// qkv: [M, (Q + 2 KV) D]
static void rope_store(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_op *op = job->op;
  int q = op->i[0], kv = op->i[1], d = op->i[2];
  const int32_t *positions = msgl_i32(&op->t[1]), *slots = msgl_i32(&op->t[2]);
  const float *q_norm = msgl_f32(&op->t[6]), *k_norm = msgl_f32(&op->t[7]);
  for (int64_t r = from; r < to; r++) {
    float *row = msgl_row(&op->t[0], r);
    const float *cos_sin = msgl_row(&op->t[3], positions[r]);
    for (int h = 0; h < q + kv; h++) {
      float *head = row + (size_t)h * (size_t)d;
      const float *w = h < q ? q_norm : k_norm;
      if (w) norm_row(head, head, w, d, op->f[0]);
      rotate(head, cos_sin, d);
    }
    store_cache(&op->t[4], slots[r], row + (size_t)q * (size_t)d, kv, d);
    store_cache(&op->t[5], slots[r], row + (size_t)(q + kv) * (size_t)d, kv, d);
  }
}

ALWAYS vf silu(vf x) { return x / (vset1(1.0f) + vexp(-x)); }

// The tanh approximation of GELU: x/2 (1 + tanh(u)) = x / (1 + exp(-2u)),
// u = sqrt(2/pi) (x + 0.044715 x^3).
ALWAYS vf gelu_tanh(vf x) {
  vf u2 = x * vfma(x * x, vset1(0.0713548162726f), vset1(1.5957691216057f));
  return x / (vset1(1.0f) + vexp(-u2));
}

ALWAYS vf activate(vf x, int kind) { return kind == MSGL_GELU_TANH ? gelu_tanh(x) : silu(x); }

ALWAYS void act_mul_rows(const msgl_op *op, int64_t from, int64_t to, int kind) {
  const msgl_tensor *dst = &op->t[0], *x = &op->t[1];
  int f = dst->cols;
  for (int64_t r = from; r < to; r++) {
    const float *gate = msgl_row(x, r), *up = gate + f;
    float *out = msgl_row(dst, r);
    int i = 0;
    for (; i + VW <= f; i += VW) vst(out + i, activate(vld(gate + i), kind) * vld(up + i));
    if (i < f) vst_part(out + i, activate(vld_part(gate + i, f - i), kind) * vld_part(up + i, f - i), f - i);
  }
}

// dst: [M, F], x: [M, 2F]
static void act_mul(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  if (job->op->i[0] == MSGL_GELU_TANH) {
    act_mul_rows(job->op, from, to, MSGL_GELU_TANH);
  } else {
    act_mul_rows(job->op, from, to, MSGL_SILU);
  }
}

static void gather_rows(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_tensor *dst = &job->op->t[0], *x = &job->op->t[1];
  const int32_t *rows = msgl_i32(&job->op->t[2]);
  for (int64_t r = from; r < to; r++) {
    memcpy(msgl_row(dst, r), msgl_row(x, rows[r]), (size_t)dst->cols * sizeof(float));
  }
}
