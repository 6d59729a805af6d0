//go:build cuda || amd64

// pack.cc: puts weights, in host memory, into the layout of weight.h.
#include <string.h>

#include "weight.h"

using namespace msgl;

static uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

// Rounds to bfloat16, to nearest even. A NaN stays one.
static uint16_t round_bf16(float x) {
  uint32_t u = bits_of(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// Rounds to float16, to nearest even; what is too large becomes infinite. A NaN stays one.
static uint16_t round_f16(float x) {
  uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 leaves multiples of 2^-24 in the mantissa
    memcpy(&x, &magnitude, sizeof x);
    return (uint16_t)(sign | (bits_of(x + 0.5f) - 0x3f000000));
  }
  return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13));
}

size_t msgl_cuda_panel_bytes(int k, int dtype) { return (size_t)PANEL * (size_t)weight_row_bytes(k, dtype); }

size_t msgl_cuda_weight_bytes(int n, int k, int dtype) {
  if (n <= 0 || k <= 0) return 0;
  return (size_t)((n + PANEL - 1) / PANEL) * msgl_cuda_panel_bytes(k, dtype);
}

int msgl_cuda_pack_panel(void *panel, const void *rows, int from, int m, int k, int dtype) {
  if (m < 0 || m > PANEL || k <= 0) return MSGL_ERR_SHAPE;
  if ((from != MSGL_F32 && from != MSGL_BF16) || (from == MSGL_BF16 && dtype != MSGL_BF16)) return MSGL_ERR_DTYPE;
  const float *f = (const float *)rows;
  const uint16_t *h = (const uint16_t *)rows;
  uint16_t *to = (uint16_t *)panel;
  size_t n = (size_t)m * (size_t)k;
  memset(panel, 0, msgl_cuda_panel_bytes(k, dtype));
  switch (dtype) {
    case MSGL_F32: memcpy(panel, f, n * sizeof *f); return MSGL_OK;
    case MSGL_F16:
    case MSGL_BF16:
      for (int r = 0; r < m; r++) {
        for (int c = 0; c < k; c++) {
          size_t i = (size_t)r * (size_t)k + (size_t)c;
          to[tile_index(r, c, k)] = from == MSGL_BF16 ? h[i] : dtype == MSGL_F16 ? round_f16(f[i]) : round_bf16(f[i]);
        }
      }
      return MSGL_OK;
    default: return MSGL_ERR_DTYPE;
  }
}

int msgl_cuda_pack_float8(void *panel, const uint8_t *codes, const float *scales, int m, int k) {
  if (m < 0 || m > PANEL || k <= 0) return MSGL_ERR_SHAPE;
  memset(panel, 0, msgl_cuda_panel_bytes(k, MSGL_F8));
  for (int r = 0; r < m; r++) {
    for (int c = 0; c < k; c++) ((uint8_t *)panel)[f8_index(r, c, k)] = codes[(size_t)r * (size_t)k + (size_t)c];
    for (int chunk = 0; chunk < chunks_of(k); chunk++) {
      float scale = scales[r * chunks_of(k) + chunk] * F8_SCALE;
      memcpy((char *)panel + f8_scale_index(r, (int64_t)chunk * CHUNK_COLS, k), &scale, sizeof scale);
    }
  }
  return MSGL_OK;
}

// Writes n scales or minima.
static void put_scales(char *to, const float *from, int n, int bytes) {
  for (int i = 0; i < n; i++) {
    uint16_t half = round_f16(from[i]);
    memcpy(to + i * bytes, bytes == 2 ? (const void *)&half : (const void *)&from[i], (size_t)bytes);
  }
}

int msgl_cuda_pack_quant(void *panel, const uint8_t *codes, const float *scales, const float *minima, int m, int k, int dtype) {
  Quant q = quant_of(dtype);
  if (q.bits == 0) return MSGL_ERR_DTYPE;
  if (m < 0 || m > PANEL || k <= 0 || k % X_GROUP || (q.minimum && !minima)) return MSGL_ERR_SHAPE;
  memset(panel, 0, msgl_cuda_panel_bytes(k, dtype));
  int groups = k / q.group;
  for (int r = 0; r < m; r++) {
    char *row = (char *)panel + (size_t)r * (size_t)weight_row_bytes(k, dtype), *head = row + k * q.bits / 8;
    for (int c = 0; c < k; c++) {
      uint8_t code = codes[(size_t)r * (size_t)k + (size_t)c];
      if (q.bits == 8) row[c] = (char)code;
      if (q.bits == 4) row[c / 2] = (char)((uint8_t)row[c / 2] | (code & 15) << (c % 2 * 4));
    }
    put_scales(head, scales + (size_t)r * (size_t)groups, groups, q.scale_bytes);
    if (q.minimum) put_scales(head + groups * q.scale_bytes, minima + (size_t)r * (size_t)groups, groups, q.scale_bytes);
  }
  return MSGL_OK;
}
