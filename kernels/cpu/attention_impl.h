// attention_impl.h: causal attention over the paged cache.
//
// A task is a tile of query rows of one request under one key/value head, or, of
// few rows, under several; the query heads that share a key/value head are further
// rows of the tile. Positions go in blocks of 32
// and chunks of 256, both at fixed multiples from 0. Within a chunk the softmax
// is online (Milakov and Gimelshein, 2018), block after block; chunks start anew
// and are merged in order. So a row's arithmetic depends on its position alone,
// however rows, heads, chunks and requests are spread over tasks and batches.

#include "attention_block_impl.h"
#include "attention_scores_impl.h"

// A thread's scratch for one task. Rows are (row, query head) pairs, in this order,
// those of the first key/value head before those of the next.
typedef struct {
  int rows, group, d, stride;  // rows: under one key/value head
  int padded;                  // d with the zeros after it
  float *keys, *v;             // transpose_keys's; [32][stride]
  float *scales;               // of i8 keys and values [2][32]; NULL for other types
  float *q;                    // of each head, tiles of rows as their scores want them
  float *s;                    // [rows][32]
  float *max, *lanes, *o;      // of the chunk: [rows], [rows][16], [rows][stride]
  float *shrink;               // [rows]: what o is to be multiplied by before the block's values are added
  float *all_max, *all_sum, *all_o;  // of the chunks so far
} attn_state;

static attn_state attn_open(const msgl_job *job, int thread, int rows) {
  const msgl_op *op = job->op;
  size_t pairs = (size_t)job->attn.pairs, padded = (size_t)job->attn.head_padded, stride = (size_t)job->attn.head_stride;
  float *p = (float *)(job->own + (size_t)thread * job->own_bytes);
  attn_state st = {.group = op->i[0] / op->i[1], .d = op->i[2], .stride = (int)stride, .padded = (int)padded};
  st.rows = rows * st.group;
  float **parts[] = {&st.keys, &st.v, &st.scales, &st.q, &st.s, &st.max, &st.lanes, &st.o, &st.shrink, &st.all_max, &st.all_sum, &st.all_o};
  size_t sizes[] = {padded * BLOCK, BLOCK * stride, 2 * BLOCK, pairs * padded, pairs * BLOCK, pairs, pairs * LANES, pairs * stride,
                    pairs, pairs, pairs, pairs * stride};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    *parts[i] = p;
    p += (sizes[i] + 15) / 16 * 16;
  }
  if (op->t[2].dtype != MSGL_I8) st.scales = NULL;
  return st;
}

// The scratch of the task's head h alone.
ALWAYS attn_state head_state(attn_state st, int h) {
  size_t first = (size_t)h * (size_t)st.rows, stride = (size_t)st.stride;
  st.q += first * (size_t)st.padded;
  st.s += first * BLOCK;
  st.max += first;
  st.lanes += first * LANES;
  st.shrink += first;
  st.o += first * stride;
  st.all_max += first;
  st.all_sum += first;
  st.all_o += first * stride;
  return st;
}

// Whether scores are dot products rather than an outer one.
ALWAYS int uses_dot(const attn_state *st) { return st->rows <= DOT_MOST; }

// Copies queries to the scratch. head: of keys and values
ALWAYS void place_queries(int dtype, const attn_state *st, const msgl_op *op, int row, int head) {
  const int padded = st->padded, dot = uses_dot(st), tile = dot ? 1 : ATTN_ROWS;
  memset(st->q, 0, (size_t)(st->rows * padded) * sizeof(float));
  for (int pair = 0; pair < st->rows; pair++) {
    const float *q = msgl_row(&op->t[1], row + pair / st->group) + (size_t)(head * st->group + pair % st->group) * (size_t)st->d;
    int first = pair / tile * tile, nr = (int)msgl_min(tile, st->rows - first);
    float *to = st->q + (size_t)(first * padded + pair - first);
    // Places of 8 elements are at the same distances from that of their first one, wherever that is.
    for (int e = 0; e < st->d; e += 8) {
      float *at = to + (dot ? dot_index(dtype, e) : outer_index(dtype, padded, e)) * nr;
      UNROLL for (int i = 0; i < 8; i++) at[(dot ? dot_index(dtype, i) : outer_index(dtype, padded, i)) * nr] = q[e + i];
    }
  }
}

