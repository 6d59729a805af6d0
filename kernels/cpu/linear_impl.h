// linear_impl.h: dst = x wT + bias.
//
// An output is one chain of multiply-adds over k = 0, 1, ... whatever the number
// of rows. Vectors run across the 16 outputs of a panel, so there are no
// horizontal sums, and a chain that is interrupted goes on from memory.
//
//   linear_pack     copies x to [block][step][rows of the block][values of a step];
//                   for quantized weights it rounds it (quant_impl.h)
//   linear_stream   few rows: weights stream from memory once, several panels at
//                   a time, because one stream does not fill the memory's latency
//   linear_blocked  many rows: a chunk of weights stays in L1 while all rows of a
//                   group of blocks pass over it

// Registers decide: accumulators are panels x rows x NV.
#if defined(MSGL_ISA_AVX512)
enum { LINEAR_ROWS = 12, QUANT8_ROWS = 6, QUANT4_ROWS = 6, BLOCKED_PANELS = 2 };
ALWAYS int stream_panels(int quant, int rows) {
  if (quant) return rows == 1 ? 8 : rows == 2 ? 4 : 2;
  return rows <= 2 ? 8 : rows <= 6 ? 4 : 2;
}
#define STREAM_TILES(X, T) X(T, 8, 1) X(T, 8, 2) ROWS_1_6(X, T, 4) ROWS_1_6(X, T, 2) ROWS_7_12(X, T, 2)
#define BLOCKED_TILES(X, T) ROWS_1_6(X, T, 2) ROWS_7_12(X, T, 2) ROWS_1_6(X, T, 1) ROWS_7_12(X, T, 1)
#define QUANT_STREAM_TILES(X, T) X(T, 8, 1) X(T, 4, 1) X(T, 4, 2) X(T, 2, 3) X(T, 2, 4) X(T, 2, 5) X(T, 2, 6)
#define QUANT_BLOCKED_TILES(X, T) ROWS_1_6(X, T, 2) ROWS_1_6(X, T, 1)
#elif defined(MSGL_ISA_AVX2) || defined(__aarch64__)
enum { LINEAR_ROWS = 6, QUANT8_ROWS = 4, QUANT4_ROWS = 4, BLOCKED_PANELS = 1 };
ALWAYS int stream_panels(int quant, int rows) { return quant ? (rows == 1 ? 4 : 1) : rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#define STREAM_TILES(X, T) X(T, 4, 1) X(T, 2, 1) X(T, 2, 2) X(T, 2, 3) X(T, 1, 4) X(T, 1, 5) X(T, 1, 6)
#define BLOCKED_TILES(X, T) ROWS_1_6(X, T, 1)
#define QUANT_STREAM_TILES(X, T) X(T, 4, 1) X(T, 2, 1) X(T, 1, 2) X(T, 1, 3) X(T, 1, 4)
#define QUANT_BLOCKED_TILES(X, T) X(T, 1, 1) X(T, 1, 2) X(T, 1, 3) X(T, 1, 4)
#else
enum { LINEAR_ROWS = 3, QUANT8_ROWS = 2, QUANT4_ROWS = 2, BLOCKED_PANELS = 1 };
ALWAYS int stream_panels(int quant, int rows) { return rows == 1 && !quant ? 2 : 1; }
#define STREAM_TILES(X, T) X(T, 2, 1) X(T, 1, 2) X(T, 1, 3)
#define BLOCKED_TILES(X, T) X(T, 1, 1) X(T, 1, 2) X(T, 1, 3)
#define QUANT_STREAM_TILES(X, T) X(T, 1, 1) X(T, 1, 2)
#define QUANT_BLOCKED_TILES(X, T) X(T, 1, 1) X(T, 1, 2)
#endif
#define ROWS_1_6(X, T, np) X(T, np, 1) X(T, np, 2) X(T, np, 3) X(T, np, 4) X(T, np, 5) X(T, np, 6)
#define ROWS_7_12(X, T, np) X(T, np, 7) X(T, np, 8) X(T, np, 9) X(T, np, 10) X(T, np, 11) X(T, np, 12)

enum {
  TILE_ROWS = 12,     // the most that any tile has
  LINE = 64,
  AHEAD = 4096,       // bytes that a stream is prefetched ahead
  CHUNK = 8192,       // bytes of a panel that stay in L1 while the rows pass over them
};

#include "quant_impl.h"

typedef struct {
  const char *w;        // the first panel, at the first step
  size_t panel;         // bytes from panel to panel
  const char *x;        // [steps][rows][values of a step]
  const char *flags;    // of quantized weights: bytes [steps][rows], whether x has more
  size_t more;          // bytes from a step of x to what was left of it
  int steps;
  float *c;             // [rows][panels * 16]
  size_t ldc;
  const float *bias;    // of the first panel's outputs, or NULL; added after the last step
  int begin;            // whether the chains start here; else they go on from c
  const char *ahead;    // what to prefetch: the chunk of weights that comes next
  int ahead_step;       // bytes of it per step
} linear_tile;

ALWAYS vf weights(int dtype, const char *w, int half, int v) {
  if (dtype == MSGL_F32) return vld((const float *)w + half * LANES + v * VW);
  if (dtype == MSGL_F16) return vld_f16((const uint16_t *)w + half * LANES + v * VW);
  vu u = vldu(w + v * VW * 4);
  return half ? (vf)(u & 0xffff0000u) : (vf)(u << 16);
}

#if defined(MSGL_BF16_DOT)
#if defined(MSGL_ISA_AVX512)
// Adds the second product, then the first, each exact and each sum rounded: pair_step's bits.
ALWAYS vf dot_pair(vf sum, vu w, vi x) { return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x); }
#else
// Adds the sum of both products; Arm rounds both sums its own way.
ALWAYS vf dot_pair(vf sum, vu w, vi x) {
  return (vf)vbfdotq_f32((float32x4_t)sum, vreinterpretq_bf16_u32((uint32x4_t)w), vreinterpretq_bf16_s32((int32x4_t)x));
}
#endif

