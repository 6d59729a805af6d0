// attention_impl.h: causal attention over the paged cache.
//
// A task is a tile of query rows of one request and one key/value head; the query
// heads that share it are further rows of the tile. Positions go in blocks of 32
// and chunks of 256, both at fixed multiples from 0. Within a chunk the softmax
// is online (Milakov and Gimelshein, 2018), block after block; chunks start anew
// and are merged in order. So a row's arithmetic depends on its position alone,
// however rows, chunks and requests are spread over tasks and batches.

#include "attention_block_impl.h"

// A thread's scratch for one task. Rows are (row, query head) pairs, in this order.
typedef struct {
  int rows, group, d, stride;
  float *q;                   // tiles of ATTN_ROWS rows: [d][rows of the tile]
  float *kt, *v, *s;          // [d][32], [32][stride], [rows][32]
  float *scales;              // of i8 keys and values [2][32]; NULL for other types
  float *max, *lanes, *o;     // of the chunk: [rows], [rows][16], [rows][stride]
  float *all_max, *all_sum, *all_o;  // of the chunks so far
} attn_state;

static attn_state attn_open(const msgl_job *job, int thread, int rows) {
  const msgl_op *op = job->op;
  size_t tile = (size_t)job->attn.tile_rows, d = (size_t)op->i[2], stride = (size_t)job->attn.head_stride;
  float *p = (float *)(job->own + (size_t)thread * job->own_bytes);
  attn_state st = {.group = op->i[0] / op->i[1], .d = (int)d, .stride = (int)stride};
  st.rows = rows * st.group;
  float **parts[] = {&st.q, &st.kt, &st.v, &st.s, &st.scales, &st.max, &st.lanes, &st.o, &st.all_max, &st.all_sum, &st.all_o};
  size_t sizes[] = {tile * d, d * BLOCK,    BLOCK * stride, tile * BLOCK, 2 * BLOCK,    tile,
                    tile * LANES, tile * stride, tile, tile, tile * stride};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    *parts[i] = p;
    p += (sizes[i] + 15) / 16 * 16;
  }
  if (op->t[2].dtype != MSGL_I8) st.scales = NULL;
  return st;
}

static void load_queries(const attn_state *st, const msgl_op *op, int row, int head) {
  for (int first = 0; first < st->rows; first += ATTN_ROWS) {
    int nr = (int)msgl_min(ATTN_ROWS, st->rows - first);
    float *to = st->q + (size_t)first * (size_t)st->d;
    for (int r = 0; r < nr; r++) {
      int pair = first + r;
      const float *q = msgl_row(&op->t[1], row + pair / st->group) + (size_t)(head * st->group + pair % st->group) * (size_t)st->d;
      for (int i = 0; i < st->d; i++) to[(size_t)i * (size_t)nr + (size_t)r] = q[i];
    }
  }
}

// Turns row r's scores into weights exp(s * scale - max), for the block's
// positions [from, to), and rescales what the chunk has summed so far. The scales
// of i8 values go into the weights, once those have been summed.
static void soften(const attn_state *st, int r, int from, int to, float scale) {
  enum { N = BLOCK / VW };
  float *s = st->s + (size_t)r * BLOCK, *lanes = st->lanes + (size_t)r * LANES;
  vf x[N];
  UNROLL for (int i = 0; i < N; i++) x[i] = vld(s + i * VW) * vset1(scale);
  if (st->scales) {
    UNROLL for (int i = 0; i < N; i++) x[i] *= vld(st->scales + i * VW);
  }
  if (from > 0 || to < BLOCK) {
    UNROLL for (int i = 0; i < N; i++) vst(s + i * VW, x[i]);
    for (int j = 0; j < from; j++) s[j] = -INFINITY;
    for (int j = to; j < BLOCK; j++) s[j] = -INFINITY;
    UNROLL for (int i = 0; i < N; i++) x[i] = vld(s + i * VW);
  }
  vf most = x[0];
  UNROLL for (int i = 1; i < N; i++) most = vmax(x[i], most);
  float block_max = vec_max(most), old = st->max[r];
  if (!(block_max > -INFINITY)) {  // nothing here for this row
    UNROLL for (int i = 0; i < N; i++) vst(s + i * VW, vset1(0));
    return;
  }
  if (block_max > old) {
    float shrink = exp_one(old - block_max), *o = st->o + (size_t)r * (size_t)st->stride;
    for (int i = 0; i < st->stride; i += VW) vst(o + i, vld(o + i) * vset1(shrink));
    UNROLL for (int i = 0; i < NV; i++) vst(lanes + i * VW, vld(lanes + i * VW) * vset1(shrink));
    st->max[r] = old = block_max;
  }
  UNROLL for (int i = 0; i < N; i++) {
    x[i] = vexp(x[i] - vset1(old));
    vst(s + i * VW, x[i]);
  }
  UNROLL for (int i = 0; i < NV; i++) vst(lanes + i * VW, vld(lanes + i * VW) + (x[i] + x[i + NV]));
  if (st->scales) {
    UNROLL for (int i = 0; i < N; i++) vst(s + i * VW, x[i] * vld(st->scales + BLOCK + i * VW));
  }
}

