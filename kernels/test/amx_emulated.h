// amx_emulated.h: AMX's instructions in C, as Intel's manual (SDM, volume 2) describes them, for
// machines without them. amx.c is compiled against it with MSGL_AMX_EMULATED.
#ifndef MSGL_AMX_EMULATED_H
#define MSGL_AMX_EMULATED_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int rows, row_bytes;
  _Alignas(64) uint8_t data[16][64];
} emulated_tile;

static _Thread_local emulated_tile emulated_tiles[8];
static _Thread_local int emulated_on;  // whether tiles are configured

static inline emulated_tile *emulated_at(int t) {
  if (!emulated_on) abort();  // a fault in the processor
  return &emulated_tiles[t];
}

static inline void _tile_release(void) { emulated_on = 0; }

static inline void _tile_loadconfig(const void *config) {
  const uint8_t *c = config;
  if (c[0] != 1) abort();
  emulated_on = 1;
  memset(emulated_tiles, 0, sizeof emulated_tiles);
  for (int t = 0; t < 8; t++) {
    uint16_t row_bytes;
    memcpy(&row_bytes, c + 16 + 2 * t, 2);
    if (row_bytes > 64 || c[48 + t] > 16) abort();
    emulated_tiles[t].row_bytes = row_bytes;
    emulated_tiles[t].rows = c[48 + t];
  }
}

static inline void _tile_zero(int t) { memset(emulated_at(t)->data, 0, sizeof emulated_tiles[t].data); }

static inline void _tile_loadd(int t, const void *from, int64_t stride) {
  emulated_tile *tile = emulated_at(t);
  memset(tile->data, 0, sizeof tile->data);
  for (int r = 0; r < tile->rows; r++) memcpy(tile->data[r], (const char *)from + r * stride, (size_t)tile->row_bytes);
}

static inline void _tile_stored(int t, void *to, int64_t stride) {
  const emulated_tile *tile = emulated_at(t);
  for (int r = 0; r < tile->rows; r++) memcpy((char *)to + r * stride, tile->data[r], (size_t)tile->row_bytes);
}

// A bf16 as float; subnormal ones are zero.
static inline float emulated_bf16(const uint8_t *at) {
  uint32_t u = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
  float x;
  memcpy(&x, &u, 4);
  return fpclassify(x) == FP_SUBNORMAL ? 0 : x;
}

static inline void _tile_dpbf16ps(int d, int a, int b) {
  emulated_tile *sum = emulated_at(d);
  const emulated_tile *x = emulated_at(a), *w = emulated_at(b);
  if (sum->rows != x->rows || sum->row_bytes != w->row_bytes || w->rows != x->row_bytes / 4) abort();
  for (int m = 0; m < sum->rows; m++) {
    for (int n = 0; n < sum->row_bytes / 4; n++) {
      float even = 0, odd = 0, *at = (float *)sum->data[m] + n;
      for (int k = 0; k < w->rows; k++) {
        even = fmaf(emulated_bf16(x->data[m] + 4 * k), emulated_bf16(w->data[k] + 4 * n), even);
        odd = fmaf(emulated_bf16(x->data[m] + 4 * k + 2), emulated_bf16(w->data[k] + 4 * n + 2), odd);
      }
      *at += even + odd;
    }
  }
}

#endif
