// submit.c: runs a list of operations.
#include "pool.h"

int msgl_submit(int *failed, int64_t *ns, msgl_pool *p, const msgl_op *ops, int n) {
  p->ops = ops;
  p->ns = ns;
  p->since = ns ? msgl_now_ns() : 0;
  p->nops = n;
  p->index = -1;
  p->code = MSGL_OK;
  p->phase = 0;
  p->job.nphases = 0;
  p->job.next_row = 0;
  p->job.nops = 1;
  msgl_run(p);
  *failed = p->code == MSGL_OK ? -1 : p->index;
  return p->code;
}

static int grow(char **p, size_t *cap, size_t bytes) {
  if (bytes <= *cap) return MSGL_OK;
  bytes = (size_t)msgl_max((int64_t)bytes, (int64_t)(*cap + *cap / 2));  // so that slow growth costs few calls
  msgl_free(*p, *cap);
  *cap = 0;
  void *fresh;
  int code = msgl_alloc(&fresh, bytes);
  *p = fresh;
  if (code == MSGL_OK) *cap = bytes;
  return code;
}

int msgl_need_shared(msgl_job *job, size_t bytes) { return grow(&job->shared, &job->shared_cap, bytes); }

int msgl_need_own(msgl_job *job, size_t bytes) {
  job->own_bytes = (bytes + 63) / 64 * 64;
  return grow(&job->own, &job->own_cap, job->own_bytes * (size_t)job->threads);
}
