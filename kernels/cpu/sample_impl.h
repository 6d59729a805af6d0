// sample_impl.h: draws a token per row of logits.
//
// Weights are exp((x - max) / T), so the largest is 1. The filters cut a list of
// ids that stays in order of id. A cut is found by radix selection on the bits of
// the logits, so nothing is sorted.

typedef struct {
  const float *x;   // logits, without NaN
  float *w;         // weights
  int32_t *ids;     // those that are left
  int32_t *pool;    // scratch of the same size
  double *buckets;  // [MSGL_RADIX_BUCKETS]
  int n;            // how many ids are left
} sampler;

// First word of Philox4x32-10 (Salmon et al., 2011) at counter (c0, 0, 0, 0).
static uint32_t philox(uint32_t k0, uint32_t k1, uint32_t c0) {
  uint32_t c1 = 0, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

// Replaces NaN by -inf and returns the largest of n logits.
static float clean_max(float *x, int n) {
  vf most[NV], sum[NV];
  int i = 0;
  UNROLL for (int v = 0; v < NV; v++) {
    most[v] = vset1(-INFINITY);
    sum[v] = vset1(0);
  }
  for (; i + LANES <= n; i += LANES) {
    UNROLL for (int v = 0; v < NV; v++) {
      vf a = vld(x + i + v * VW);
      most[v] = vmax(a, most[v]);
      sum[v] += a * vset1(0);  // a NaN or an infinity makes it NaN
    }
  }
  float max = -INFINITY, odd = 0;
  UNROLL for (int v = 0; v < NV; v++) {
    float lane[VW];
    max = fmaxf(max, vec_max(most[v]));
    vst(lane, sum[v]);
    for (int l = 0; l < VW; l++) odd += lane[l];
  }
  for (; i < n; i++) {
    max = x[i] > max ? x[i] : max;
    odd += x[i] * 0;
  }
  if (odd == 0) return max;
  for (i = 0; i < n; i++) x[i] = isnan(x[i]) ? -INFINITY : x[i];
  return max;
}

static int first_equal(const float *x, int n, float value) {
  for (int i = 0; i < n; i++) {
    if (x[i] == value) return i;
  }
  return 0;
}

static void fill_weights(const sampler *s, int n, float max, float temperature) {
  int i = 0;
  for (; i + VW <= n; i += VW) {
    vst(s->w + i, vexp((vld(s->x + i) - vset1(max)) / vset1(temperature)));
  }
  if (i < n) vst_part(s->w + i, vexp((vld_part(s->x + i, n - i) - vset1(max)) / vset1(temperature)), n - i);
  if (isinf(max)) {  // inf - inf is no difference: equals of the largest weigh 1
    for (i = 0; i < n; i++) s->w[i] = s->x[i] == max;
  }
}

// Bits that order as the logits do.
ALWAYS uint32_t order(float x) {
  uint32_t u;
  x += 0.0f;  // -0 equals 0
  memcpy(&u, &x, sizeof u);
  return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

ALWAYS double measure(const sampler *s, int32_t id, int by_weight) { return by_weight ? (double)s->w[id] : 1.0; }

// Keeps the smallest set of the largest logits whose measure (weight, or count)
// reaches target; among equals, the smaller ids.
static void keep_largest(sampler *s, double target, int by_weight) {
  static const int shifts[] = {21, 10, 0}, bits[] = {11, 11, 10};
  uint32_t cut = 0;
  double above = 0;  // measure of everything beyond the buckets under inspection
  int n = s->n;
  memcpy(s->pool, s->ids, (size_t)n * sizeof *s->ids);
  for (int level = 0; level < 3; level++) {
    uint32_t mask = (1u << bits[level]) - 1;
    int lowest = (int)mask, b = (int)mask;
    memset(s->buckets, 0, sizeof(double) * MSGL_RADIX_BUCKETS);
    for (int i = 0; i < n; i++) {
      int at = (int)(order(s->x[s->pool[i]]) >> shifts[level] & mask);
      s->buckets[at] += measure(s, s->pool[i], by_weight);
      if (at < lowest) lowest = at;
    }
    for (; b > lowest && (s->buckets[b] == 0 || above + s->buckets[b] < target); b--) above += s->buckets[b];
    cut |= (uint32_t)b << shifts[level];
    int left = 0;
    for (int i = 0; i < n; i++) {
      if ((int)(order(s->x[s->pool[i]]) >> shifts[level] & mask) == b) s->pool[left++] = s->pool[i];
    }
    n = left;
  }
  int kept = 0;
  for (int i = 0; i < s->n; i++) {
    uint32_t at = order(s->x[s->ids[i]]);
    if (at < cut) continue;
    if (at == cut) {
      if (above >= target && kept > 0) continue;
      above += measure(s, s->ids[i], by_weight);
    }
    s->ids[kept++] = s->ids[i];
  }
  s->n = kept;
}

static double total(const sampler *s) {
  double sum = 0;
  for (int i = 0; i < s->n; i++) sum += (double)s->w[s->ids[i]];
  return sum;
}

static void keep_heavy(sampler *s, float least) {
  int kept = 0;
  for (int i = 0; i < s->n; i++) {
    if (s->w[s->ids[i]] >= least) s->ids[kept++] = s->ids[i];
  }
  s->n = kept;
}

// Inverse transform in order of id; u in [0, 1).
static int draw(const sampler *s, double u) {
  double target = u * total(s), sum = 0;
  int last = s->n > 0 ? s->ids[0] : 0;
  for (int i = 0; i < s->n; i++) {
    double w = (double)s->w[s->ids[i]];
    if (w > 0) last = s->ids[i];
    sum += w;
    if (sum > target) break;
  }
  return last;
}

static int sample_row(float *x, int n, const msgl_sampling *a, char *own) {
  float max = clean_max(x, n);
  if (!(a->temperature > 0)) return first_equal(x, n, max);
  size_t list = ((size_t)n + 63) / 64 * 64;
  sampler s = {.x = x, .buckets = (double *)own, .n = n};
  s.w = (float *)(own + MSGL_RADIX_BUCKETS * sizeof(double));
  s.ids = (int32_t *)(s.w + list);
  s.pool = s.ids + list;
  fill_weights(&s, n, max, a->temperature);
  for (int i = 0; i < n; i++) s.ids[i] = i;
  if (a->top_k > 0 && a->top_k < n) keep_largest(&s, a->top_k, 0);
  if (a->top_p < 1) keep_largest(&s, (double)a->top_p * total(&s), 1);
  if (a->min_p > 0) keep_heavy(&s, a->min_p < 1 ? a->min_p : 1);
  return draw(&s, (double)philox(a->seed_lo, a->seed_hi, a->position) / 4294967296.0);
}

ALWAYS const msgl_sampling *sampling_of(const msgl_op *sample, int64_t row) {
  return (const msgl_sampling *)msgl_row(&sample->t[2], row);
}

// Notes the token that was drawn for a row.
ALWAYS void put_token(const msgl_op *sample, int64_t row, int32_t token) {
  int slot = sampling_of(sample, row)->slot;
  msgl_i32(&sample->t[0])[row] = token;
  if (slot >= 0) msgl_i32(&sample->t[3])[slot] = token;
}

// Items: rows.
static void sample(const msgl_job *job, int thread, int64_t from, int64_t to) {
  const msgl_op *op = job->op;
  char *own = job->own + (size_t)thread * job->own_bytes;
  for (int64_t r = from; r < to; r++) put_token(op, r, sample_row(msgl_row(&op->t[1], r), op->i[0], sampling_of(op, r), own));
}

// SAMPLE's part where LINEAR, before it, has left the best of each panel. Items: rows.
static void linear_best(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  int64_t panels = msgl_ceil_div(job->op->t[2].rows, MSGL_PANEL);
  for (int64_t r = from; r < to; r++) {
    const msgl_best *all = job->linear.best + r * panels, *best = all;
    for (int64_t p = 1; p < panels; p++) {
      if (all[p].logit > best->logit) best = &all[p];
    }
    put_token(job->op + 1, r, best->id);
  }
}