// One pair of columns for every accumulator.
ALWAYS void dot_step(int np, int nb, vf acc[MSGL_MAX_PANELS][TILE_ROWS][NV], const char *w, size_t panel, const char *x) {
  vu wv[MSGL_MAX_PANELS][NV];
  UNROLL for (int p = 0; p < np; p++) {
    UNROLL for (int v = 0; v < NV; v++) wv[p][v] = vldu(w + (size_t)p * panel + v * VW * 4);
  }
  UNROLL for (int b = 0; b < nb; b++) {
    vi xv = vset1i(load_i32(x + 4 * b));
    UNROLL for (int p = 0; p < np; p++) {
      UNROLL for (int v = 0; v < NV; v++) acc[p][b][v] = dot_pair(acc[p][b][v], wv[p][v], xv);
    }
  }
}
#endif

// One pair of columns: two multiply-adds for every accumulator.
ALWAYS void pair_step(int dtype, int np, int nb, vf acc[MSGL_MAX_PANELS][TILE_ROWS][NV], const char *w, size_t panel,
                      const char *packed) {
#if defined(MSGL_BF16_DOT)
  if (dtype == MSGL_BF16) {
    dot_step(np, nb, acc, w, panel, packed);
    return;
  }
#endif
  const float *x = (const float *)packed;
  UNROLL for (int i = 0; i < 2; i++) {
    int half = dtype == MSGL_BF16 ? 1 - i : i;
    vf wv[MSGL_MAX_PANELS][NV];
    UNROLL for (int p = 0; p < np; p++) {
      UNROLL for (int v = 0; v < NV; v++) wv[p][v] = weights(dtype, w + (size_t)p * panel, half, v);
    }
    UNROLL for (int b = 0; b < nb; b++) {
      vf xv = vset1(x[2 * b + half]);
      UNROLL for (int p = 0; p < np; p++) {
        UNROLL for (int v = 0; v < NV; v++) vadd_product(&acc[p][b][v], wv[p][v], xv);
      }
    }
  }
}

ALWAYS void prefetch_panels(int dtype, int np, const char *p, size_t panel) {
  UNROLL for (int i = 0; i < np; i++) {
    prefetch(p + (size_t)i * panel);
    if (dtype == MSGL_F32) prefetch(p + (size_t)i * panel + LINE);
  }
}

