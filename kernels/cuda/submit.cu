// submit.cu: puts a list of operations on a stream.
#include "check.h"

using namespace msgl;

static int run_op(Run &run, const msgl_op &op) {
  switch (op.kind) {
    case MSGL_EMBED: return embed(run, op);
    case MSGL_RMS_NORM: return rms_norm(run, op);
    case MSGL_LINEAR: return linear(run, op);
    case MSGL_ROPE_STORE: return rope_store(run, op);
    case MSGL_ATTENTION: return attention(run, op);
    case MSGL_ACT_MUL: return act_mul(run, op);
    case MSGL_GATHER_ROWS: return gather_rows(run, op);
    case MSGL_SAMPLE: return sample(run, op);
    case MSGL_MOE: return moe(run, op);
    case MSGL_ADJUST: return adjust(run, op);
    case MSGL_MASK: return mask(run, op);
    case MSGL_LOGPROBS: return logprobs(run, op);
    case MSGL_ALL_GATHER: return all_gather(run, op);
    default: return MSGL_ERR_KIND;
  }
}

// The scratch of the operations; each has all of it for itself. One that does not
// fit needs none, since it will not run.
static size_t scratch_of(msgl_cuda_run *args, const msgl_op *ops, int n) {
  size_t most = 0;
  for (int i = 0; i < n; i++) {
    Run run = {args, {nullptr, i}, 0, true};
    if (run_op(run, ops[i]) == MSGL_OK && run.taken > most) most = run.taken;
  }
  return most;
}

int msgl_cuda_submit(msgl_cuda_run *args, const msgl_op *ops, int n) {
  args->failed = -1;
  args->exchange_code = args->attention_code = 0;
  args->needed = scratch_of(args, ops, n);
  if (args->needed > args->scratch_bytes) return MSGL_ERR_MEMORY;
  Run run = {args, {(int32_t *)(uintptr_t)args->status, 0}, 0, false};
  int code = clear(run, run.guard.status, sizeof *run.guard.status);
  for (int i = 0; i < n && code == MSGL_OK; i++) {
    run.guard.op = i;
    run.taken = 0;
    code = run_op(run, ops[i]);
    if (code != MSGL_OK) args->failed = i;
  }
  return code;
}

#if defined(__CUDACC__)
const char *msgl_cuda_message(void) { return cudaGetErrorString(cudaGetLastError()); }
#else
const char *msgl_cuda_message(void) { return emu::message(); }
#endif
