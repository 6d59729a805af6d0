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

enum {
  BLOCK = MSGL_ATTN_BLOCK,
  ATTN_VECS = 4,
  AHEAD_COLS = VW < 16 ? 8 : 2,  // columns of scores for each prefetch: wide vectors have fewer steps of values, which ask for the rest
};

// Cache rows of a block's positions, or a head's part of them.
typedef struct {
  const char *k[BLOCK], *v[BLOCK];
} block_rows;

// What is still to be prefetched of a share of the next block. The work on this
// block asks for it line by line: the memory takes few requests at a time, and a
// burst of them would stop the work.
typedef struct {
  const char *const *k, *const *v;  // the rows
  int rows;
  size_t from, to, at;              // bytes of a row
} lines_ahead;

ALWAYS void prefetch_lines(lines_ahead *a) {
  if (a->rows == 0) return;
  __builtin_prefetch(*a->k + a->at, 0, 3);
  __builtin_prefetch(*a->v + a->at, 0, 3);
  a->at += 64;
  if (a->at < a->to) return;
  a->at = a->from;
  a->k++;
  a->v++;
  a->rows--;
}

// Element `part` of words that hold several of a type.
ALWAYS vf word_part(int dtype, vi words, int part) {
  switch (dtype) {
    case MSGL_BF16: return (vf)(part ? (vu)words & 0xffff0000u : (vu)words << 16);
    case MSGL_F16: {
      vh half = __builtin_convertvector((vu)words >> (16 * part) & 0xffffu, vh);
      return vld_f16(&half);
    }
    case MSGL_I8: return __builtin_convertvector(words << (24 - 8 * part) >> 24, vf);
    default: return (vf)words;
  }
}

// Whether bf16 keys and values stay pairs until they meet a row: splitting a vector of them
// takes two instructions, for which AVX2 has ports beside the multiply-adds'.
enum { ATTN_PAIRS = VW == 8 };
ALWAYS int in_pairs(int dtype) { return ATTN_PAIRS && dtype == MSGL_BF16; }

// Element k of the block's transposed keys, at positions from j on.
ALWAYS vf key_at(int dtype, const float *kt, int k, int j) {
  if (!in_pairs(dtype)) return vld(kt + (size_t)k * BLOCK + j);
  return word_part(dtype, (vi)vldu(kt + (size_t)(k / 2) * BLOCK + j), k % 2);
}

// s[nr][32] = q[d][nr] * kt; dtype: of keys
ALWAYS void scores(int dtype, int nr, float *s, const float *q, const float *kt, int d, lines_ahead *ahead) {
  for (int j = 0; j < BLOCK; j += 2 * VW) {
    vf acc[2][ATTN_ROWS][2];
    UNROLL for (int i = 0; i < 4 * nr; i++) acc[i % 2][i / 4][i / 2 % 2] = vset1(0);
    for (int k = 0; k < d; k += 8) {
      UNROLL for (int i = 0; i < 8; i++) {
        if (i % AHEAD_COLS == 0) prefetch_lines(ahead);
        const float *qp = q + (size_t)(k + i) * (size_t)nr;
        vf k0 = key_at(dtype, kt, k + i, j), k1 = key_at(dtype, kt, k + i, j + VW);
        UNROLL for (int r = 0; r < nr; r++) {
          vf qv = vset1(qp[r]);
          acc[i % 2][r][0] = vfma(qv, k0, acc[i % 2][r][0]);
          acc[i % 2][r][1] = vfma(qv, k1, acc[i % 2][r][1]);
        }
      }
    }
    UNROLL for (int r = 0; r < nr; r++) {
      vst(s + r * BLOCK + j, acc[0][r][0] + acc[1][r][0]);
      vst(s + r * BLOCK + j + VW, acc[0][r][1] + acc[1][r][1]);
    }
  }
}

// Two vectors of columns in order become those of the even and of the odd ones, and back.
ALWAYS void part_pairs(vf two[2]) {
#if VW == 8
  vf a = two[0], b = two[1];
  two[0] = SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  two[1] = SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  (void)two;
#endif
}