// All steps, prefetching AHEAD bytes ahead in every stream; at a panel's end that
// is the start of the panel that the stream goes on with, np panels further.
ALWAYS void stream_steps(int dtype, int np, int nb, vf acc[MSGL_MAX_PANELS][TILE_ROWS][NV], const linear_tile *t) {
  const msgl_step step = msgl_step_of(dtype);
  const char *w = t->w, *x = t->x, *flags = t->flags;
  int turn = t->steps - AHEAD / step.bytes;
  if (turn < 0) turn = 0;
  for (int part = 0; part < 2; part++) {
    size_t ahead = AHEAD + (part ? (size_t)(np - 1) * t->panel : 0);
    int steps = part ? t->steps - turn : turn;
    for (int k = 0; k < steps; k++) {
      if (msgl_quant_of(dtype).bits) {
        int passes = 1 + any_left(flags, nb);
        for (int i = 0; i < passes; i++) quant_step(dtype, np, nb, acc, w, t->panel, x + (i ? t->more : 0), ahead, 1);
        flags += nb;
      } else {
        prefetch_panels(dtype, np, w + ahead, t->panel);
        pair_step(dtype, np, nb, acc, w, t->panel, x);
      }
      w += step.bytes;
      x += x_bytes(dtype) * nb;
    }
  }
}

ALWAYS void chunk_steps(int dtype, int np, int nb, vf acc[MSGL_MAX_PANELS][TILE_ROWS][NV], const linear_tile *t) {
  const msgl_step step = msgl_step_of(dtype);
  const char *w = t->w, *ahead = t->ahead, *x = t->x, *flags = t->flags;
  for (int k = 0; k < t->steps; k++) {
    UNROLL for (int p = 0; p < np; p++) {
      int line = 0;
      do {
        prefetch(ahead + (size_t)p * t->panel + line);
        line += LINE;
      } while (msgl_quant_of(dtype).bits && line < t->ahead_step);
    }
    if (msgl_quant_of(dtype).bits) {
      int passes = 1 + any_left(flags, nb);
      for (int i = 0; i < passes; i++) quant_step(dtype, np, nb, acc, w, t->panel, x + (i ? t->more : 0), 0, 0);
      flags += nb;
    } else {
      pair_step(dtype, np, nb, acc, w, t->panel, x);
    }
    w += step.bytes;
    x += x_bytes(dtype) * nb;
    ahead += t->ahead_step;
  }
}

