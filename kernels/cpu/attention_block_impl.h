// attention_block_impl.h: what attention does with one block of 32 positions:
// find and load its keys and values, compute scores, sum values.
//
// Scores are an outer product over the head's elements with the block's keys
// transposed: two chains per score, over even and odd elements, so that few rows
// still hide the latency of an addition. Sums over values are one chain.

#if defined(MSGL_ISA_AVX512)
enum { ATTN_ROWS = 6 };
#define ATTN_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
enum { ATTN_ROWS = 3 };
#define ATTN_TILES(X) X(1) X(2) X(3)
#endif

enum { BLOCK = MSGL_ATTN_BLOCK, ATTN_VECS = 4 };

// Cache rows of a block's positions.
typedef struct {
  const char *k[BLOCK], *v[BLOCK];
} block_rows;

// s[nr][32] = q[d][nr] * kt[d][32]
ALWAYS void scores(int nr, float *s, const float *q, const float *kt, int d) {
  for (int j = 0; j < BLOCK; j += 2 * VW) {
    vf acc[2][ATTN_ROWS][2];
    UNROLL for (int i = 0; i < 4 * nr; i++) acc[i % 2][i / 4][i / 2 % 2] = vset1(0);
    for (int k = 0; k < d; k += 2) {
      UNROLL for (int odd = 0; odd < 2; odd++) {
        const float *kp = kt + (size_t)(k + odd) * BLOCK + j, *qp = q + (size_t)(k + odd) * (size_t)nr;
        vf k0 = vld(kp), k1 = vld(kp + VW);
        UNROLL for (int r = 0; r < nr; r++) {
          vf qv = vset1(qp[r]);
          acc[odd][r][0] = vfma(qv, k0, acc[odd][r][0]);
          acc[odd][r][1] = vfma(qv, k1, acc[odd][r][1]);
        }
      }
    }
    UNROLL for (int r = 0; r < nr; r++) {
      vst(s + r * BLOCK + j, acc[0][r][0] + acc[1][r][0]);
      vst(s + r * BLOCK + j + VW, acc[0][r][1] + acc[1][r][1]);
    }
  }
}

// o[nr][stride] += s[nr][n] * v[n][nv * VW], columns from i on
ALWAYS void values(int bf16, int nr, int nv, float *o, const float *s, const block_rows *b, int stride, int i, int n) {
  vf acc[ATTN_ROWS][ATTN_VECS];
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int c = 0; c < nv; c++) acc[r][c] = vld(o + (size_t)r * (size_t)stride + i + c * VW);
  }
  for (int j = 0; j < n; j++) {
    vf v[ATTN_VECS];
    UNROLL for (int c = 0; c < nv; c++) {
      int at = i + c * VW;
      v[c] = bf16 ? vld_bf16((const uint16_t *)b->v[j] + at) : vld((const float *)b->v[j] + at);
    }
    UNROLL for (int r = 0; r < nr; r++) {
      vf weight = vset1(s[r * BLOCK + j]);
      UNROLL for (int c = 0; c < nv; c++) acc[r][c] = vfma(weight, v[c], acc[r][c]);
    }
  }
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int c = 0; c < nv; c++) vst(o + (size_t)r * (size_t)stride + i + c * VW, acc[r][c]);
  }
}

#define SCORES(nr) case nr: scores(nr, s, q, kt, d); break;
static void scores_tile(int nr, float *s, const float *q, const float *kt, int d) {
  switch (nr) { ATTN_TILES(SCORES) }
}

ALWAYS void all_values(int bf16, int nr, float *o, const float *s, const block_rows *b, int stride, int n) {
  int i = 0;
  for (; i + ATTN_VECS * VW <= stride; i += ATTN_VECS * VW) values(bf16, nr, ATTN_VECS, o, s, b, stride, i, n);
  for (; i < stride; i += VW) values(bf16, nr, 1, o, s, b, stride, i, n);
}

#define VALUES_BF16(nr) case nr: all_values(1, nr, o, s, b, stride, n); break;
#define VALUES_F32(nr) case nr: all_values(0, nr, o, s, b, stride, n); break;
static void values_tile(int bf16, int nr, float *o, const float *s, const block_rows *b, int stride, int n) {
  if (bf16) {
    switch (nr) { ATTN_TILES(VALUES_BF16) }
  } else {
    switch (nr) { ATTN_TILES(VALUES_F32) }
  }
}

