// probe_impl.h: what the machine can do, to compare the kernels with.

enum { PROBE_ITEM = 1 << 18, PROBE_FMAS = 1 << 16 };

// Items: PROBE_ITEM bytes of memory to read, in four streams.
static void probe_read(const msgl_job *job, int thread, int64_t from, int64_t to) {
  const char *p = (const char *)msgl_f32(&job->op->t[0]);
  vu sum[8];
  UNROLL for (int i = 0; i < 8; i++) sum[i] = (vu)vset1(0);
  for (int64_t item = from; item < to; item++) {
    const char *at = p + item * PROBE_ITEM;
    for (int i = 0; i < PROBE_ITEM / 4; i += 2 * VW * 4) {
      UNROLL for (int s = 0; s < 4; s++) {
        const char *line = at + s * (PROBE_ITEM / 4) + i;
        __builtin_prefetch(line + 4096, 0, 3);
        sum[2 * s] += vldu(line);
        sum[2 * s + 1] += vldu(line + VW * 4);
      }
    }
  }
  UNROLL for (int i = 1; i < 8; i++) sum[0] += sum[i];
  memcpy(job->own + (size_t)thread * job->own_bytes, &sum[0], sizeof sum[0]);
}

// Items: PROBE_FMAS times 12 vectors of multiply-adds.
static void probe_fma(const msgl_job *job, int thread, int64_t from, int64_t to) {
  vf acc[12], a = vset1(0.999f), b = vset1(0.001f);
  UNROLL for (int i = 0; i < 12; i++) acc[i] = vset1((float)i);
  for (int64_t item = from; item < to; item++) {
    for (int k = 0; k < PROBE_FMAS; k++) {
      UNROLL for (int i = 0; i < 12; i++) acc[i] = vfma(acc[i], a, b);
    }
  }
  UNROLL for (int i = 1; i < 12; i++) acc[0] += acc[i];
  memcpy(job->own + (size_t)thread * job->own_bytes, &acc[0], sizeof acc[0]);
}
