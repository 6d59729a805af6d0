// pack.c: the layout of weights.
//
// A panel holds 16 outputs over all K inputs, in steps. bf16: pairs [K/2][16][2],
// so that a 64-byte vector is 16 outputs times two inputs. f32, f16: [K][16].
// Quantized: steps of 64 inputs, each [groups][16] scales (each group's 16 minima
// after its scales), then the codes: a 64-byte line is 16 outputs times four
// inputs; with 4 bits, times eight: four in the low halves of the bytes, the next
// four in the high halves.
#include <string.h>

#include "internal.h"

size_t msgl_packed_bytes(int n, int k, int dtype) {
  if (n <= 0 || k <= 0) return 0;
  return (size_t)msgl_ceil_div(n, MSGL_PANEL) * msgl_panel_bytes(msgl_steps(k, dtype), dtype);
}

// rows: [m, k]; panel: [pairs][16][2]
static void pack_bf16(uint16_t *panel, const float *rows, int m, int k, int pairs) {
  for (int p = 0; p < pairs; p++) {
    for (int n = 0; n < MSGL_PANEL; n++) {
      const float *row = rows + (size_t)n * k + 2 * p;
      uint16_t *to = panel + ((size_t)p * MSGL_PANEL + n) * 2;
      to[0] = n < m ? msgl_to_bf16(row[0]) : 0;
      to[1] = n < m && 2 * p + 1 < k ? msgl_to_bf16(row[1]) : 0;
    }
  }
}

// Rows that are bf16 already: 16 pairs of a row at a time, a pair being one word.
static void copy_bf16(uint16_t *panel, const uint16_t *rows, int m, int k, int pairs) {
  memset(panel, 0, (size_t)pairs * MSGL_PANEL * 4);
  for (int p = 0; p < k / 2; p += 16) {
    int end = (int)msgl_min(p + 16, k / 2);
    for (int n = 0; n < m; n++) {
      const uint16_t *row = rows + (size_t)n * k;
      for (int i = p; i < end; i++) memcpy(panel + ((size_t)i * MSGL_PANEL + n) * 2, row + 2 * i, 4);
    }
  }
  for (int n = 0; n < m && k % 2; n++) panel[((size_t)(pairs - 1) * MSGL_PANEL + n) * 2] = rows[(size_t)n * k + k - 1];
}

// rows: [m, k]; panel: [2 * pairs][16]
static void pack_f32(float *panel, const float *rows, int m, int k, int pairs) {
  for (int c = 0; c < 2 * pairs; c++) {
    for (int n = 0; n < MSGL_PANEL; n++) {
      panel[(size_t)c * MSGL_PANEL + n] = n < m && c < k ? rows[(size_t)n * k + c] : 0;
    }
  }
}

// rows: [m, k]; panel: [2 * pairs][16]
static void pack_f16(uint16_t *panel, const float *rows, int m, int k, int pairs) {
  for (int c = 0; c < 2 * pairs; c++) {
    for (int n = 0; n < MSGL_PANEL; n++) {
      panel[(size_t)c * MSGL_PANEL + n] = n < m && c < k ? msgl_to_f16(rows[(size_t)n * k + c]) : 0;
    }
  }
}

int msgl_pack_panel(void *dst, const void *rows, int from, int m, int k, int dtype, int panel) {
  if (m < 0 || m > MSGL_PANEL || k <= 0 || panel < 0) return MSGL_ERR_SHAPE;
  int steps = msgl_steps(k, dtype);
  char *to = (char *)dst + (size_t)panel * msgl_panel_bytes(steps, dtype);
  if (from == MSGL_F32 && dtype == MSGL_BF16) {
    pack_bf16((uint16_t *)to, (const float *)rows, m, k, steps);
  } else if (from == MSGL_BF16 && dtype == MSGL_BF16) {
    copy_bf16((uint16_t *)to, (const uint16_t *)rows, m, k, steps);
  } else if (from == MSGL_F32 && dtype == MSGL_F32) {
    pack_f32((float *)to, (const float *)rows, m, k, steps);
  } else if (from == MSGL_F32 && dtype == MSGL_F16) {
    pack_f16((uint16_t *)to, (const float *)rows, m, k, steps);
  } else {
    return MSGL_ERR_DTYPE;
  }
  return MSGL_OK;
}

int msgl_quant_group(int dtype) { return msgl_quant_of(dtype).group; }

// Scales (and minima) of one output, for the groups of one step. head: [groups][16], minima after scales
static void pack_head(char *head, const msgl_quant *q, const float *scales, const float *minima, int groups) {
  for (int g = 0; g < groups; g++) {
    size_t at = (size_t)(g * MSGL_PANEL * (q->minimum ? 2 : 1)) * (q->wide ? 4 : 2);
    if (q->wide) {
      memcpy(head + at, &scales[g], 4);
    } else {
      uint16_t h = msgl_to_f16(scales[g]);
      memcpy(head + at, &h, 2);
    }
    if (q->minimum) memcpy(head + at + MSGL_PANEL * 4, &minima[g], 4);
  }
}

// Codes of one output and n columns of one step. line: where its bytes begin in the first line
static void pack_codes(uint8_t *line, int bits, const uint8_t *codes, int n) {
  for (int c = 0; c < n; c += 4) {
    if (bits == 8) {
      memcpy(line + c * MSGL_PANEL, codes + c, 4);
      continue;
    }
    uint8_t *to = line + c / 8 * MSGL_PANEL * 4;
    for (int i = 0; i < 4; i++) to[i] |= (uint8_t)((codes[c + i] & 15) << (c % 8));
  }
}

int msgl_pack_quant(void *dst, const uint8_t *codes, const float *scales, const float *minima, int m, int k, int dtype,
                    int panel) {
  msgl_quant q = msgl_quant_of(dtype);
  if (q.bits == 0) return MSGL_ERR_DTYPE;
  if (m < 0 || m > MSGL_PANEL || k <= 0 || k % MSGL_X_GROUP || panel < 0 || (q.minimum && !minima)) return MSGL_ERR_SHAPE;
  msgl_step step = msgl_step_of(dtype);
  int steps = msgl_steps(k, dtype), groups = k / q.group;
  char *to = (char *)dst + (size_t)panel * msgl_panel_bytes(steps, dtype);
  memset(to, 0, msgl_panel_bytes(steps, dtype));
  for (int n = 0; n < m; n++) {
    for (int s = 0; s < steps; s++) {
      char *at = to + (size_t)s * (size_t)step.bytes;
      int col = s * step.cols, cols = (int)msgl_min(step.cols, k - col);
      size_t group = (size_t)n * (size_t)groups + (size_t)(col / q.group);
      pack_head(at + n * (q.wide ? 4 : 2), &q, scales + group, q.minimum ? minima + group : NULL, cols / q.group);
      pack_codes((uint8_t *)at + step.head + n * 4, q.bits, codes + (size_t)n * (size_t)k + col, cols);
    }
  }
  return MSGL_OK;
}