// One block at `start` for all rows of the task that see any of it; dtype is that
// of the values that b points at.
static void attend_block(const attn_state *st, const msgl_op *op, const msgl_attn_task *t, int start,
                         const block_rows *b, int dtype) {
  int window = op->i[4], end = t->position + t->rows;
  // Rows are in order of position: those before `row` lie before the block.
  int row = (int)msgl_max(0, start - t->position);
  int first = row * st->group / ATTN_ROWS * ATTN_ROWS;
  for (int r = first; r < st->rows; r += ATTN_ROWS) {
    int nr = (int)msgl_min(ATTN_ROWS, st->rows - r);
    scores_tile(nr, st->s + (size_t)r * BLOCK, st->q + (size_t)r * (size_t)st->d, st->kt, st->d);
    for (int i = r; i < r + nr; i++) {
      int p = t->position + i / st->group;
      int to = (int)msgl_max(0, msgl_min(BLOCK, p + 1 - start));
      int from = window > 0 ? (int)msgl_min(to, msgl_max(0, p + 1 - window - start)) : 0;
      soften(st, i, from, to, op->f[0]);
    }
    values_tile(dtype, nr, st->o + (size_t)r * (size_t)st->stride, st->s + (size_t)r * BLOCK, b, st->stride,
                (int)msgl_min(BLOCK, end - start));
  }
}

static void attend_chunk(const attn_state *st, const msgl_op *op, const msgl_attn_task *t, int head, int chunk) {
  int end = t->position + t->rows, dtype = op->t[2].dtype;
  int lo = op->i[4] > 0 ? (int)msgl_max(0, t->position + 1 - op->i[4]) : 0;
  size_t bytes = (size_t)st->d * msgl_elem_size(dtype), scales = st->scales ? scale_offset(op, head) : 0;
  for (int r = 0; r < st->rows; r++) st->max[r] = -INFINITY;
  memset(st->lanes, 0, (size_t)st->rows * LANES * sizeof(float));
  memset(st->o, 0, (size_t)st->rows * (size_t)st->stride * sizeof(float));
  int first = (int)msgl_max((int64_t)chunk * MSGL_ATTN_CHUNK, lo / BLOCK * BLOCK);
  int last = (int)msgl_min((int64_t)(chunk + 1) * MSGL_ATTN_CHUNK, end);
  // Several tiles of rows share a conversion of the values; a padded head needs a copy.
  int copy = st->d != st->stride || (dtype != MSGL_F32 && st->rows > ATTN_ROWS);
  block_rows rows, next;
  find_rows(&next, op, t->request, head, first, lo, end);
  for (int start = first; start < last; start += BLOCK) {
    rows = next;
    load_keys(dtype, st->kt, &rows, st->d);
    if (scales) {
      load_scales(st->scales, rows.k, scales);
      load_scales(st->scales + BLOCK, rows.v, scales);
    }
    if (copy) load_values(dtype, st->v, &rows, st->d, st->stride);
    if (start + BLOCK < end) {
      find_rows(&next, op, t->request, head, start + BLOCK, lo, end);
      prefetch_rows(&next, bytes, scales);
    }
    attend_block(st, op, t, start, &rows, copy ? MSGL_F32 : dtype);
  }
}