static void load_queries(const attn_state *st, const msgl_op *op, int row, int head) {
  if (op->t[2].dtype == MSGL_BF16) {
    place_queries(MSGL_BF16, st, op, row, head);
  } else {
    place_queries(MSGL_F32, st, op, row, head);
  }
}

// The positions of a block that a row sees.
typedef struct {
  int from, to;
} row_span;

// A row's scores, where there are none -inf.
ALWAYS void scaled_scores(const attn_state *st, const float *s, row_span seen, float scale, vf x[BLOCK / VW]) {
  static const int32_t places[BLOCK] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
  UNROLL for (int i = 0; i < BLOCK / VW; i++) {
    x[i] = vld(s + i * VW) * vset1(scale);
    if (st->scales) x[i] *= vld(st->scales + i * VW);
  }
  if (seen.from == 0 && seen.to == BLOCK) return;
  UNROLL for (int i = 0; i < BLOCK / VW; i++) {
    vi place = (vi)vldu(places + i * VW), in = (place >= vset1i(seen.from)) & (place < vset1i(seen.to));
    x[i] = (vf)(((vi)x[i] & in) | ((vi)vset1(-INFINITY) & ~in));
  }
}

// Turns the scores of nr rows from r on into weights exp(s * scale - max). What the chunk has summed
// so far is to be multiplied by the row's `shrink`; lanes are. The scales of i8 values go into the
// weights, once those have been summed. Rows beside each other hide each other's latencies.
ALWAYS void soften_rows(int nr, const attn_state *st, int r, const row_span seen[ATTN_ROWS], float scale) {
  enum { N = BLOCK / VW };
  _Static_assert(ATTN_ROWS <= VW, "a vector holds a value of each row");
  float *s = st->s + (size_t)r * BLOCK, *lanes = st->lanes + (size_t)r * LANES;
  vf x[ATTN_ROWS][N];
  float most[VW] = {0}, base[VW];
  UNROLL for (int j = 0; j < nr; j++) {
    scaled_scores(st, s + j * BLOCK, seen[j], scale, x[j]);
    vf m = x[j][0];
    UNROLL for (int i = 1; i < N; i++) m = vmax(x[j][i], m);
    most[j] = vec_max(m);
  }
  vf before = vld_part(st->max + r, nr), after = vmax(vld(most), before);
  vf finite = (vf)((vi)after & (vi)(after > vset1(-INFINITY)));  // 0 where a row has seen nothing yet
  vst(base, finite);
  vst_part(st->max + r, after, nr);
  vst_part(st->shrink + r, vexp(before - finite), nr);
  UNROLL for (int j = 0; j < nr; j++) {
    UNROLL for (int i = 0; i < N; i++) {
      x[j][i] = vexp(x[j][i] - vset1(base[j]));
      vst(s + j * BLOCK + i * VW, x[j][i]);
    }
    UNROLL for (int i = 0; i < NV; i++) {
      float *lane = lanes + j * LANES + i * VW;
      vst(lane, vld(lane) * vset1(st->shrink[r + j]) + (x[j][i] + x[j][i + NV]));
    }
    if (st->scales) {
      UNROLL for (int i = 0; i < N; i++) vst(s + j * BLOCK + i * VW, x[j][i] * vld(st->scales + BLOCK + i * VW));
    }
  }
}

#define SOFTEN(nr) case nr: soften_rows(nr, st, r, seen, scale); break;
static void soften(const attn_state *st, int r, int nr, const row_span seen[ATTN_ROWS], float scale) {
  switch (nr) { ATTN_TILES(SOFTEN) }
}

