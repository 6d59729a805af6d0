// plan_moe.c: MOE as phases.
//
// Routing and the grouping of rows by expert are planning: they decide how much
// work there is. Then each expert is a LINEAR over its rows, twice.
#include <string.h>

#include "plan.h"

enum {
  MOE_BYTES = 64 << 20,  // of scratch for activations; more rows than that allows are computed in several passes
  SLOTS_PER_CLAIM = 12,
};

// The operation's sizes: rows, hidden, intermediate, experts, experts of a row;
// bytes of a row of x as it is packed for either weight.
typedef struct {
  int64_t m, h, f, e, k;
  int64_t packed_h, packed_f;
} sizes;

static int64_t whole_panels(int64_t rows) { return msgl_ceil_div(rows, MSGL_PANEL) * MSGL_PANEL; }

static int check_moe(sizes *s, const msgl_kernels *kernels, const msgl_op *op) {
  const msgl_tensor *dst = &op->t[0], *x = &op->t[1], *logits = &op->t[2], *gate_up = &op->t[3], *down = &op->t[4];
  *s = (sizes){x->rows, x->cols, down->cols, logits->cols, op->i[0], 0, 0};
  int code = both(packed(gate_up, x->cols), packed(down, down->cols));
  code = both(code, both(columns(x, MSGL_F32, gate_up->cols), view(dst, MSGL_F32, s->m, s->h)));
  code = both(code, view(logits, MSGL_F32, s->m, s->e));
  if (code != MSGL_OK) return code;
  s->packed_h = msgl_packed_row(kernels, s->h, gate_up->dtype);
  s->packed_f = msgl_packed_row(kernels, s->f, down->dtype);
  if (s->e < 1 || s->k < 1 || s->k > s->e) return MSGL_ERR_SHAPE;
  if (gate_up->rows != s->e * whole_panels(2 * s->f) || down->rows != s->e * whole_panels(s->h)) return MSGL_ERR_SHAPE;
  return MSGL_OK;
}

static size_t take(size_t *at, int64_t bytes) {
  size_t start = *at;
  *at += (size_t)(bytes + 63) / 64 * 64;
  return start;
}

// Lays out the scratch for p->rows rows.
static int reserve(msgl_job *job, const sizes *s) {
  msgl_moe_plan *p = &job->moe;
  int64_t slots = p->rows * s->k, active = msgl_min(slots, s->e), word = sizeof(float);
  size_t bytes = 0;
  size_t ids = take(&bytes, slots * word), weights = take(&bytes, slots * word), of_row = take(&bytes, slots * word);
  size_t rows = take(&bytes, slots * word), of_slot = take(&bytes, slots * word);
  size_t groups = take(&bytes, active * (int64_t)sizeof(msgl_moe_group));
  size_t x = take(&bytes, slots * msgl_max(s->packed_h, s->h * word)), gate_up = take(&bytes, slots * 2 * s->f * word);
  size_t act = take(&bytes, slots * s->packed_f);
  int code = msgl_need_shared(job, bytes);
  if (code != MSGL_OK) return code;
  char *at = job->shared;
  p->ids = (int32_t *)(at + ids);
  p->weights = (float *)(at + weights);
  p->slots = (int32_t *)(at + of_row);
  p->slot_rows = (int32_t *)(at + rows);
  p->slot_groups = (int32_t *)(at + of_slot);
  p->groups = (msgl_moe_group *)(at + groups);
  p->x = at + x;
  p->gate_up = (float *)(at + gate_up);
  p->act = at + act;
  return MSGL_OK;
}

// Gives every (row, expert) pair its slot, and makes the groups. start: [E + 1]
static void group_rows(msgl_moe_plan *p, const sizes *s, int32_t *start) {
  memset(start, 0, (size_t)(s->e + 1) * sizeof *start);
  for (int64_t i = 0; i < p->rows * s->k; i++) start[p->ids[i] + 1]++;
  p->ngroups = 0;
  for (int64_t e = 0; e < s->e; e++) {
    int rows = start[e + 1];
    start[e + 1] += start[e];
    if (rows > 0) p->groups[p->ngroups++] = (msgl_moe_group){.expert = (int)e, .first = start[e], .rows = rows};
  }
  for (int g = 0; g < p->ngroups; g++) {
    for (int i = 0; i < p->groups[g].rows; i++) p->slot_groups[p->groups[g].first + i] = g;
  }
  for (int64_t i = 0; i < p->rows * s->k; i++) {
    p->slots[i] = start[p->ids[i]]++;
    p->slot_rows[p->slots[i]] = (int32_t)(p->row + i / s->k);
  }
}

static int64_t linear_items(const msgl_linear_plan *p, int64_t outputs) {
  return msgl_ceil_div(p->blocks, p->group) * msgl_ceil_div(outputs, MSGL_PANEL);
}

static int add_phases(msgl_job *job, const sizes *s) {
  msgl_moe_plan *p = &job->moe;
  int gate_up_type = job->op->t[3].dtype, down_type = job->op->t[4].dtype;
  int64_t gate_up = 0, down = 0, slots = p->rows * s->k;
  size_t own = 0;
  for (int g = 0; g < p->ngroups; g++) {
    msgl_moe_group *group = &p->groups[g];
    msgl_split_linear(&group->gate_up, job, group->rows, s->h, gate_up_type);
    msgl_split_linear(&group->down, job, group->rows, s->f, down_type);
    group->gate_up.packed = group->down.packed = 1;
    group->gate_up_item = gate_up;
    group->down_item = down;
    gate_up += linear_items(&group->gate_up, 2 * s->f);
    down += linear_items(&group->down, s->h);
    own = (size_t)msgl_max((int64_t)own, (int64_t)msgl_linear_own(&group->gate_up));
    own = (size_t)msgl_max((int64_t)own, (int64_t)msgl_linear_own(&group->down));
  }
  const msgl_kernels *k = job->kernels;
  int small = slots * s->h * s->f < 4 * SERIAL_ELEMENTS;
  add_phase(job, k->moe_pack, slots, SLOTS_PER_CLAIM, slots * s->h < 2 * SERIAL_ELEMENTS);
  add_phase(job, k->moe_gate_up, gate_up, PANELS_PER_CLAIM, small);
  add_phase(job, k->moe_act, slots, SLOTS_PER_CLAIM, slots * s->f < SERIAL_ELEMENTS);
  add_phase(job, k->moe_down, down, PANELS_PER_CLAIM, small);
  add_phase(job, k->moe_combine, p->rows, 1, slots * s->h < SERIAL_ELEMENTS);
  return msgl_need_own(job, own);
}

int msgl_plan_moe(msgl_job *job, const msgl_op *op) {
  sizes s;
  int code = check_moe(&s, job->kernels, op);
  if (code != MSGL_OK || s.m == 0) return code;
  msgl_moe_plan *p = &job->moe;
  int64_t row_bytes = s.k * (msgl_max(s.packed_h, 4 * s.h) + 8 * s.f + s.packed_f);
  p->row = job->next_row;
  p->rows = msgl_min(s.m - p->row, msgl_max(1, MOE_BYTES / row_bytes));
  job->next_row = p->row + p->rows < s.m ? p->row + p->rows : 0;
  code = both(reserve(job, &s), msgl_need_own(job, (size_t)(s.e + 1) * sizeof(int32_t)));
  if (code != MSGL_OK) return code;
  job->kernels->moe_route(job, 0, 0, p->rows);
  group_rows(p, &s, (int32_t *)job->own);
  return add_phases(job, &s);
}
