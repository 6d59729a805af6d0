// pack.c: the layout of weights.
//
// A panel holds 16 outputs over all K inputs: bf16 as pairs [K/2][16][2], so that
// a 64-byte vector is 16 outputs times two inputs; f32 as [K][16].
#include "internal.h"

size_t msgl_packed_bytes(int n, int k, int dtype) {
  if (n <= 0 || k <= 0) return 0;
  return (size_t)msgl_ceil_div(n, MSGL_PANEL) * msgl_panel_bytes((int)msgl_ceil_div(k, 2), dtype);
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

// rows: [m, k]; panel: [2 * pairs][16]
static void pack_f32(float *panel, const float *rows, int m, int k, int pairs) {
  for (int c = 0; c < 2 * pairs; c++) {
    for (int n = 0; n < MSGL_PANEL; n++) {
      panel[(size_t)c * MSGL_PANEL + n] = n < m && c < k ? rows[(size_t)n * k + c] : 0;
    }
  }
}

int msgl_pack_panel(void *dst, const float *rows, int m, int k, int dtype, int panel) {
  if (m < 0 || m > MSGL_PANEL || k <= 0 || panel < 0) return MSGL_ERR_SHAPE;
  int pairs = (int)msgl_ceil_div(k, 2);
  char *to = (char *)dst + (size_t)panel * msgl_panel_bytes(pairs, dtype);
  if (dtype == MSGL_BF16) {
    pack_bf16((uint16_t *)to, rows, m, k, pairs);
  } else if (dtype == MSGL_F32) {
    pack_f32((float *)to, rows, m, k, pairs);
  } else {
    return MSGL_ERR_DTYPE;
  }
  return MSGL_OK;
}
