// flashinfer.h: what stands in for FlashInfer's library (../msgl_fi.h) in the emulation. It
// goes by the task's arrays, as FlashInfer's kernel does, and rounds weights as that does. It fails
// where they are not what msgl_fi.h says.
#include <math.h>

#include "../device.cuh"

namespace emu {

inline float value(uint64_t p, int64_t i, int dtype) {
  uint16_t half = ((const uint16_t *)(uintptr_t)p)[i];
  return dtype == MSGL_F16 ? msgl::from_f16(half) : msgl::from_bf16(half);
}

inline float rounded(float x, int dtype) {
  return dtype == MSGL_F16 ? msgl::from_f16(msgl::to_f16(x)) : msgl::from_bf16(msgl::to_bf16(x));
}

inline const int32_t *indices(uint64_t p) { return (const int32_t *)(uintptr_t)p; }

// A row's query head, against the positions that the row sees.
inline void attend_head(const msgl_fi_task &t, int request, int row, int head) {
  int group = t.heads / t.kv, rows = indices(t.first_rows)[request + 1] - indices(t.first_rows)[request];
  int last = indices(t.lens)[request] - rows + row, first = t.window > 0 && last >= t.window ? last + 1 - t.window : 0;
  int64_t at = ((int64_t)(indices(t.first_rows)[request] + row) * t.heads + head) * t.d;
  float *out = (float *)(uintptr_t)t.out + at;
  const int32_t *pages = indices(t.pages) + indices(t.page_starts)[request];
  auto cached = [&](int p) { return ((int64_t)pages[p / t.page] * t.page + p % t.page) * t.row_elems + head / group * t.d; };
  auto score = [&](int p) {
    float sum = 0;
    for (int i = 0; i < t.d; i++) sum = fmaf(value(t.q, at + i, t.dtype), value(t.k, cached(p) + i, t.dtype), sum);
    return sum * t.scale;
  };
  float most = score(first), all = 0;
  for (int p = first; p <= last; p++) most = fmaxf(most, score(p));
  for (int i = 0; i < t.d; i++) out[i] = 0;
  for (int p = first; p <= last; p++) {
    float weight = rounded(msgl::exp_of(score(p) - most), t.dtype);
    all += weight;
    for (int i = 0; i < t.d; i++) out[i] = fmaf(weight, value(t.v, cached(p) + i, t.dtype), out[i]);
  }
  for (int i = 0; i < t.d; i++) out[i] /= all;
}

// Whether there are as many tiles as there are to be, and pages for all positions. Of a list that has
// failed there are no tiles, and nothing else.
inline bool sound(const msgl_fi_task &t) {
  int64_t there = 0, wanted = 0;
  for (int i = 0; i < t.tiles; i++) there += ((const uint8_t *)(uintptr_t)t.tile_there)[i];
  if (there == 0) return true;
  for (int r = 0; r < t.requests; r++) {
    int64_t rows = indices(t.first_rows)[r + 1] - indices(t.first_rows)[r], pages = indices(t.page_starts)[r + 1] - indices(t.page_starts)[r];
    wanted += msgl::ceil_div(rows * (t.heads / t.kv), MSGL_FI_TILE);
    if (pages * t.page < indices(t.lens)[r]) return false;
  }
  return *indices(t.chunk) == 1 && *indices(t.page_starts) == 0 && there == wanted;
}

inline int attend(const msgl_fi_task *t) {
  if (t->d != 64 && t->d != 128 && t->d != 256) return MSGL_FI_LACKS;
  if (!sound(*t)) return 1;
  for (int tile = 0; tile < t->tiles; tile++) {
    if (!((const uint8_t *)(uintptr_t)t->tile_there)[tile]) continue;
    if (indices(t->tile_chunks)[tile] != 0) return 1;
    int request = indices(t->tile_requests)[tile], group = t->heads / t->kv, first = indices(t->tile_numbers)[tile] * MSGL_FI_TILE;
    int pairs = (indices(t->first_rows)[request + 1] - indices(t->first_rows)[request]) * group;
    for (int head = 0; head < t->kv; head++) {
      for (int p = first; p < pairs && p < first + MSGL_FI_TILE; p++) attend_head(*t, request, p / group, head * group + p % group);
    }
  }
  return 0;
}

}  // namespace emu
