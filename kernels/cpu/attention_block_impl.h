// attention_block_impl.h: what attention does with one block of 32 positions but for its
// scores: find and load its keys and values, sum the values.

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
  prefetch(*a->k + a->at);
  prefetch(*a->v + a->at);
  a->at += 64;
  if (a->at < a->to) return;
  a->at = a->from;
  a->k++;
  a->v++;
  a->rows--;
}

// Whether nv vectors of bf16 values stay pairs until they meet a row: splitting a vector of pairs
// takes two instructions, for which there are ports beside the multiply-adds'.
ALWAYS int value_pairs(int dtype, int nv) { return VW >= 8 && dtype == MSGL_BF16 && nv % 2 == 0; }

#define EVERY_OTHER(first, l) (2 * (l) + (first))
#define ZIPPED(first, l) ((l) / 2 + (first) + (l) % 2 * VW)

// Two vectors of columns in order become those of the even and of the odd ones, and back.
ALWAYS void part_pairs(vf two[2]) {
  vf a = two[0], b = two[1];
  two[0] = SHUFFLE(a, b, T_ALL(EVERY_OTHER, 0));
  two[1] = SHUFFLE(a, b, T_ALL(EVERY_OTHER, 1));
}

ALWAYS void join_pairs(vf two[2]) {
  vf even = two[0], odd = two[1];
  two[0] = SHUFFLE(even, odd, T_ALL(ZIPPED, 0));
  two[1] = SHUFFLE(even, odd, T_ALL(ZIPPED, VW / 2));
}

// Vector c of nv of a row of values, from column i on; of pairs, the even columns of two vectors and then the odd ones.
ALWAYS vf value_at(int dtype, int nv, const char *row, int i, int c) {
  if (!value_pairs(dtype, nv)) return vld_any(dtype, row, i + c * VW);
  return vld_half_bf16(row + (i + c / 2 * 2 * VW) * 2, c % 2);
}

// o[nr][stride] = o * shrink[nr] + s[nr][n] * v[n][nv * VW], columns from i on
ALWAYS void values(int dtype, int nr, int nv, float *o, const float *shrink, const float *s, const block_rows *b, int stride,
                   int i, int n, lines_ahead *ahead) {
  vf acc[ATTN_ROWS][ATTN_VECS];
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int c = 0; c < nv; c++) acc[r][c] = vld(o + (size_t)r * (size_t)stride + i + c * VW) * vset1(shrink[r]);
    if (value_pairs(dtype, nv)) {
      UNROLL for (int c = 0; c < nv; c += 2) part_pairs(&acc[r][c]);
    }
  }
  for (int j = 0; j < n; j++) {
    prefetch_lines(ahead);
    vf weights[ATTN_ROWS];
    UNROLL for (int r = 0; r < nr; r++) weights[r] = vset1(s[r * BLOCK + j]);
    UNROLL for (int c = 0; c < nv; c++) {
      vf v = value_at(dtype, nv, b->v[j], i, c);
      UNROLL for (int r = 0; r < nr; r++) vadd_product(&acc[r][c], weights[r], v);
    }
  }
  UNROLL for (int r = 0; r < nr; r++) {
    if (value_pairs(dtype, nv)) {
      UNROLL for (int c = 0; c < nv; c += 2) join_pairs(&acc[r][c]);
    }
    UNROLL for (int c = 0; c < nv; c++) vst(o + (size_t)r * (size_t)stride + i + c * VW, acc[r][c]);
  }
}

// stride is a multiple of NV vectors.
ALWAYS void all_values(int dtype, int nr, float *o, const float *shrink, const float *s, const block_rows *b, int stride, int n,
                       lines_ahead *ahead) {
  int i = 0;
  for (; i + ATTN_VECS * VW <= stride; i += ATTN_VECS * VW) values(dtype, nr, ATTN_VECS, o, shrink, s, b, stride, i, n, ahead);
  for (; i < stride; i += NV * VW) values(dtype, nr, NV, o, shrink, s, b, stride, i, n, ahead);
}

#define VALUES(dtype, nr) case nr: all_values(dtype, nr, o, shrink, s, b, stride, n, ahead); break;
#define VALUES_F32(nr) VALUES(MSGL_F32, nr)
#define VALUES_BF16(nr) VALUES(MSGL_BF16, nr)
#define VALUES_F16(nr) VALUES(MSGL_F16, nr)
#define VALUES_I8(nr) VALUES(MSGL_I8, nr)
static void values_tile(int dtype, int nr, float *o, const float *shrink, const float *s, const block_rows *b, int stride, int n,
                        lines_ahead *ahead) {
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