static const float zero_row[MSGL_MAX_HEAD_DIM];

// Finds the rows of a block's positions; those outside [lo, hi) read as zeros.
static void find_rows(block_rows *b, const msgl_op *op, int request, int head, int start, int lo, int hi) {
  const msgl_tensor *k = &op->t[2], *v = &op->t[3];
  const int32_t *pages = msgl_i32(&op->t[4]) + (int64_t)request * op->t[4].stride;
  int page_size = op->i[3], page = start / page_size, offset = start % page_size;
  size_t elem = msgl_elem_size(k->dtype), column = (size_t)head * (size_t)op->i[2];
  for (int j = 0; j < BLOCK; j++) {
    b->k[j] = b->v[j] = (const char *)zero_row;
    if (start + j >= lo && start + j < hi) {
      size_t at = (((size_t)pages[page] * (size_t)page_size + (size_t)offset) * (size_t)k->stride + column) * elem;
      b->k[j] = (const char *)(uintptr_t)k->addr + at;
      b->v[j] = (const char *)(uintptr_t)v->addr + at;
    }
    if (++offset == page_size) {
      offset = 0;
      page++;
    }
  }
}

static void prefetch_rows(const block_rows *b, size_t bytes) {
  for (int j = 0; j < BLOCK; j++) {
    for (size_t i = 0; i < bytes; i += 64) {
      __builtin_prefetch(b->k[j] + i, 0, 3);
      __builtin_prefetch(b->v[j] + i, 0, 3);
    }
  }
}

// kt[d][32] from f32 rows
static void load_keys_f32(float *kt, const block_rows *b, int d) {
  int i = 0;
  for (; i + VW <= d; i += VW) {
    for (int j = 0; j < BLOCK; j += VW) {
      vi r[VW];
      UNROLL for (int l = 0; l < VW; l++) r[l] = (vi)vldu(b->k[j + l] + (size_t)i * 4);
      transpose(r);
      UNROLL for (int l = 0; l < VW; l++) vst(kt + (size_t)(i + l) * BLOCK + j, (vf)r[l]);
    }
  }
  for (; i < d; i++) {
    for (int j = 0; j < BLOCK; j++) kt[(size_t)i * BLOCK + (size_t)j] = ((const float *)b->k[j])[i];
  }
}

// kt[d][32] from bf16 rows: pairs of elements are transposed as one, then split
static void load_keys_bf16(float *kt, const block_rows *b, int d) {
  int i = 0;
  for (; i + 2 * VW <= d; i += 2 * VW) {
    for (int j = 0; j < BLOCK; j += VW) {
      vi r[VW];
      UNROLL for (int l = 0; l < VW; l++) r[l] = (vi)vldu(b->k[j + l] + (size_t)i * 2);
      transpose(r);
      UNROLL for (int l = 0; l < VW; l++) {
        float *to = kt + (size_t)(i + 2 * l) * BLOCK + j;
        vst(to, (vf)((vu)r[l] << 16));
        vst(to + BLOCK, (vf)((vu)r[l] & 0xffff0000u));
      }
    }
  }
  for (; i < d; i++) {
    for (int j = 0; j < BLOCK; j++) {
      uint32_t u = (uint32_t)((const uint16_t *)b->k[j])[i] << 16;
      memcpy(&kt[(size_t)i * BLOCK + (size_t)j], &u, sizeof u);
    }
  }
}

// Copies the block's values to v[32][stride] as f32, and points b there.
static void load_values(float *v, block_rows *b, int d, int stride, int bf16) {
  for (int j = 0; j < BLOCK; j++) {
    float *to = v + (size_t)j * (size_t)stride;
    int i = 0;
    if (bf16) {
      for (; i + VW <= d; i += VW) vst(to + i, vld_bf16((const uint16_t *)b->v[j] + i));
      for (; i < d; i++) {
        uint32_t u = (uint32_t)((const uint16_t *)b->v[j])[i] << 16;
        memcpy(&to[i], &u, sizeof u);
      }
    } else {
      memcpy(to, b->v[j], (size_t)d * sizeof(float));
      i = d;
    }
    for (; i < stride; i++) to[i] = 0;
    b->v[j] = (const char *)to;
  }
}