ALWAYS void join_pairs(vf two[2]) {
#if VW == 8
  vf even = two[0], odd = two[1];
  two[0] = SHUFFLE(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
  two[1] = SHUFFLE(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  (void)two;
#endif
}

// Vector c of a row of values, from column i on; of pairs, the even columns of two vectors and then the odd ones.
ALWAYS vf value_at(int dtype, const char *row, int i, int c) {
  if (!in_pairs(dtype)) return vld_any(dtype, row, i + c * VW);
  return vld_half_bf16(row + (i + c / 2 * 2 * VW) * 2, c % 2);
}

// o[nr][stride] += s[nr][n] * v[n][nv * VW], columns from i on
ALWAYS void values(int dtype, int nr, int nv, float *o, const float *s, const block_rows *b, int stride, int i, int n,
                   lines_ahead *ahead) {
  vf acc[ATTN_ROWS][ATTN_VECS];
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int c = 0; c < nv; c++) acc[r][c] = vld(o + (size_t)r * (size_t)stride + i + c * VW);
    if (in_pairs(dtype)) {
      UNROLL for (int c = 0; c < nv; c += 2) part_pairs(&acc[r][c]);
    }
  }
  for (int j = 0; j < n; j++) {
    prefetch_lines(ahead);
    vf weights[ATTN_ROWS];
    UNROLL for (int r = 0; r < nr; r++) weights[r] = vset1(s[r * BLOCK + j]);
    UNROLL for (int c = 0; c < nv; c++) {
      vf v = value_at(dtype, b->v[j], i, c);
      UNROLL for (int r = 0; r < nr; r++) vadd_product(&acc[r][c], weights[r], v);
    }
  }
  UNROLL for (int r = 0; r < nr; r++) {
    if (in_pairs(dtype)) {
      UNROLL for (int c = 0; c < nv; c += 2) join_pairs(&acc[r][c]);
    }
    UNROLL for (int c = 0; c < nv; c++) vst(o + (size_t)r * (size_t)stride + i + c * VW, acc[r][c]);
  }
}

#define SCORES(dtype, nr) case nr: scores(dtype, nr, s, q, kt, d, ahead); break;
#define SCORES_BF16(nr) SCORES(MSGL_BF16, nr)
#define SCORES_F32(nr) SCORES(MSGL_F32, nr)
static void scores_tile(int dtype, int nr, float *s, const float *q, const float *kt, int d, lines_ahead *ahead) {
  if (in_pairs(dtype)) {
    switch (nr) { ATTN_TILES(SCORES_BF16) }
  } else {
    switch (nr) { ATTN_TILES(SCORES_F32) }
  }
}

// stride is a multiple of NV vectors.
ALWAYS void all_values(int dtype, int nr, float *o, const float *s, const block_rows *b, int stride, int n, lines_ahead *ahead) {
  int i = 0;
  for (; i + ATTN_VECS * VW <= stride; i += ATTN_VECS * VW) values(dtype, nr, ATTN_VECS, o, s, b, stride, i, n, ahead);
  for (; i < stride; i += NV * VW) values(dtype, nr, NV, o, s, b, stride, i, n, ahead);
}

#define VALUES(dtype, nr) case nr: all_values(dtype, nr, o, s, b, stride, n, ahead); break;
#define VALUES_F32(nr) VALUES(MSGL_F32, nr)
#define VALUES_BF16(nr) VALUES(MSGL_BF16, nr)
#define VALUES_F16(nr) VALUES(MSGL_F16, nr)
#define VALUES_I8(nr) VALUES(MSGL_I8, nr)
static void values_tile(int dtype, int nr, float *o, const float *s, const block_rows *b, int stride, int n, lines_ahead *ahead) {
  switch (dtype) {
    case MSGL_BF16: switch (nr) { ATTN_TILES(VALUES_BF16) } return;
    case MSGL_F16: switch (nr) { ATTN_TILES(VALUES_F16) } return;
    case MSGL_I8: switch (nr) { ATTN_TILES(VALUES_I8) } return;
    default: switch (nr) { ATTN_TILES(VALUES_F32) } return;
  }
}

// Finds the rows of a block's positions, of all heads. Positions outside of
// [lo, hi) have the nearest row within; their weights are zero.
static void find_rows(block_rows *b, const msgl_op *op, int request, int start, int lo, int hi) {
  const msgl_tensor *k = &op->t[2], *v = &op->t[3];
  const int32_t *pages = msgl_i32(&op->t[4]) + (int64_t)request * op->t[4].stride;
  int page_size = op->i[3];
  int first = (int)msgl_max(start, lo), last = (int)msgl_min(start + BLOCK, hi) - 1;
  int page = first / page_size, offset = first % page_size;
  size_t row = (size_t)k->stride * msgl_elem_size(k->dtype), at = 0;
  for (int j = 0; j < BLOCK; j++) {
    if (j == 0 || (start + j > first && start + j <= last)) {
      at = ((size_t)pages[page] * (size_t)page_size + (size_t)offset) * row;
      if (++offset == page_size) {
        offset = 0;
        page++;
      }
    }
    b->k[j] = (const char *)(uintptr_t)k->addr + at;
    b->v[j] = (const char *)(uintptr_t)v->addr + at;
  }
}