// Merges a chunk's result, (max, sum, o), into that of the chunks before it.
ALWAYS void merge_row(float *all_max, float *all_sum, float *all_o, float max, float sum, const float *o, int stride) {
  if (!(max > -INFINITY)) return;
  float top = max > *all_max ? max : *all_max;
  float keep = exp_one(*all_max - top), take = exp_one(max - top);
  *all_max = top;
  *all_sum = *all_sum * keep + sum * take;
  for (int i = 0; i < stride; i += VW) vst(all_o + i, vfma(vld(o + i), vset1(take), vld(all_o + i) * vset1(keep)));
}

static void reset_all(const attn_state *st) {
  for (int r = 0; r < st->rows; r++) {
    st->all_max[r] = -INFINITY;
    st->all_sum[r] = 0;
  }
  memset(st->all_o, 0, (size_t)st->rows * (size_t)st->stride * sizeof(float));
}

static void store_output(const attn_state *st, const msgl_op *op, const msgl_attn_task *t, int head) {
  for (int r = 0; r < st->rows; r++) {
    const float *o = st->all_o + (size_t)r * (size_t)st->stride;
    float *dst = msgl_row(&op->t[0], t->row + r / st->group) + (size_t)(head * st->group + r % st->group) * (size_t)st->d;
    for (int i = 0; i < st->d; i++) dst[i] = o[i] / st->all_sum[r];
  }
}

static float *partial_row(const msgl_job *job, int slot, int head, int r) {
  const msgl_attn_plan *p = &job->attn;
  size_t at = ((size_t)slot * (size_t)job->op->i[1] + (size_t)head) * (size_t)p->tile_rows + (size_t)r;
  return p->partials + at * (size_t)(p->head_stride + 2);
}

// Items: tasks x key/value heads.
static void attention(const msgl_job *job, int thread, int64_t from, int64_t to) {
  const msgl_op *op = job->op;
  for (int64_t item = from; item < to; item++) {
    const msgl_attn_task *t = &job->attn.tasks[item / op->i[1]];
    int head = (int)(item % op->i[1]);
    attn_state st = attn_open(job, thread, t->rows);
    load_queries(&st, op, t->row, head);
    reset_all(&st);
    for (int chunk = t->chunk_from; chunk < t->chunk_to; chunk++) {
      attend_chunk(&st, op, t, head, chunk);
      for (int r = 0; r < st.rows; r++) {
        float sum = lanes_sum(st.lanes + (size_t)r * LANES), *o = st.o + (size_t)r * (size_t)st.stride;
        if (t->partial < 0) {
          merge_row(&st.all_max[r], &st.all_sum[r], st.all_o + (size_t)r * (size_t)st.stride, st.max[r], sum, o, st.stride);
          continue;
        }
        float *part = partial_row(job, t->partial, head, r);
        part[st.stride] = st.max[r];
        part[st.stride + 1] = sum;
        memcpy(part, o, (size_t)st.stride * sizeof(float));
      }
    }
    if (t->partial < 0) store_output(&st, op, t, head);
  }
}

// Items as above; the first task of a tile merges the chunks of all.
static void attention_merge(const msgl_job *job, int thread, int64_t from, int64_t to) {
  const msgl_op *op = job->op;
  const msgl_attn_plan *p = &job->attn;
  for (int64_t item = from; item < to; item++) {
    int64_t i = item / op->i[1];
    const msgl_attn_task *t = &p->tasks[i];
    int head = (int)(item % op->i[1]);
    if (t->partial < 0 || (i > 0 && p->tasks[i - 1].row == t->row)) continue;
    attn_state st = attn_open(job, thread, t->rows);
    reset_all(&st);
    for (; i < p->ntasks && p->tasks[i].row == t->row; i++) {
      for (int r = 0; r < st.rows; r++) {
        const float *part = partial_row(job, p->tasks[i].partial, head, r);
        merge_row(&st.all_max[r], &st.all_sum[r], st.all_o + (size_t)r * (size_t)st.stride, part[st.stride],
                  part[st.stride + 1], part, st.stride);
      }
    }
    store_output(&st, op, t, head);
  }
}
