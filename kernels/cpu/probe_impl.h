// probe_impl.h: what the machine can do, to compare the kernels with.

enum { PROBE_ITEM = 1 << 20, PROBE_STREAMS = 8, PROBE_FMAS = 1 << 16 };

// Items: PROBE_ITEM bytes of memory to read, in several streams, as LINEAR does.
static void probe_read(const msgl_job *job, int thread, int64_t from, int64_t to) {
  enum { STREAM = PROBE_ITEM / PROBE_STREAMS };
  const char *p = (const char *)msgl_f32(&job->op->t[0]);
  vu sum[PROBE_STREAMS];
  UNROLL for (int i = 0; i < PROBE_STREAMS; i++) sum[i] = (vu)vset1(0);
  for (int64_t item = from; item < to; item++) {
    const char *at = p + item * PROBE_ITEM;
    for (int i = 0; i < STREAM; i += LINE) {
      UNROLL for (int s = 0; s < PROBE_STREAMS; s++) {
        const char *line = at + s * STREAM + i;
        // At a stream's end, the same stream of the next item.
        prefetch(line + (i + AHEAD < STREAM ? AHEAD : AHEAD + PROBE_ITEM - STREAM));
        UNROLL for (int j = 0; j < LINE; j += VW * 4) sum[s] += vldu(line + j);
      }
    }
  }
  UNROLL for (int i = 1; i < PROBE_STREAMS; i++) sum[0] += sum[i];
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