ALWAYS void run_tile(int dtype, int stream, int np, int nb, const linear_tile *t) {
  vf acc[MSGL_MAX_PANELS][TILE_ROWS][NV];
  UNROLL for (int p = 0; p < np; p++) {
    UNROLL for (int b = 0; b < nb; b++) {
      UNROLL for (int v = 0; v < NV; v++) {
        acc[p][b][v] = t->begin ? vset1(0) : vld(t->c + (size_t)b * t->ldc + p * LANES + v * VW);
      }
    }
  }
  if (stream) {
    stream_steps(dtype, np, nb, acc, t);
  } else {
    chunk_steps(dtype, np, nb, acc, t);
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
#define STREAM(dtype, np, nb) case TILE_KEY(np, nb): run_tile(dtype, 1, np, nb, t); return;
#define CHUNKED(dtype, np, nb) case TILE_KEY(np, nb): run_tile(dtype, 0, np, nb, t); return;

#define BF16_TYPE(X) X(bf16, MSGL_BF16, STREAM_TILES, BLOCKED_TILES)
#define OTHER_TYPES(X)                                     \
  X(f32, MSGL_F32, STREAM_TILES, BLOCKED_TILES)            \
  X(f16, MSGL_F16, STREAM_TILES, BLOCKED_TILES)            \
  X(q8, MSGL_Q8, QUANT_STREAM_TILES, QUANT_BLOCKED_TILES)  \
  X(q4, MSGL_Q4, QUANT_STREAM_TILES, QUANT_BLOCKED_TILES)  \
  X(q4m, MSGL_Q4M, QUANT_STREAM_TILES, QUANT_BLOCKED_TILES) \
  X(q6, MSGL_Q6, QUANT_STREAM_TILES, QUANT_BLOCKED_TILES)  \
  X(q8m, MSGL_Q8M, QUANT_STREAM_TILES, QUANT_BLOCKED_TILES)

#define TILES_NAME_(kind, type, isa) msgl_##kind##_##type##_##isa
#define TILES_NAME(kind, type, isa) TILES_NAME_(kind, type, isa)

// Functions msgl_stream_<type>_<isa> and msgl_chunk_<type>_<isa>. A panel that is left
// over takes the other kernel: it is one stream either way.
#define TILES(type, dtype, STREAM_LIST, CHUNK_LIST)                                        \
  void TILES_NAME(chunk, type, MSGL_ISA)(int np, int nb, const linear_tile *t) {           \
    switch (TILE_KEY(np, nb)) { CHUNK_LIST(CHUNKED, dtype) }                               \
  }                                                                                        \
  void TILES_NAME(stream, type, MSGL_ISA)(int np, int nb, const linear_tile *t) {          \
    switch (TILE_KEY(np, nb)) { STREAM_LIST(STREAM, dtype) }                               \
    TILES_NAME(chunk, type, MSGL_ISA)(np, nb, t);                                          \
  }
BF16_TYPE(TILES)

// Tiles take most of the time to compile, so MSGL_OTHER_TILES names an instruction set
// with the same ones for all types but bf16.
#if defined(MSGL_OTHER_TILES)
#define DECLARE_TILES(type, dtype, STREAM_LIST, CHUNK_LIST)                                \
  void TILES_NAME(chunk, type, MSGL_OTHER_TILES)(int np, int nb, const linear_tile *t);    \
  void TILES_NAME(stream, type, MSGL_OTHER_TILES)(int np, int nb, const linear_tile *t);
OTHER_TYPES(DECLARE_TILES)
#else
#define MSGL_OTHER_TILES MSGL_ISA
OTHER_TYPES(TILES)
#endif

typedef void (*tile_fn)(int np, int nb, const linear_tile *t);
#define STREAM_ENTRY(type, dtype, STREAM_LIST, CHUNK_LIST) [dtype] = TILES_NAME(stream, type, MSGL_OTHER_TILES),
#define CHUNK_ENTRY(type, dtype, STREAM_LIST, CHUNK_LIST) [dtype] = TILES_NAME(chunk, type, MSGL_OTHER_TILES),
static const tile_fn stream_tile[] = {OTHER_TYPES(STREAM_ENTRY) [MSGL_BF16] = TILES_NAME(stream, bf16, MSGL_ISA)};
static const tile_fn chunk_tile[] = {OTHER_TYPES(CHUNK_ENTRY) [MSGL_BF16] = TILES_NAME(chunk, bf16, MSGL_ISA)};

// Packs steps [first, last) of a row for a bf16 weight. out: where the first step of
// the block has this row; x: the row, from its first step on
ALWAYS void pack_bf16_row(char *out, const float *x, int cols, int nb, int first, int last) {
  const int bytes = x_bytes(MSGL_BF16);
  for (int k = first; k < last; k += VW / 2) {
    int n = (int)msgl_min(VW, cols - 2 * k);
    float pairs[VW];
    vst(pairs, vround_bf16(n == VW ? vld(x + 2 * k) : vld_part(x + 2 * k, n)));
    for (int i = 0; i < VW / 2 && k + i < last; i++) {
      char *to = out + (size_t)(k + i) * (size_t)(bytes * nb);
      if (bytes == 4) {
        memcpy(to, (char *)&pairs[2 * i] + 2, 2);
        memcpy(to + 2, (char *)&pairs[2 * i + 1] + 2, 2);
      } else {
        memcpy(to, &pairs[2 * i], 8);
      }
    }
  }
}

// Packs steps [first, last) of row b of a block of nb rows; all of them for
// quantized weights. x: the row; block: where the block's first step is packed
ALWAYS void pack_row(char *block, const float *x, int cols, int b, int nb, int first, int last, int dtype) {
  if (msgl_quant_of(dtype).bits) {
    quantize_row(dtype, block, x, cols, b, nb, last);
    return;
  }
  if (dtype == MSGL_BF16) {
    pack_bf16_row(block + x_bytes(dtype) * b, x, cols, nb, first, last);
    return;
  }
  float *out = (float *)block + 2 * b;
  for (int k = first; k < last; k++) {
    out[k * 2 * nb] = x[2 * k];
    out[k * 2 * nb + 1] = 2 * k + 1 < cols ? x[2 * k + 1] : 0;
  }
}

// The rows of x or dst that a pass computes.
ALWAYS msgl_tensor rows_of_pass(const msgl_linear_plan *p, const msgl_tensor *t) {
  msgl_tensor rows = *t;
  rows.addr = (uint64_t)(uintptr_t)msgl_row(t, p->row);
  rows.rows = (int32_t)p->rows;
  return rows;
}

// Items: blocks x ranges of msgl_pack_range steps.
static void linear_pack(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_linear_plan *p = &job->linear;
  const msgl_tensor x = rows_of_pass(p, &job->op->t[1]);
  int dtype = job->op->t[2].dtype;
  int64_t range = msgl_pack_range(p, dtype), ranges = msgl_ceil_div(p->steps, range);
  for (int64_t item = from; item < to; item++) {
    int64_t row = item / ranges * p->block_rows, first = item % ranges * range;
    int64_t rows = msgl_min(p->block_rows, p->rows - row), last = msgl_min(first + range, p->steps);
    char *block = job->shared + msgl_packed_rows(p, row);
    for (int64_t b = 0; b < rows; b++) {
      pack_row(block, msgl_row(&x, row + b), x.cols, (int)b, (int)rows, (int)first, (int)last, dtype);
    }
  }
}

// What the functions below need to know of the operation.
typedef struct {
  const msgl_linear_plan *plan;
  const msgl_tensor *w, *bias;
  msgl_tensor dst; // the rows of the pass
  const char *x;   // packed, or the only row of the pass
  msgl_step step;
  size_t panel;    // bytes
  int full;        // panels without padding
  int vocab;       // of the SAMPLE that wants each row's largest logit
} linear_ctx;

ALWAYS linear_ctx linear_open(const msgl_job *job) {
  const msgl_op *op = job->op;
  linear_ctx c = {.plan = &job->linear, .w = &op->t[2], .bias = &op->t[3], .step = msgl_step_of(op->t[2].dtype)};
  c.dst = rows_of_pass(c.plan, &op->t[0]);
  c.x = c.plan->packed ? job->shared : (const char *)msgl_row(&op->t[1], c.plan->row);
  c.panel = msgl_panel_bytes(c.plan->steps, c.w->dtype);
  c.full = c.w->rows / MSGL_PANEL;
  if (c.plan->best) c.vocab = op[1].i[0];
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
    float *out = msgl_row(&c->dst, row + b) + first;
    for (int i = 0; i < n; i++) out[i] = bias ? tile[b * LANES + i] + bias[i] : tile[b * LANES + i];
  }
}

// The largest of a panel's logits, of equals the first; the panel's first has this id. A NaN counts as -inf.
ALWAYS msgl_best best_of_panel(const float *x, int id) {
  static const float places[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  vf most = vset1(-INFINITY), place = vset1(0);
  UNROLL for (int v = 0; v < NV; v++) most = vmax(vld(x + v * VW), most);
  FOLD_ALL(most, vmax);
  // The larger, the further in front.
  UNROLL for (int v = 0; v < NV; v++) place = vmax((vf)((vi)(vset1(LANES) - vld(places + v * VW)) & (vi)(vld(x + v * VW) == most)), place);
  FOLD_ALL(place, vmax);
  return (msgl_best){most[0], place[0] > 0 ? id + LANES - (int)place[0] : id};
}

// The same of n < 16 logits.
static msgl_best best_of_part(const float *x, int64_t n, int id) {
  float part[LANES];
  for (int i = 0; i < LANES; i++) part[i] = i < n ? x[i] : -INFINITY;
  return best_of_panel(part, id);
}

// Keeps the best of each panel's outputs. tile: [rows][np * 16]
static void keep_best(const linear_ctx *c, const float *tile, int64_t p, int np, int64_t row, int64_t rows) {
  int64_t panels = msgl_ceil_div(c->w->rows, MSGL_PANEL);
  for (int64_t b = 0; b < rows; b++) {
    for (int i = 0; i < np; i++) {
      int64_t first = (p + i) * MSGL_PANEL, n = c->vocab - first;
      const float *x = tile + (b * np + i) * LANES;
      c->plan->best[(row + b) * panels + p + i] = n < LANES ? best_of_part(x, n, (int)first) : best_of_panel(x, (int)first);
    }
  }
}

// What becomes of outputs that went to a thread's own memory.
static void set_aside(const linear_ctx *c, const float *tile, int64_t p, int np, int64_t row, int64_t rows) {
  if (c->plan->best) {
    keep_best(c, tile, p, np, row, rows);
  } else if (p >= c->full) {
    store_partial(c, tile, row, rows);
  }
}

// Points a tile at step k of a packed block of nb rows.
ALWAYS void split_x(linear_tile *t, const char *block, const msgl_linear_plan *plan, int k, int nb, int dtype) {
  size_t bytes = (size_t)x_bytes(dtype) * (size_t)nb;
  t->x = block + (size_t)k * bytes;
  t->more = (size_t)plan->steps * bytes;
  t->flags = block + 2 * t->more + (size_t)k * (size_t)nb;
}

// Items: panels.
static void linear_stream(const msgl_job *job, int thread, int64_t from, int64_t to) {
  linear_ctx c = linear_open(job);
  int rows = c.dst.rows, widest = stream_panels(msgl_quant_of(c.w->dtype).bits, rows);
  float *own = (float *)(job->own + (size_t)thread * job->own_bytes);
  for (int64_t p = from; p < to;) {
    int np = widest;
    int partial = p >= c.full;
    while (np > 1 && p + np > msgl_min(to, c.full)) np /= 2;
    linear_tile t = {.w = panel_at(&c, p), .panel = c.panel, .steps = c.plan->steps, .begin = 1};
    split_x(&t, c.x, c.plan, 0, rows, c.w->dtype);
    t.ahead = t.w + AHEAD;
    t.ahead_step = c.step.bytes;
    int aside = partial || c.plan->best;
    t.c = aside ? own : msgl_f32(&c.dst) + p * MSGL_PANEL;
    t.ldc = aside ? (size_t)np * LANES : (size_t)c.dst.stride;
    t.bias = !partial && c.bias->addr ? msgl_f32(c.bias) + p * MSGL_PANEL : NULL;
    stream_tile[c.w->dtype](np, rows, &t);
    set_aside(&c, own, p, np, 0, rows);
    p += np;
  }
}

// np panels from p on, for the blocks [block, end).
static void blocked_panels(const linear_ctx *c, float *own, int64_t p, int np, int block, int end) {
  const msgl_linear_plan *plan = c->plan;
  int partial = p >= c->full, aside = partial || plan->best, chunk = (int)msgl_max(1, CHUNK / c->step.bytes);
  int64_t first_row = (int64_t)block * plan->block_rows;
  int64_t end_row = msgl_min((int64_t)end * plan->block_rows, c->dst.rows);
  for (int k = 0; k < plan->steps; k += chunk) {
    linear_tile t = {.w = panel_at(c, p) + (size_t)k * (size_t)c->step.bytes, .panel = c->panel, .begin = k == 0};
    t.steps = (int)msgl_min(chunk, plan->steps - k);
    int last = k + t.steps == plan->steps;
    t.ldc = aside ? (size_t)np * LANES : (size_t)c->dst.stride;
    t.bias = last && !partial && c->bias->addr ? msgl_f32(c->bias) + p * MSGL_PANEL : NULL;
    // Each block of rows fetches its share of the chunk that comes next.
    const char *next = last ? panel_at(c, p + np) : t.w + (size_t)t.steps * (size_t)c->step.bytes;
    t.ahead_step = c->step.bytes / (end - block);
    for (int64_t row = first_row; row < end_row; row += plan->block_rows) {
      int nb = (int)msgl_min(plan->block_rows, end_row - row);
      split_x(&t, c->x + msgl_packed_rows(plan, row), plan, k, nb, c->w->dtype);
      t.c = aside ? own + (row - first_row) * np * LANES : msgl_row(&c->dst, row) + p * MSGL_PANEL;
      t.ahead = next;
      chunk_tile[c->w->dtype](np, nb, &t);
      next += (size_t)t.ahead_step * (size_t)t.steps;
    }
  }
  set_aside(c, own, p, np, first_row, end_row - first_row);
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
