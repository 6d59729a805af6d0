// plan.h: what the planning files share: checks of operands, and phases.
#ifndef MSGL_PLAN_H
#define MSGL_PLAN_H

#include "internal.h"

enum {
  SERIAL_ELEMENTS = 8192,  // an elementwise phase below this costs less than a barrier
  PANELS_PER_CLAIM = 8,
};

// Returns the first error of two.
static inline int both(int a, int b) { return a != MSGL_OK ? a : b; }

static inline int view(const msgl_tensor *t, int dtype, int64_t rows, int64_t cols) {
  if (t->dtype != dtype) return MSGL_ERR_DTYPE;
  if (t->addr == 0 || t->rows != rows || t->cols != cols || rows < 0 || cols < 0) return MSGL_ERR_SHAPE;
  return rows > 1 && t->stride < cols ? MSGL_ERR_SHAPE : MSGL_OK;
}

static inline int optional(const msgl_tensor *t, int dtype, int64_t rows, int64_t cols) {
  return t->addr == 0 ? MSGL_OK : view(t, dtype, rows, cols);
}

// A tensor whose rows are free.
static inline int columns(const msgl_tensor *t, int dtype, int64_t cols) { return view(t, dtype, t->rows, cols); }

static inline int packed(const msgl_tensor *t, int64_t cols) {
  int quantized = msgl_quant_of(t->dtype).bits;
  if (t->dtype != MSGL_F32 && t->dtype != MSGL_BF16 && t->dtype != MSGL_F16 && !quantized) return MSGL_ERR_DTYPE;
  if (quantized && t->cols % MSGL_X_GROUP) return MSGL_ERR_SHAPE;
  return t->addr == 0 || t->rows <= 0 || t->cols <= 0 || t->cols != cols ? MSGL_ERR_SHAPE : MSGL_OK;
}

static inline void add_phase(msgl_job *job, msgl_phase_fn run, int64_t items, int step, int serial) {
  job->phases[job->nphases++] = (msgl_phase){run, items, step, serial};
}

// Splits `rows` rows of `cols` columns into blocks for LINEAR with weights of the type.
void msgl_split_linear(msgl_linear_plan *p, const msgl_job *job, int64_t rows, int64_t cols, int dtype);

// Bytes of scratch that a thread needs to run a plan: the outputs that don't go to dst.
static inline size_t msgl_linear_own(const msgl_linear_plan *p) {
  return (size_t)p->group * (size_t)p->block_rows * (p->best ? MSGL_MAX_PANELS : 1) * MSGL_PANEL * sizeof(float);
}

// plan_logits.c
// Whether SAMPLE reads what LINEAR writes, and wants no more of a row than its largest logit.
int msgl_greedy(const msgl_op *linear, const msgl_op *sample);
int msgl_plan_sample(msgl_job *job, const msgl_op *op);
int msgl_plan_adjust(msgl_job *job, const msgl_op *op);
int msgl_plan_mask(msgl_job *job, const msgl_op *op);
int msgl_plan_logprobs(msgl_job *job, const msgl_op *op);

// plan_moe.c
int msgl_plan_moe(msgl_job *job, const msgl_op *op);

#endif
