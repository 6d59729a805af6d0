// amx.c: LINEAR for weights of bf16 on the tiles of x86-64's AMX.
//
// The layout of packed weights is the one that tiles want: 1024 bytes of a panel are a
// tile of 16 pairs of columns by 16 outputs. x becomes rows of bf16, padded with zeros to
// whole tiles of 32 columns.
//
// Of a tile, an output adds up the products of even and those of odd columns, then both
// to its sum; tiles follow in order. So a row's result depends on nothing but the row.
// Subnormal numbers count as zero.
#include "internal.h"

#if defined(MSGL_AMX)
#include <string.h>

#if defined(MSGL_AMX_EMULATED)
#include "amx_emulated.h"
#define ON_TILES
#define VECTORS
#else
#include <immintrin.h>
#define ON_TILES __attribute__((target("amx-tile,amx-bf16")))
#define VECTORS __attribute__((target("avx512f,avx512bw,avx512vl")))
#endif

enum {
  ROWS = 16,                                             // of a tile
  PANELS = 2,                                            // that are computed together
  X_BYTES = MSGL_TILE_COLS * 2,                          // of a row of a tile of x
  W_STEPS = MSGL_TILE_COLS / 2,                          // pairs of columns of a tile of weights
  W_BYTES = W_STEPS * MSGL_PANEL * 4,                    // of a tile of weights
  OUT = PANELS * MSGL_PANEL,                             // outputs of a row that are computed together
  AHEAD = 8 * W_BYTES,                                   // bytes that a panel is prefetched ahead
};

// Operand of LDTILECFG (Intel SDM, volume 1, chapter 18).
typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;

// Tiles 0 and 1: sums of the first 16 rows and either panel; 2 and 3: of the other rows;
// 4 and 5: x of both; 6 and 7: weights of either panel.
static ON_TILES void configure(int rows) {
  int first = rows < ROWS ? rows : ROWS, rest = rows > ROWS ? rows - ROWS : 1;
  tile_config c = {.palette = 1};
  for (int t = 0; t < 8; t++) {
    c.row_bytes[t] = 64;
    c.rows[t] = (uint8_t)(t >= 6 ? W_STEPS : t == 2 || t == 3 || t == 5 ? rest : first);
  }
  _tile_loadconfig(&c);
}

// What products needs to know.
typedef struct {
  const char *x;
  int64_t row_bytes;
  int rows;
  const char *w;
  int64_t panel;  // bytes from panel to panel
  int panels;
} tile_job;

// Adds the products of one tile of columns.
static inline ON_TILES void multiply(const tile_job *t, const char *x, const char *w, int64_t panel) {
  _tile_loadd(4, x, t->row_bytes);
  _tile_loadd(6, w, X_BYTES);
  _tile_dpbf16ps(0, 4, 6);
  if (t->panels == PANELS) {
    _tile_loadd(7, w + panel, X_BYTES);
    _tile_dpbf16ps(1, 4, 7);
  }
  if (t->rows <= ROWS) return;
  _tile_loadd(5, x + ROWS * t->row_bytes, t->row_bytes);
  _tile_dpbf16ps(2, 5, 6);
  if (t->panels == PANELS) _tile_dpbf16ps(3, 5, 7);
}

// At a panel's end, what comes next is the panel behind those that are computed together.
static inline void prefetch_tile(const tile_job *t, int64_t at) {
  int64_t ahead = at + AHEAD + (at + AHEAD < t->panel ? 0 : (t->panels - 1) * t->panel);
  for (int p = 0; p < t->panels; p++) {
    for (int line = 0; line < W_BYTES; line += 64) __builtin_prefetch(t->w + p * t->panel + ahead + line, 0, 2);
  }
}

// out: [rows][OUT]
static ON_TILES void products(float *out, const tile_job *t) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  int64_t whole = t->panel / W_BYTES, rest = t->panel % W_BYTES;
  for (int64_t k = 0; k < whole; k++) {
    prefetch_tile(t, k * W_BYTES);
    multiply(t, t->x + k * X_BYTES, t->w + k * W_BYTES, t->panel);
  }
  if (rest) {
    char last[PANELS][W_BYTES] = {{0}};
    for (int p = 0; p < t->panels; p++) memcpy(last[p], t->w + p * t->panel + whole * W_BYTES, (size_t)rest);
    multiply(t, t->x + whole * X_BYTES, last[0], W_BYTES);
  }
  _tile_stored(0, out, OUT * sizeof *out);
  _tile_stored(1, out + MSGL_PANEL, OUT * sizeof *out);
  if (t->rows <= ROWS) return;
  _tile_stored(2, out + ROWS * OUT, OUT * sizeof *out);
  _tile_stored(3, out + ROWS * OUT + MSGL_PANEL, OUT * sizeof *out);
}

// Items: rows of the pass.
static VECTORS void tile_pack(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_linear_plan *p = &job->linear;
  const msgl_tensor *x = &job->op->t[1];
  for (int64_t r = from; r < to; r++) {
    const float *row = msgl_row(x, p->row + r);
    uint16_t *out = (uint16_t *)(job->shared + r * p->row_bytes);
    for (int c = 0; c < x->cols; c++) out[c] = msgl_to_bf16(row[c]);
    memset(out + x->cols, 0, (size_t)p->row_bytes - (size_t)x->cols * 2);
  }
}

// Copies `outputs` outputs of a row to dst.
static VECTORS void put_row(float *dst, const float *out, const float *bias, int64_t outputs) {
  for (int64_t i = 0; i < outputs; i++) dst[i] = bias ? out[i] + bias[i] : out[i];
}

// Items: groups of blocks x panels.
static ON_TILES void tile_linear(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_linear_plan *plan = &job->linear;
  const msgl_tensor *dst = &job->op->t[0], *w = &job->op->t[2], *bias = &job->op->t[3];
  int64_t panels = msgl_ceil_div(w->rows, MSGL_PANEL), group_rows = (int64_t)plan->group * plan->block_rows;
  tile_job t = {.row_bytes = plan->row_bytes, .panel = (int64_t)msgl_panel_bytes(plan->steps, MSGL_BF16)};
  for (int64_t item = from; item < to; item += t.panels) {
    int64_t p = item % panels, first = item / panels * group_rows, end = msgl_min(first + group_rows, plan->rows);
    t.panels = item + 1 < to && p + 1 < panels ? PANELS : 1;
    t.w = (const char *)(uintptr_t)w->addr + p * t.panel;
    for (int64_t row = first; row < end; row += plan->block_rows) {
      float out[PANELS * ROWS * OUT];
      int rows = (int)msgl_min(plan->block_rows, end - row);
      if (rows != t.rows) configure(rows);
      t.rows = rows;
      t.x = job->shared + row * plan->row_bytes;
      products(out, &t);
      int64_t outputs = msgl_min((int64_t)t.panels * MSGL_PANEL, w->rows - p * MSGL_PANEL);
      for (int b = 0; b < rows; b++) {
        put_row(msgl_row(dst, plan->row + row + b) + p * MSGL_PANEL, out + b * OUT, bias->addr ? msgl_f32(bias) + p * MSGL_PANEL : NULL, outputs);
      }
    }
  }
  _tile_release();
}

void msgl_add_amx(msgl_kernels *kernels) {
  kernels->name = "amx";
  kernels->tile_rows = 2 * ROWS;
  kernels->tile_pack = tile_pack;
  kernels->tile_linear = tile_linear;
}
#endif