// The scores of nr rows from r on.
static void score_rows(const attn_state *st, int dtype, int r, int nr, const block_rows *b, lines_ahead *ahead) {
  float *s = st->s + (size_t)r * BLOCK;
  const float *q = st->q + (size_t)(r * st->padded);
  if (!uses_dot(st)) {
    outer_tile(dtype, nr, s, q, st->keys, st->padded, ahead);
    return;
  }
  for (int i = 0; i < nr; i += DOT_ROWS) {
    dot_tile(dtype, (int)msgl_min(DOT_ROWS, nr - i), s + i * BLOCK, q + i * st->padded, b->k, st->d, st->padded, ahead);
  }
}

// One block at `start` for all rows of the task that see any of it; dtype is that
// of the values that b points at.
static void attend_block(const attn_state *st, const msgl_op *op, const msgl_attn_task *t, int start,
                         const block_rows *b, int dtype, lines_ahead *ahead) {
  int window = op->i[4], end = t->position + t->rows;
  // Rows are in order of position: those before `row` lie before the block.
  int row = (int)msgl_max(0, start - t->position);
  int first = row * st->group / ATTN_ROWS * ATTN_ROWS;
  for (int r = first; r < st->rows; r += ATTN_ROWS) {
    int nr = (int)msgl_min(ATTN_ROWS, st->rows - r);
    score_rows(st, op->t[2].dtype, r, nr, b, ahead);
    row_span seen[ATTN_ROWS];
    for (int i = 0; i < nr; i++) {
      int p = t->position + (r + i) / st->group;
      seen[i].to = (int)msgl_max(0, msgl_min(BLOCK, p + 1 - start));
      seen[i].from = window > 0 ? (int)msgl_min(seen[i].to, msgl_max(0, p + 1 - window - start)) : 0;
    }
    soften(st, r, nr, seen, op->f[0]);
    values_tile(dtype, nr, st->o + (size_t)r * (size_t)st->stride, st->shrink + r, st->s + (size_t)r * BLOCK, b, st->stride,
                (int)msgl_min(BLOCK, end - start), ahead);
  }
}

// One block under one head, whose keys and values b points at.
static void attend_head(const attn_state *st, const msgl_op *op, const msgl_attn_task *t, int head, int start, block_rows *b,
                        lines_ahead *ahead) {
  int dtype = op->t[2].dtype;
  if (!uses_dot(st)) load_keys(dtype, st->keys, b->k, st->d, st->padded);
  if (st->scales) {
    load_scales(st->scales, b->k, scale_offset(op, head));
    load_scales(st->scales + BLOCK, b->v, scale_offset(op, head));
  }
  // Several tiles of rows share a conversion of the values; a padded head needs a copy.
  int copy = st->d != st->stride || (dtype != MSGL_F32 && st->rows > ATTN_ROWS);
  if (copy) load_values(dtype, st->v, b, st->d, st->stride);
  attend_block(st, op, t, start, b, copy ? MSGL_F32 : dtype, ahead);
  while (ahead->rows > 0) prefetch_lines(ahead);
}