// Where a head's elements begin in a row of the cache.
static size_t head_offset(const msgl_op *op, int head) {
  return (size_t)head * (size_t)op->i[2] * msgl_elem_size(op->t[2].dtype);
}

static block_rows rows_of_head(const block_rows *all, const msgl_op *op, int head) {
  size_t offset = head_offset(op, head);
  block_rows b;
  for (int j = 0; j < BLOCK; j++) {
    b.k[j] = all->k[j] + offset;
    b.v[j] = all->v[j] + offset;
  }
  return b;
}

// Where an i8 cache has a head's scale, from the head's first code on.
static size_t scale_offset(const msgl_op *op, int head) {
  return (size_t)(op->i[1] - head) * (size_t)op->i[2] + (size_t)head * sizeof(float);
}

// to[32]: the scales of a block's keys, or of its values
static void load_scales(float *to, const char *const rows[BLOCK], size_t offset) {
  for (int j = 0; j < BLOCK; j++) memcpy(&to[j], rows[j] + offset, sizeof(float));
}

// One of task->heads equal shares of a block: some positions' rows, as far as the
// task's heads go, since memory likes long runs.
static lines_ahead share_of(const block_rows *b, const msgl_op *op, const msgl_attn_task *t, int share) {
  int first = BLOCK * share / t->heads, end = BLOCK * (share + 1) / t->heads;
  size_t from = head_offset(op, t->head), to = head_offset(op, t->head + t->heads);
  if (t->heads == op->i[1]) to = (size_t)op->t[2].cols * msgl_elem_size(op->t[2].dtype);  // scales are at the end
  return (lines_ahead){b->k + first, b->v + first, end - first, from, to, from};
}

// kt: the block's keys, transposed: [d][32] values, or [d/2][32] pairs. Words of 32 bits change
// places as one and are split after that. VW rows at a time, over all their elements: rows lie so
// that the cache could not hold a line of each until its other half is wanted.
ALWAYS void transpose_keys(int dtype, float *kt, const block_rows *b, int d) {
  const int size = (int)msgl_elem_size(dtype), per_word = 4 / size, whole = d / (per_word * VW) * per_word * VW;
  for (int j = 0; j < BLOCK; j += VW) {
    for (int i = 0; i < whole; i += per_word * VW) {
      vi r[VW];
      UNROLL for (int l = 0; l < VW; l++) r[l] = (vi)vldu(b->k[j + l] + i * size);
      transpose(r);
      UNROLL for (int l = 0; l < VW; l++) {
        if (in_pairs(dtype)) {
          vst(kt + (size_t)(i / 2 + l) * BLOCK + j, (vf)r[l]);
          continue;
        }
        UNROLL for (int part = 0; part < per_word; part++) {
          vst(kt + (size_t)(i + per_word * l + part) * BLOCK + j, word_part(dtype, r[l], part));
        }
      }
    }
  }
  for (int i = whole; i < d; i += in_pairs(dtype) ? 2 : 1) {
    for (int j = 0; j < BLOCK; j++) {
      if (in_pairs(dtype)) {
        memcpy(kt + (size_t)(i / 2) * BLOCK + j, b->k[j] + 2 * i, 4);
      } else {
        kt[(size_t)i * BLOCK + (size_t)j] = load_one(dtype, b->k[j], i);
      }
    }
  }
}

static void load_keys(int dtype, float *kt, const block_rows *b, int d) {
  switch (dtype) {
    case MSGL_BF16: transpose_keys(MSGL_BF16, kt, b, d); return;
    case MSGL_F16: transpose_keys(MSGL_F16, kt, b, d); return;
    case MSGL_I8: transpose_keys(MSGL_I8, kt, b, d); return;
    default: transpose_keys(MSGL_F32, kt, b, d); return;
  }
}

ALWAYS void widen_values(int dtype, float *v, block_rows *b, int d, int stride) {
  for (int j = 0; j < BLOCK; j++) {
    float *to = v + (size_t)j * (size_t)stride;
    int i = 0;
    for (; i + VW <= d; i += VW) vst(to + i, vld_any(dtype, b->v[j], i));
    for (; i < d; i++) to[i] = load_one(dtype, b->v[j], i);
    for (; i < stride; i++) to[i] = 0;
    b->v[j] = (const char *)to;
  }
}

// Copies the block's values to v[32][stride] as f32, and points b there.
static void load_values(int dtype, float *v, block_rows *b, int d, int stride) {
  switch (dtype) {
    case MSGL_BF16: widen_values(MSGL_BF16, v, b, d, stride); return;
    case MSGL_F16: widen_values(MSGL_F16, v, b, d, stride); return;
    case MSGL_I8: widen_values(MSGL_I8, v, b, d, stride); return;
    default: widen_values(MSGL_F32, v, b, d, stride); return;
  }
}
