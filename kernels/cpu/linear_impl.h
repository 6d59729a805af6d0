// linear_impl.h: dst = x wT + bias.
//
// An output is one chain of multiply-adds over k = 0, 1, ... whatever the number
// of rows. Vectors run across the 16 outputs of a panel, so there are no
// horizontal sums, and a chain that is interrupted goes on from memory.
//
//   linear_pack     copies x to [block][K/2][rows of the block][2]
//   linear_stream   few rows: weights stream from memory once, several panels at
//                   a time, because one stream does not fill the memory's latency
//   linear_blocked  many rows: a chunk of weights stays in L1 while all rows of a
//                   group of blocks pass over it

// Registers decide: accumulators are panels x rows x NV.
#if defined(MSGL_ISA_AVX512)
enum { LINEAR_ROWS = 12, BLOCKED_PANELS = 2 };
ALWAYS int stream_panels(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
#define STREAM_TILES(X) X(8, 1) X(8, 2) ROWS_1_6(X, 4) ROWS_1_6(X, 2) ROWS_7_12(X, 2)
#define BLOCKED_TILES(X) ROWS_1_6(X, 2) ROWS_7_12(X, 2) ROWS_1_6(X, 1) ROWS_7_12(X, 1)
#elif defined(MSGL_ISA_AVX2) || defined(__aarch64__)
enum { LINEAR_ROWS = 6, BLOCKED_PANELS = 1 };
ALWAYS int stream_panels(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#define STREAM_TILES(X) X(4, 1) X(2, 1) X(2, 2) X(2, 3) X(1, 4) X(1, 5) X(1, 6)
#define BLOCKED_TILES(X) ROWS_1_6(X, 1)
#else
enum { LINEAR_ROWS = 3, BLOCKED_PANELS = 1 };
ALWAYS int stream_panels(int rows) { return rows == 1 ? 2 : 1; }
#define STREAM_TILES(X) X(2, 1) X(1, 2) X(1, 3)
#define BLOCKED_TILES(X) X(1, 1) X(1, 2) X(1, 3)
#endif
#define ROWS_1_6(X, np) X(np, 1) X(np, 2) X(np, 3) X(np, 4) X(np, 5) X(np, 6)
#define ROWS_7_12(X, np) X(np, 7) X(np, 8) X(np, 9) X(np, 10) X(np, 11) X(np, 12)

enum {
  MAX_PANELS = 8,
  LINE = 64,
  AHEAD = 8192,       // bytes that a stream is prefetched ahead
  CHUNK_PAIRS = 128,  // pairs of columns of a chunk of weights: 8 KiB a panel in bf16
};

typedef struct {
  const char *w;        // the first panel, at the first pair
  size_t panel;         // bytes from panel to panel
  const float *x;       // [pairs][rows][2]
  int pairs;
  float *c;             // [rows][panels * 16]
  size_t ldc;
  const float *bias;    // of the first panel's outputs, or NULL; added after the last pair
  int begin;            // whether the chains start here; else they go on from c
  const char *ahead;    // what to prefetch: the chunk of weights that comes next
  int ahead_step;       // bytes of it per pair
} linear_tile;

ALWAYS vf weights(int bf16, const char *w, int half, int v) {
  if (!bf16) return vld((const float *)w + half * LANES + v * VW);
  vu u = vldu(w + v * VW * 4);
  return half ? (vf)(u & 0xffff0000u) : (vf)(u << 16);
}

// One pair of columns: two multiply-adds for every accumulator.
ALWAYS void pair_step(int bf16, int np, int nb, vf acc[MAX_PANELS][LINEAR_ROWS][NV], const char *w, size_t panel,
                      const float *x) {
  UNROLL for (int half = 0; half < 2; half++) {
    vf wv[MAX_PANELS][NV];
    UNROLL for (int p = 0; p < np; p++) {
      UNROLL for (int v = 0; v < NV; v++) wv[p][v] = weights(bf16, w + (size_t)p * panel, half, v);
    }
    UNROLL for (int b = 0; b < nb; b++) {
      vf xv = vset1(x[2 * b + half]);
      UNROLL for (int p = 0; p < np; p++) {
        UNROLL for (int v = 0; v < NV; v++) acc[p][b][v] = vfma(wv[p][v], xv, acc[p][b][v]);
      }
    }
  }
}

ALWAYS void prefetch_panels(int bf16, int np, const char *p, size_t panel) {
  UNROLL for (int i = 0; i < np; i++) {
    __builtin_prefetch(p + (size_t)i * panel, 0, 3);
    if (!bf16) __builtin_prefetch(p + (size_t)i * panel + LINE, 0, 3);
  }
}

// All pairs, prefetching AHEAD bytes ahead in every stream; at a panel's end that
// is the start of the panel that the stream goes on with, np panels further.
ALWAYS void stream_pairs(int bf16, int np, int nb, vf acc[MAX_PANELS][LINEAR_ROWS][NV], const linear_tile *t) {
  const int line = bf16 ? LINE : 2 * LINE;
  const char *w = t->w;
  const float *x = t->x;
  int turn = t->pairs - AHEAD / line;
  if (turn < 0) turn = 0;
  for (int part = 0; part < 2; part++) {
    size_t ahead = AHEAD + (part ? (size_t)(np - 1) * t->panel : 0);
    int pairs = part ? t->pairs - turn : turn;
    for (int k = 0; k < pairs; k++) {
      prefetch_panels(bf16, np, w + ahead, t->panel);
      pair_step(bf16, np, nb, acc, w, t->panel, x);
      w += line;
      x += 2 * nb;
    }
  }
}

ALWAYS void chunk_pairs(int bf16, int np, int nb, vf acc[MAX_PANELS][LINEAR_ROWS][NV], const linear_tile *t) {
  const char *w = t->w, *ahead = t->ahead;
  const float *x = t->x;
  for (int k = 0; k < t->pairs; k++) {
    UNROLL for (int p = 0; p < np; p++) __builtin_prefetch(ahead + (size_t)p * t->panel, 0, 3);
    pair_step(bf16, np, nb, acc, w, t->panel, x);
    w += bf16 ? LINE : 2 * LINE;
    x += 2 * nb;
    ahead += t->ahead_step;
  }
}

ALWAYS void run_tile(int bf16, int stream, int np, int nb, const linear_tile *t) {
  vf acc[MAX_PANELS][LINEAR_ROWS][NV];
  UNROLL for (int p = 0; p < np; p++) {
    UNROLL for (int b = 0; b < nb; b++) {
      UNROLL for (int v = 0; v < NV; v++) {
        acc[p][b][v] = t->begin ? vset1(0) : vld(t->c + (size_t)b * t->ldc + p * LANES + v * VW);
      }
    }
  }
  if (stream) {
    stream_pairs(bf16, np, nb, acc, t);
  } else {
    chunk_pairs(bf16, np, nb, acc, t);
  }
  UNROLL for (int p = 0; p < np; p++) {
    UNROLL for (int v = 0; v < NV; v++) {
      int col = p * LANES + v * VW;
      vf bias = t->bias ? vld(t->bias + col) : vset1(0);
      UNROLL for (int b = 0; b < nb; b++) {
        vst(t->c + (size_t)b * t->ldc + col, t->bias ? acc[p][b][v] + bias : acc[p][b][v]);
      }
    }
  }
}

#define TILE_KEY(np, nb) ((np) * 16 + (nb))
#define STREAM_BF16(np, nb) case TILE_KEY(np, nb): run_tile(1, 1, np, nb, t); break;
#define STREAM_F32(np, nb) case TILE_KEY(np, nb): run_tile(0, 1, np, nb, t); break;
#define CHUNK_BF16(np, nb) case TILE_KEY(np, nb): run_tile(1, 0, np, nb, t); break;
#define CHUNK_F32(np, nb) case TILE_KEY(np, nb): run_tile(0, 0, np, nb, t); break;

static void chunk_tile(int bf16, int np, int nb, const linear_tile *t) {
  if (bf16) {
    switch (TILE_KEY(np, nb)) { BLOCKED_TILES(CHUNK_BF16) }
  } else {
    switch (TILE_KEY(np, nb)) { BLOCKED_TILES(CHUNK_F32) }
  }
}

// A panel that is left over takes the other kernel: it is one stream either way.
static void stream_tile(int bf16, int np, int nb, const linear_tile *t) {
  if (bf16) {
    switch (TILE_KEY(np, nb)) {
      STREAM_TILES(STREAM_BF16)
      default: chunk_tile(bf16, np, nb, t);
    }
  } else {
    switch (TILE_KEY(np, nb)) {
      STREAM_TILES(STREAM_F32)
      default: chunk_tile(bf16, np, nb, t);
    }
  }
}

// Items: blocks x ranges of 128 pairs.
static void linear_pack(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_linear_plan *p = &job->linear;
  const msgl_tensor *x = &job->op->t[1];
  int64_t ranges = msgl_ceil_div(p->pairs, 128);
  for (int64_t item = from; item < to; item++) {
    int64_t row = item / ranges * p->block_rows, first = item % ranges * 128;
    int64_t rows = msgl_min(p->block_rows, x->rows - row), last = msgl_min(first + 128, p->pairs);
    float *block = (float *)job->shared + row * p->pairs * 2;
    for (int64_t b = 0; b < rows; b++) {
      const float *in = msgl_row(x, row + b);
      float *out = block + 2 * b;
      for (int64_t k = first; k < last; k++) {
        out[k * 2 * rows] = in[2 * k];
        out[k * 2 * rows + 1] = 2 * k + 1 < x->cols ? in[2 * k + 1] : 0;
      }
    }
  }
}

// What the functions below need to know of the operation.
typedef struct {
  const msgl_linear_plan *plan;
  const msgl_tensor *dst, *w, *bias;
  const float *x;  // packed, or the only row
  int bf16;
  size_t panel;    // bytes
  int full;        // panels without padding
} linear_ctx;

ALWAYS linear_ctx linear_open(const msgl_job *job) {
  const msgl_op *op = job->op;
  linear_ctx c = {&job->linear, &op->t[0], &op->t[2], &op->t[3], NULL, 0, 0, 0};
  c.x = c.plan->packed ? (const float *)job->shared : msgl_f32(&op->t[1]);
  c.bf16 = c.w->dtype == MSGL_BF16;
  c.panel = msgl_panel_bytes(c.plan->pairs, c.w->dtype);
  c.full = c.w->rows / MSGL_PANEL;
  return c;
}

ALWAYS const char *panel_at(const linear_ctx *c, int64_t p) {
  return (const char *)(uintptr_t)c->w->addr + (size_t)p * c->panel;
}

// Copies the outputs of the last, partial panel from tile [rows][16] to dst.
static void store_partial(const linear_ctx *c, const float *tile, int64_t row, int64_t rows) {
  int first = c->full * MSGL_PANEL, n = c->w->rows - first;
  const float *bias = c->bias->addr ? msgl_f32(c->bias) + first : NULL;
  for (int64_t b = 0; b < rows; b++) {
    float *out = msgl_row(c->dst, row + b) + first;
    for (int i = 0; i < n; i++) out[i] = bias ? tile[b * LANES + i] + bias[i] : tile[b * LANES + i];
  }
}

// Items: panels.
static void linear_stream(const msgl_job *job, int thread, int64_t from, int64_t to) {
  linear_ctx c = linear_open(job);
  int rows = c.dst->rows, widest = stream_panels(rows);
  float *own = (float *)(job->own + (size_t)thread * job->own_bytes);
  for (int64_t p = from; p < to;) {
    int np = widest;
    int partial = p >= c.full;
    while (np > 1 && p + np > msgl_min(to, c.full)) np /= 2;
    linear_tile t = {.w = panel_at(&c, p), .panel = c.panel, .x = c.x, .pairs = c.plan->pairs, .begin = 1};
    t.ahead = t.w + AHEAD;
    t.ahead_step = c.bf16 ? LINE : 2 * LINE;
    t.c = partial ? own : msgl_f32(c.dst) + p * MSGL_PANEL;
    t.ldc = partial ? LANES : (size_t)c.dst->stride;
    t.bias = !partial && c.bias->addr ? msgl_f32(c.bias) + p * MSGL_PANEL : NULL;
    stream_tile(c.bf16, np, rows, &t);
    if (partial) store_partial(&c, own, 0, rows);
    p += np;
  }
}

// np panels from p on, for the blocks [block, end).
static void blocked_panels(const linear_ctx *c, float *own, int64_t p, int np, int block, int end) {
  const msgl_linear_plan *plan = c->plan;
  int partial = p >= c->full, line = c->bf16 ? LINE : 2 * LINE;
  int64_t first_row = (int64_t)block * plan->block_rows;
  int64_t end_row = msgl_min((int64_t)end * plan->block_rows, c->dst->rows);
  for (int k = 0; k < plan->pairs; k += CHUNK_PAIRS) {
    linear_tile t = {.w = panel_at(c, p) + (size_t)k * (size_t)line, .panel = c->panel, .begin = k == 0};
    t.pairs = (int)msgl_min(CHUNK_PAIRS, plan->pairs - k);
    int last = k + t.pairs == plan->pairs;
    t.ldc = partial ? LANES : (size_t)c->dst->stride;
    t.bias = last && !partial && c->bias->addr ? msgl_f32(c->bias) + p * MSGL_PANEL : NULL;
    // Each block of rows fetches its share of the chunk that comes next.
    const char *next = last ? panel_at(c, p + np) : t.w + (size_t)t.pairs * (size_t)line;
    t.ahead_step = line / (end - block);
    for (int64_t row = first_row; row < end_row; row += plan->block_rows) {
      int nb = (int)msgl_min(plan->block_rows, end_row - row);
      t.x = c->x + (row * plan->pairs + (int64_t)k * nb) * 2;
      t.c = partial ? own + (row - first_row) * LANES : msgl_row(c->dst, row) + p * MSGL_PANEL;
      t.ahead = next;
      chunk_tile(c->bf16, np, nb, &t);
      next += (size_t)t.ahead_step * (size_t)t.pairs;
    }
  }
  if (partial) store_partial(c, own, first_row, end_row - first_row);
}

// Items: groups of blocks x panels.
static void linear_blocked(const msgl_job *job, int thread, int64_t from, int64_t to) {
  linear_ctx c = linear_open(job);
  const msgl_linear_plan *plan = c.plan;
  float *own = (float *)(job->own + (size_t)thread * job->own_bytes);
  int64_t panels = msgl_ceil_div(c.w->rows, MSGL_PANEL);
  for (int64_t item = from; item < to;) {
    int64_t p = item % panels, block = item / panels * plan->group;
    int64_t left = msgl_min(to - item, c.full - p);
    int np = left >= BLOCKED_PANELS ? BLOCKED_PANELS : 1;
    blocked_panels(&c, own, p, np, (int)block, (int)msgl_min(block + plan->group, plan->blocks));
    item += np;
  }
}
