// moe_impl.h: a mixture of experts.
//
// Each expert's rows are brought together and go through LINEAR's kernels, which
// give a row the same bits among any others. A row adds up its experts' outputs in
// ascending order of expert.

// The k largest logits, smaller ids first among equals; then ascending. NaNs lose.
static void largest(int32_t *ids, const float *logits, int n, int k) {
  int have = 0;
  for (int i = 0; i < n; i++) {
    if (have == k && !(logits[i] > logits[ids[k - 1]])) continue;
    int at = have < k ? have++ : k - 1;
    for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
    ids[at] = i;
  }
  for (int i = 1; i < k; i++) {
    int32_t id = ids[i];
    int at = i;
    for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
    ids[at] = id;
  }
}

// Sum of exp(x[i] - most): element i belongs to lane i % 16.
static float sum_exp(const float *x, int n, float most) {
  float lane[LANES], tail[LANES];
  vf acc[NV];
  UNROLL for (int v = 0; v < NV; v++) acc[v] = vset1(0);
  int i = 0;
  for (; i + LANES <= n; i += LANES) {
    UNROLL for (int v = 0; v < NV; v++) acc[v] += vexp(vld(x + i + v * VW) - vset1(most));
  }
  for (int j = 0; j < LANES; j++) tail[j] = i + j < n ? x[i + j] : -INFINITY;
  UNROLL for (int v = 0; v < NV; v++) vst(lane + v * VW, acc[v] + vexp(vld(tail + v * VW) - vset1(most)));
  return lanes_sum(lane);
}

// Rows of the plan. logits: [M, E]
static void moe_route(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_moe_plan *p = &job->moe;
  const msgl_tensor *logits = &job->op->t[2];
  int k = job->op->i[0], scaled = job->op->i[1], n = logits->cols;
  for (int64_t r = from; r < to; r++) {
    const float *row = msgl_row(logits, p->row + r);
    int32_t *ids = p->ids + r * k;
    float *weights = p->weights + r * k;
    float most = row[0], chosen = 0;
    for (int i = 1; i < n; i++) most = row[i] > most ? row[i] : most;
    float all = sum_exp(row, n, most);
    largest(ids, row, n, k);
    for (int i = 0; i < k; i++) {
      weights[i] = exp_one(row[ids[i]] - most) / all;
      chosen += weights[i];
    }
    for (int i = 0; i < k && scaled; i++) weights[i] /= chosen;
  }
}

// Packs the row of a slot, `cols` values, for LINEAR: its block of rows begins in `to`.
ALWAYS void pack_slot(const msgl_moe_plan *p, char *to, const float *row, int cols, int64_t slot, int down, int dtype) {
  const msgl_moe_group *g = &p->groups[p->slot_groups[slot]];
  const msgl_linear_plan *plan = down ? &g->down : &g->gate_up;
  int64_t within = slot - g->first, block = within / plan->block_rows * plan->block_rows;
  int rows = (int)msgl_min(plan->block_rows, g->rows - block);
  to += msgl_packed_rows(plan, g->first + block);
  pack_row(to, row, cols, (int)(within - block), rows, 0, plan->steps, dtype);
}

// Items: slots. x: [M, H]
static void moe_pack(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_moe_plan *p = &job->moe;
  const msgl_tensor *x = &job->op->t[1];
  for (int64_t slot = from; slot < to; slot++) {
    pack_slot(p, p->x, msgl_row(x, p->slot_rows[slot]), x->cols, slot, 0, job->op->t[3].dtype);
  }
}

// Items [from, to) of all groups' panels, as LINEAR's items of each group.
ALWAYS void moe_linear(const msgl_job *job, int thread, int64_t from, int64_t to, int down) {
  const msgl_moe_plan *p = &job->moe;
  const msgl_op *op = job->op;
  const msgl_tensor *w = &op->t[down ? 4 : 3];
  int outputs = down ? op->t[1].cols : 2 * op->t[4].cols;
  int64_t panels = msgl_ceil_div(outputs, MSGL_PANEL);
  for (int i = 0; i < p->ngroups && from < to; i++) {
    const msgl_moe_group *g = &p->groups[i];
    const msgl_linear_plan *plan = down ? &g->down : &g->gate_up;
    int64_t first = down ? g->down_item : g->gate_up_item;
    int64_t end = first + msgl_ceil_div(plan->blocks, plan->group) * panels;
    if (from >= end) continue;
    float *dst = (down ? (float *)p->x : p->gate_up) + (int64_t)g->first * outputs;
    char *x = (down ? p->act : p->x) + msgl_packed_rows(plan, g->first);
    size_t weight = (size_t)g->expert * (size_t)panels * msgl_panel_bytes(plan->steps, w->dtype);
    msgl_op one = {.kind = MSGL_LINEAR};
    one.t[0] = (msgl_tensor){(uint64_t)(uintptr_t)dst, g->rows, outputs, outputs, MSGL_F32};
    one.t[2] = (msgl_tensor){w->addr + weight, outputs, w->cols, w->cols, w->dtype};
    msgl_job sub = {.op = &one, .linear = *plan, .shared = x, .own = job->own, .own_bytes = job->own_bytes};
    int64_t part = msgl_min(to, end);
    if (plan->blocks == 1) {
      linear_stream(&sub, thread, from - first, part - first);
    } else {
      linear_blocked(&sub, thread, from - first, part - first);
    }
    from = part;
  }
}

static void moe_gate_up(const msgl_job *job, int thread, int64_t from, int64_t to) { moe_linear(job, thread, from, to, 0); }
static void moe_down(const msgl_job *job, int thread, int64_t from, int64_t to) { moe_linear(job, thread, from, to, 1); }

// Items: slots. gate_up: [slots, 2F]; what comes of a row takes the place of its gate
static void moe_act(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_moe_plan *p = &job->moe;
  const msgl_tensor *down = &job->op->t[4];
  int f = down->cols;
  for (int64_t slot = from; slot < to; slot++) {
    float *gate = p->gate_up + slot * 2 * f, *up = gate + f;
    for (int c = 0; c < f; c += VW) {
      int n = (int)msgl_min(VW, f - c);
      if (n == VW) {
        vst(gate + c, silu(vld(gate + c)) * vld(up + c));
      } else {
        vst_part(gate + c, silu(vld_part(gate + c, n)) * vld_part(up + c, n), n);
      }
    }
    pack_slot(p, p->act, gate, f, slot, 1, down->dtype);
  }
}

// Items: rows of the plan. dst: [M, H]
static void moe_combine(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_moe_plan *p = &job->moe;
  const msgl_tensor *dst = &job->op->t[0];
  int k = job->op->i[0], h = dst->cols;
  for (int64_t r = from; r < to; r++) {
    float *out = msgl_row(dst, p->row + r);
    const int32_t *slots = p->slots + r * k;
    const float *weights = p->weights + r * k;
    for (int c = 0; c < h; c += VW) {
      int n = (int)msgl_min(VW, h - c);
      vf acc = vset1(0);
      for (int i = 0; i < k; i++) {
        const float *in = (const float *)p->x + (int64_t)slots[i] * h + c;
        acc = vfma(n == VW ? vld(in) : vld_part(in, n), vset1(weights[i]), acc);
      }
      if (n == VW) {
        vst(out + c, acc);
      } else {
        vst_part(out + c, acc, n);
      }
    }
  }
}