static void attend_chunk(const attn_state *st, const msgl_op *op, const msgl_attn_task *t, int chunk) {
  int end = t->position + t->rows, rows = st->rows * t->heads;
  int lo = op->i[4] > 0 ? (int)msgl_max(0, t->position + 1 - op->i[4]) : 0;
  for (int r = 0; r < rows; r++) st->max[r] = -INFINITY;
  memset(st->lanes, 0, (size_t)rows * LANES * sizeof(float));
  memset(st->o, 0, (size_t)rows * (size_t)st->stride * sizeof(float));
  int first = (int)msgl_max((int64_t)chunk * MSGL_ATTN_CHUNK, lo / BLOCK * BLOCK);
  int last = (int)msgl_min((int64_t)(chunk + 1) * MSGL_ATTN_CHUNK, end);
  block_rows here, next;
  find_rows(&next, op, t->request, first, lo, end);
  // Nothing went before that could have asked for the first block of all.
  for (int h = 0; h < t->heads && chunk == t->chunk_from; h++) {
    lines_ahead ahead = share_of(&next, op, t, h);
    while (ahead.rows > 0) prefetch_lines(&ahead);
  }
  for (int start = first; start < last; start += BLOCK) {
    here = next;
    int more = start + BLOCK < end;
    if (more) find_rows(&next, op, t->request, start + BLOCK, lo, end);
    for (int h = 0; h < t->heads; h++) {
      lines_ahead ahead = share_of(&next, op, t, h);
      if (!more) ahead.rows = 0;
      block_rows b = rows_of_head(&here, op, t->head + h);
      attn_state one = head_state(*st, h);
      attend_head(&one, op, t, t->head + h, start, &b, &ahead);
    }
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

static void reset_all(const attn_state *st, int rows) {
  for (int r = 0; r < rows; r++) {
    st->all_max[r] = -INFINITY;
    st->all_sum[r] = 0;
  }
  memset(st->all_o, 0, (size_t)rows * (size_t)st->stride * sizeof(float));
}

static void store_output(const attn_state *st, const msgl_op *op, const msgl_attn_task *t) {
  for (int r = 0; r < st->rows * t->heads; r++) {
    int head = t->head + r / st->rows, pair = r % st->rows;
    const float *o = st->all_o + (size_t)r * (size_t)st->stride;
    float *dst = msgl_row(&op->t[0], t->row + pair / st->group) + (size_t)(head * st->group + pair % st->group) * (size_t)st->d;
    for (int i = 0; i < st->d; i++) dst[i] = o[i] / st->all_sum[r];
  }
}

// The result of one chunk for row r of a task: o[stride], max, sum.
static float *partial_row(const msgl_job *job, const attn_state *st, const msgl_attn_task *t, int slot, int r) {
  const msgl_attn_plan *p = &job->attn;
  size_t head = (size_t)(t->head + r / st->rows), kv = (size_t)job->op->i[1];
  size_t at = ((size_t)slot * kv + head) * (size_t)p->tile_rows + (size_t)(r % st->rows);
  return p->partials + at * (size_t)(p->head_stride + 2);
}

// Items: tasks.
static void attention(const msgl_job *job, int thread, int64_t from, int64_t to) {
  const msgl_op *op = job->op;
  for (int64_t item = from; item < to; item++) {
    const msgl_attn_task *t = &job->attn.tasks[item];
    attn_state st = attn_open(job, thread, t->rows);
    int rows = st.rows * t->heads;
    for (int h = 0; h < t->heads; h++) {
      attn_state one = head_state(st, h);
      load_queries(&one, op, t->row, t->head + h);
    }
    reset_all(&st, rows);
    for (int chunk = t->chunk_from; chunk < t->chunk_to; chunk++) {
      attend_chunk(&st, op, t, chunk);
      for (int r = 0; r < rows; r++) {
        float sum = lanes_sum(st.lanes + (size_t)r * LANES), *o = st.o + (size_t)r * (size_t)st.stride;
        if (t->partial < 0) {
          merge_row(&st.all_max[r], &st.all_sum[r], st.all_o + (size_t)r * (size_t)st.stride, st.max[r], sum, o, st.stride);
          continue;
        }
        float *part = partial_row(job, &st, t, t->partial, r);
        part[st.stride] = st.max[r];
        part[st.stride + 1] = sum;
        memcpy(part, o, (size_t)st.stride * sizeof(float));
      }
    }
    if (t->partial < 0) store_output(&st, op, t);
  }
}

// Items: tasks; that of the first chunk merges all.
static void attention_merge(const msgl_job *job, int thread, int64_t from, int64_t to) {
  for (int64_t item = from; item < to; item++) {
    const msgl_attn_task *t = &job->attn.tasks[item];
    if (t->parts == 0) continue;
    attn_state st = attn_open(job, thread, t->rows);
    int rows = st.rows * t->heads;
    reset_all(&st, rows);
    for (int slot = t->partial; slot < t->partial + t->parts; slot++) {
      for (int r = 0; r < rows; r++) {
        const float *part = partial_row(job, &st, t, slot, r);
        merge_row(&st.all_max[r], &st.all_sum[r], st.all_o + (size_t)r * (size_t)st.stride, part[st.stride],
                  part[st.stride + 1], part, st.stride);
      }
    }
    store_output(&st, job->op, t);
  }
}
