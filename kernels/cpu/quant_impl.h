// quant_impl.h: LINEAR's innermost part for quantized weights.
//
// x is rounded to 8 bits, each row in groups of 32 (pack_quant_rows). A group of a
// weight meets x as sums of integers, which are exact and so the same in any
// order and on any instruction set; then one multiply-add per group joins them to
// the output's chain:
//
//   chain += sum((code - zero) * x) * (scale * x's scale)    [+ minimum * sum(x) * x's scale]
//
// A packed step of nb rows of x: codes int8 [16][nb][4], scales f32 [2][nb], and
// for each group of the weight [groups][nb]: int32 -zero * sum(x), or, where
// groups have minima, f32 sum(x) * x's scale.

ALWAYS vi vset1i(int32_t x) { return (vi)vset1(0) + x; }

// A sum of integers in the making: w unsigned bytes of `bits` bits, x signed
// bytes; each 32-bit lane adds up its four products.
#if defined(MSGL_ISA_AVX2)
// Sums of 16 bits have room for the 8 times 2 products of a group of codes of 4
// bits (8 * 2 * 15 * 127 = 30480). Codes of 8 bits go in halves.
typedef struct {
  __m256i low, high;
} int_sum;
ALWAYS int_sum sum_begin(int32_t start) {
  (void)start;
  return (int_sum){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
ALWAYS int_sum sum_add(int bits, int_sum s, vu w, vi x) {
  s.low = _mm256_add_epi16(s.low, _mm256_maddubs_epi16((__m256i)(bits == 4 ? w : w & 0x0f0f0f0fu), (__m256i)x));
  if (bits == 8) s.high = _mm256_add_epi16(s.high, _mm256_maddubs_epi16((__m256i)(w >> 4 & 0x0f0f0f0fu), (__m256i)x));
  return s;
}
ALWAYS vi sum_end(int bits, int_sum s, int32_t start) {
  vi sum = (vi)_mm256_madd_epi16(s.low, _mm256_set1_epi16(1)) + start;
  return bits == 8 ? sum + (vi)_mm256_madd_epi16(s.high, _mm256_set1_epi16(16)) : sum;
}
#else
typedef vi int_sum;
ALWAYS int_sum sum_begin(int32_t start) { return vset1i(start); }
ALWAYS int_sum sum_add(int bits, int_sum s, vu w, vi x) {
  (void)bits;
#if defined(MSGL_ISA_AVX512)
  return (vi)_mm512_dpbusd_epi32((__m512i)s, (__m512i)w, (__m512i)x);
#else
  UNROLL for (int i = 0; i < 4; i++) s += (vi)(w >> (8 * i) & 255u) * (x << (24 - 8 * i) >> 24);
  return s;
#endif
}
ALWAYS vi sum_end(int bits, int_sum s, int32_t start) {
  (void)bits, (void)start;
  return s;
}
#endif

// VW float16 values as floats; finite ones.
ALWAYS vf vld_f16(const char *p) {
#if defined(MSGL_ISA_AVX512)
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(MSGL_ISA_AVX2)
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
  vh h;
  memcpy(&h, p, sizeof h);
  vu u = __builtin_convertvector(h, vu);
  vf magnitude = (vf)((u & 0x7fffu) << 13) * vset1(0x1p112f);
  return (vf)((vu)magnitude | (u & 0x8000u) << 16);
#endif
}

// Where the scale of output n of a group stands, or its minimum.
ALWAYS const char *scale_at(const msgl_quant *q, const char *head, int group, int minima, int n) {
  return head + ((group * (q->minimum ? 2 : 1) + minima) * LANES + n) * (q->wide ? 4 : 2);
}

ALWAYS vf group_scale(const msgl_quant *q, const char *head, int group, int minima, int v) {
  const char *at = scale_at(q, head, group, minima, v * VW);
  return q->wide ? vld((const float *)at) : vld_f16(at);
}

// The scale of one output, or its minimum.
ALWAYS float group_scale_one(const msgl_quant *q, const char *head, int group, int minima, int n) {
  const char *at = scale_at(q, head, group, minima, n);
  float wide;
  if (!q->wide) {
    char lanes[2 * VW] = {0};
    memcpy(lanes, at, 2);
    return vld_f16(lanes)[0];
  }
  memcpy(&wide, at, 4);
  return wide;
}

ALWAYS int32_t load_i32(const char *p) {
  int32_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

// The sums of integers of one group: sum[p][b] over its columns.
ALWAYS void group_sums(const msgl_quant *q, int np, int nb, int_sum sum[MAX_PANELS][LINEAR_ROWS][NV], const char *lines, size_t panel,
                       const char *x, size_t ahead, int stream) {
  const int per_line = 8 / q->bits;  // groups of four columns
  for (int l = 0; l < q->group / 4 / per_line; l++) {
    UNROLL for (int half = 0; half < per_line; half++) {
      vu w[MAX_PANELS][NV];
      UNROLL for (int p = 0; p < np; p++) {
        UNROLL for (int v = 0; v < NV; v++) {
          vu u = vldu(lines + (size_t)p * panel + v * VW * 4);
          w[p][v] = per_line == 1 ? u : (half ? u >> 4 : u) & 0x0f0f0f0fu;
        }
      }
      UNROLL for (int b = 0; b < nb; b++) {
        vi xv = vset1i(load_i32(x + 4 * b));
        UNROLL for (int p = 0; p < np; p++) {
          UNROLL for (int v = 0; v < NV; v++) sum[p][b][v] = sum_add(q->bits, sum[p][b][v], w[p][v], xv);
        }
      }
      x += 4 * nb;
    }
    UNROLL for (int p = 0; p < np && stream; p++) __builtin_prefetch(lines + (size_t)p * panel + ahead, 0, 3);
    lines += LINE;
  }
}

// One step of 64 columns. w: the step of the first panel; x: the packed step
ALWAYS void quant_step(int dtype, int np, int nb, vf acc[MAX_PANELS][LINEAR_ROWS][NV], const char *w, size_t panel, const char *x,
                       size_t ahead, int stream) {
  const msgl_quant q = msgl_quant_of(dtype);
  const int groups = MSGL_QUANT_STEP / q.group, group_bytes = q.group * LANES * q.bits / 8;
  const msgl_step step = msgl_step_of(dtype);
  const float *scales = (const float *)(x + MSGL_QUANT_STEP * nb);
  const char *rest = (const char *)(scales + MSGL_QUANT_STEP / MSGL_X_GROUP * nb);
  UNROLL for (int p = 0; p < np && stream; p++) {
    UNROLL for (int i = 0; i < step.head; i += LINE) __builtin_prefetch(w + (size_t)p * panel + ahead + i, 0, 3);
  }
  for (int g = 0; g < groups; g++) {
    int_sum sum[MAX_PANELS][LINEAR_ROWS][NV];
    UNROLL for (int b = 0; b < nb; b++) {
      int32_t start = q.minimum ? 0 : load_i32(rest + (g * nb + b) * 4);
      UNROLL for (int p = 0; p < np; p++) {
        UNROLL for (int v = 0; v < NV; v++) sum[p][b][v] = sum_begin(start);
      }
    }
    group_sums(&q, np, nb, sum, w + step.head + g * group_bytes, panel, x + (size_t)(g * q.group * nb), ahead, stream);
    UNROLL for (int p = 0; p < np; p++) {
      UNROLL for (int v = 0; v < NV; v++) {
        vf scale = group_scale(&q, w + (size_t)p * panel, g, 0, v);
        vf minimum = q.minimum ? group_scale(&q, w + (size_t)p * panel, g, 1, v) : scale;
        UNROLL for (int b = 0; b < nb; b++) {
          vf both = scale * vset1(scales[g * q.group / MSGL_X_GROUP * nb + b]);
          vi total = sum_end(q.bits, sum[p][b][v], q.minimum ? 0 : load_i32(rest + (g * nb + b) * 4));
          acc[p][b][v] = vfma(__builtin_convertvector(total, vf), both, acc[p][b][v]);
          if (q.minimum) acc[p][b][v] = vfma(minimum, vset1(((const float *)rest)[g * nb + b]), acc[p][b][v]);
        }
      }
    }
  }
}

// Rounds 32 values to codes of 8 bits and returns their scale.
ALWAYS float quant_group(int8_t *codes, const float *x) {
  vf most[2] = {vset1(0), vset1(0)};
  for (int i = 0; i < MSGL_X_GROUP; i += 2 * VW) {
    UNROLL for (int j = 0; j < 2; j++) {
      vf v = vld(x + i + j * VW);
      most[j] = vmax(most[j], (vf)((vu)v & 0x7fffffffu));
    }
  }
  float largest = vec_max(vmax(most[0], most[1]));
  float inverse = largest > 0 ? 127.0f / largest : 0;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  for (int i = 0; i < MSGL_X_GROUP; i += VW) {
    vi r = (vi)(vld(x + i) * vset1(inverse) + vset1(magic)) - (vi)vset1(magic);
    for (int j = 0; j < VW; j++) codes[i + j] = (int8_t)r[j];
  }
  return largest / 127.0f;
}

// Packs steps [first, last) of row b of a block of nb rows. x: the row; block: where the block's first step is packed
ALWAYS void pack_quant_row(char *block, const float *x, int cols, int b, int nb, int64_t first, int64_t last, int dtype) {
  const msgl_quant q = msgl_quant_of(dtype);
  const int groups = MSGL_QUANT_STEP / q.group, x_groups = MSGL_QUANT_STEP / MSGL_X_GROUP;
  const int64_t bytes = (int64_t)msgl_step_of(dtype).x * nb;
  for (int64_t s = first; s < last; s++) {
    char *out = block + s * bytes;
    float scales[MSGL_QUANT_STEP / MSGL_X_GROUP];
    int8_t codes[MSGL_QUANT_STEP] = {0};
    for (int g = 0; g < x_groups; g++) {
      int64_t col = s * MSGL_QUANT_STEP + g * MSGL_X_GROUP;
      scales[g] = col < cols ? quant_group(codes + g * MSGL_X_GROUP, x + col) : 0;
      memcpy(out + MSGL_QUANT_STEP * nb + (g * nb + b) * 4, &scales[g], 4);
    }
    for (int i = 0; i < MSGL_QUANT_STEP; i += 4) memcpy(out + i * nb + 4 * b, codes + i, 4);
    for (int g = 0; g < groups; g++) {
      int32_t sum = 0;
      for (int i = 0; i < q.group; i++) sum += codes[g * q.group + i];
      float scaled = (float)sum * scales[g * q.group / MSGL_X_GROUP];
      int32_t start = -q.zero * sum;
      memcpy(out + MSGL_QUANT_STEP * nb + ((x_groups + g) * nb + b) * 4, q.minimum ? (const void *)&scaled : (const void *)&start, 4);
    }
  }
}
