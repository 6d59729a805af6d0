// plan_logits.c: checks and phases of the operations on logits.
#include "plan.h"

static int check_sample(const msgl_op *op) {
  const msgl_tensor *next = &op->t[0], *logits = &op->t[1], *args = &op->t[2], *last = &op->t[3];
  int vocab = op->i[0];
  int code = both(columns(logits, MSGL_F32, logits->cols), view(next, MSGL_I32, 1, logits->rows));
  code = both(code, view(args, MSGL_I32, logits->rows, sizeof(msgl_sampling) / 4));
  code = both(code, optional(last, MSGL_I32, 1, last->cols));
  if (code == MSGL_OK && (vocab <= 0 || vocab > logits->cols)) code = MSGL_ERR_SHAPE;
  if (code != MSGL_OK) return code;
  int64_t slots = last->addr ? last->cols : 0;
  for (int64_t r = 0; r < logits->rows; r++) {
    const msgl_sampling *a = (const msgl_sampling *)msgl_row(args, r);
    if (a->slot >= slots) return MSGL_ERR_INDEX;
  }
  return MSGL_OK;
}

int msgl_greedy(const msgl_op *linear, const msgl_op *sample) {
  const msgl_tensor *dst = &linear->t[0], *logits = &sample->t[1];
  if (sample->kind != MSGL_SAMPLE || logits->addr != dst->addr || logits->rows != dst->rows || logits->stride != dst->stride) return 0;
  if (check_sample(sample) != MSGL_OK || sample->i[0] > dst->cols) return 0;
  for (int64_t r = 0; r < logits->rows; r++) {
    if (((const msgl_sampling *)msgl_row(&sample->t[2], r))->temperature > 0) return 0;
  }
  return 1;
}

int msgl_plan_sample(msgl_job *job, const msgl_op *op) {
  int code = check_sample(op);
  // A thread's scratch: weights, two lists of ids, the sums of one level of buckets.
  if (code == MSGL_OK) code = msgl_need_own(job, 3 * 4 * ((size_t)op->i[0] + 64) + MSGL_RADIX_BUCKETS * sizeof(double));
  if (code != MSGL_OK) return code;
  add_phase(job, job->kernels->sample, op->t[1].rows, 1, 0);
  return MSGL_OK;
}

// The logits and their vocabulary.
static int check_logits(const msgl_tensor *logits, int vocab) {
  int code = columns(logits, MSGL_F32, logits->cols);
  return code == MSGL_OK && (vocab <= 0 || vocab > logits->cols) ? MSGL_ERR_SHAPE : code;
}

// Whether the ids of one row are tokens. Ids below zero name rows of last.
static int check_outputs(const int32_t *ids, int n, const msgl_tensor *last, int vocab) {
  int64_t slots = last->addr ? last->cols : 0;
  for (int i = 0; i < n; i++) {
    int64_t id = ids[i];
    if (id < 0) {
      if (-id - 1 >= slots) return MSGL_ERR_INDEX;
      id = msgl_i32(last)[-id - 1];
    }
    if (id < 0 || id >= vocab) return MSGL_ERR_INDEX;
  }
  return MSGL_OK;
}

static int check_adjustment(const msgl_adjustment *a, const msgl_op *op) {
  int64_t size = op->t[2].cols, vocab = op->i[0];
  if (a->row < 0 || a->row >= op->t[0].rows || a->first < 0 || a->outputs < 0 || a->biases < 0) return MSGL_ERR_INDEX;
  if (a->first + (int64_t)a->outputs + 2 * (int64_t)a->biases > size) return MSGL_ERR_INDEX;
  const int32_t *data = msgl_i32(&op->t[2]) + a->first, *pairs = data + a->outputs;
  for (int i = 0; i < a->biases; i++) {
    if (pairs[2 * i] < 0 || pairs[2 * i] >= vocab) return MSGL_ERR_INDEX;
  }
  return check_outputs(data, a->outputs, &op->t[3], (int)vocab);
}

int msgl_plan_adjust(msgl_job *job, const msgl_op *op) {
  const msgl_tensor *rows = &op->t[1], *data = &op->t[2], *last = &op->t[3];
  int code = both(check_logits(&op->t[0], op->i[0]), view(rows, MSGL_I32, rows->rows, sizeof(msgl_adjustment) / 4));
  code = both(code, both(view(data, MSGL_I32, 1, data->cols), optional(last, MSGL_I32, 1, last->cols)));
  for (int64_t r = 0; code == MSGL_OK && r < rows->rows; r++) {
    code = check_adjustment((const msgl_adjustment *)msgl_row(rows, r), op);
  }
  // A thread's scratch: how often each token was generated.
  if (code == MSGL_OK) code = msgl_need_own(job, 4 * (size_t)op->i[0]);
  if (code != MSGL_OK) return code;
  add_phase(job, job->kernels->adjust, rows->rows, 1, rows->rows == 1);
  return MSGL_OK;
}

int msgl_plan_mask(msgl_job *job, const msgl_op *op) {
  const msgl_tensor *logits = &op->t[0], *rows = &op->t[1], *bits = &op->t[2];
  int code = both(check_logits(logits, op->i[0]), view(rows, MSGL_I32, 1, rows->cols));
  if (code == MSGL_OK) code = view(bits, MSGL_I32, rows->cols, msgl_ceil_div(op->i[0], 32));
  for (int64_t r = 0; code == MSGL_OK && r < rows->cols; r++) {
    int32_t row = msgl_i32(rows)[r];
    if (row < 0 || row >= logits->rows) code = MSGL_ERR_INDEX;
  }
  if (code != MSGL_OK) return code;
  add_phase(job, job->kernels->mask, rows->cols, 1, rows->cols == 1);
  return MSGL_OK;
}

static int check_scoring(const msgl_scoring *s, const msgl_op *op) {
  const msgl_tensor *next = &op->t[3];
  if (s->row < 0 || s->row >= op->t[1].rows) return MSGL_ERR_INDEX;
  if (s->top < 0 || s->top > op->i[0] || 2 * (int64_t)s->top >= op->t[0].cols || !(s->temperature > 0)) return MSGL_ERR_SHAPE;
  if (s->token < 0 && !next->addr) return MSGL_ERR_INDEX;
  int32_t token = s->token < 0 ? msgl_i32(next)[s->row] : s->token;
  return token < 0 || token >= op->i[0] ? MSGL_ERR_INDEX : MSGL_OK;
}

int msgl_plan_logprobs(msgl_job *job, const msgl_op *op) {
  const msgl_tensor *dst = &op->t[0], *logits = &op->t[1], *rows = &op->t[2], *next = &op->t[3];
  int code = both(check_logits(logits, op->i[0]), view(rows, MSGL_I32, dst->rows, sizeof(msgl_scoring) / 4));
  code = both(code, both(columns(dst, MSGL_I32, dst->cols), optional(next, MSGL_I32, 1, logits->rows)));
  if (code == MSGL_OK && dst->cols % 2 == 0) code = MSGL_ERR_SHAPE;
  for (int64_t r = 0; code == MSGL_OK && r < rows->rows; r++) {
    code = check_scoring((const msgl_scoring *)msgl_row(rows, r), op);
  }
  // A thread's scratch: weights.
  if (code == MSGL_OK) code = msgl_need_own(job, 4 * ((size_t)op->i[0] + 64));
  if (code != MSGL_OK) return code;
  add_phase(job, job->kernels->logprobs, rows->rows, 1, rows->rows == 1);
  return MSGL_OK;
}
