// quant_impl.h: LINEAR's innermost part for quantized weights.
//
// x is rounded to 8 bits, each row in groups of 32. A group of a weight meets x as
// sums of integers, which are exact and so the same in any order and on any
// instruction set; then one multiply-add per group joins them to the output's chain:
//
//   chain += sum((code - zero) * x) * (scale * x's scale)    [+ minimum * sum(x) * x's scale]
//
// A group whose largest value stands far out of its row (MSGL_OUTLIER) would lose
// the others to the rounding; what the rounding left of such a group is rounded
// once more, and goes a second way through the weights. Where a row has nothing
// left, it adds zero, which changes nothing: batch invariance holds.
//
// A packed block of nb rows: [steps] steps, [steps] steps of what was left, then
// bytes [steps][nb]: whether something was. A step: codes int8 [16][nb][4], or,
// where the kernels want them wide (x_code_bytes), int16 [16][2][nb][2]: the two
// even ones of four columns, then the odd ones; scales f32 [2][nb], and for each
// group of the weight [groups][nb]: int32 -zero * sum(x), or, where groups have
// minima, f32 sum(x) * x's scale.

ALWAYS vi vset1i(int32_t x) { return (vi)vset1(0) + x; }

// A sum of integers in the making: w unsigned codes, x signed ones; each 32-bit
// lane adds up the products of its four columns.
#if defined(MSGL_ISA_AVX2)
// Sums of 16 bits have room for the 8 times 2 products of a group of codes of 4
// bits (8 * 2 * 15 * 127 = 30480). Codes of 8 bits are widened, two columns at a
// time, and summed in 32 bits.
ALWAYS int x_code_bytes(int bits) { return bits == 8 ? 2 : 1; }
ALWAYS vi sum_begin(const msgl_quant *q, int32_t start) { return q->bits == 8 ? vset1i(start) : vset1i(0); }
ALWAYS vi sum_add(const msgl_quant *q, vi s, vu w, vi x) {
  if (q->bits == 8) {
    s += (vi)_mm256_madd_epi16((__m256i)w, (__m256i)x);
  } else {
    s = (vi)_mm256_add_epi16((__m256i)s, _mm256_maddubs_epi16((__m256i)w, (__m256i)x));
  }
  // Compilers would make a tree of the sums, which takes more registers than there are.
  __asm__("" : "+x"(s));
  return s;
}
ALWAYS vi sum_end(const msgl_quant *q, vi s, int32_t start) {
  return q->bits == 8 ? s : (vi)_mm256_madd_epi16((__m256i)s, _mm256_set1_epi16(1)) + start;
}
#else
ALWAYS int x_code_bytes(int bits) {
  (void)bits;
  return 1;
}
#if defined(MSGL_ISA_NEON_DOT)
// Both sides of the instruction are signed, so codes of 8 bits meet x less 128. Where that is
// their zero, it is what the start takes off; where groups have minima, 64 times x goes in, twice.
ALWAYS vi sum_begin(const msgl_quant *q, int32_t start) { return vset1i(q->bits == 8 ? 0 : start); }
ALWAYS vi dot_bytes(vi s, vu w, vi x) { return (vi)vdotq_s32((int32x4_t)s, (int8x16_t)w, (int8x16_t)x); }
ALWAYS vi sum_add(const msgl_quant *q, vi s, vu w, vi x) {
  if (q->bits == 4) return dot_bytes(s, w, x);
  const vu half = (vu)vset1i(0x40404040);
  s = dot_bytes(s, w ^ 0x80808080u, x);
  return q->minimum ? dot_bytes(dot_bytes(s, half, x), half, x) : s;
}
#else
ALWAYS vi sum_begin(const msgl_quant *q, int32_t start) {
  (void)q;
  return vset1i(start);
}
ALWAYS vi sum_add(const msgl_quant *q, vi s, vu w, vi x) {
  (void)q;
#if defined(MSGL_ISA_AVX512)
  return (vi)_mm512_dpbusd_epi32((__m512i)s, (__m512i)w, (__m512i)x);
#elif defined(MSGL_ISA_NEON_I8MM)
  return (vi)vusdotq_s32((int32x4_t)s, (uint8x16_t)w, (int8x16_t)x);
#else
  UNROLL for (int i = 0; i < 4; i++) s += (vi)(w >> (8 * i) & 255u) * (x << (24 - 8 * i) >> 24);
  return s;
#endif
}
#endif
ALWAYS vi sum_end(const msgl_quant *q, vi s, int32_t start) {
  (void)q, (void)start;
  return s;
}
#endif

// Parts of a line of codes that meet x one after the other: columns 0 to 3 and 4 to
// 7 of codes of 4 bits, even and odd columns of wide ones.
ALWAYS int line_parts(int bits) { return bits == 4 || x_code_bytes(bits) == 2 ? 2 : 1; }
ALWAYS vu line_part(int bits, vu line, int part) {
  if (line_parts(bits) == 1) return line;
#if defined(MSGL_ISA_AVX2)
  if (bits == 8) return part ? (vu)_mm256_srli_epi16((__m256i)line, 8) : line & 0x00ff00ffu;
#endif
  return (part ? line >> 4 : line) & 0x0f0f0f0fu;
}

// Bytes of one row of x, as it is packed, for a step of columns.
ALWAYS int x_bytes(int dtype) {
  const msgl_quant q = msgl_quant_of(dtype);
#if defined(MSGL_BF16_DOT)
  if (dtype == MSGL_BF16) return 4;
#endif
  if (q.bits == 0) return 2 * (int)sizeof(float);
  return MSGL_QUANT_STEP * x_code_bytes(q.bits) + (MSGL_QUANT_STEP / MSGL_X_GROUP + MSGL_QUANT_STEP / q.group) * 4;
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
ALWAYS void group_sums(const msgl_quant *q, int np, int nb, vi sum[MSGL_MAX_PANELS][TILE_ROWS][NV], const char *lines, size_t panel,
                       const char *x, size_t ahead, int stream) {
  const int columns = 32 / q->bits;  // of a line
  for (int l = 0; l < q->group / columns; l++) {
    UNROLL for (int part = 0; part < line_parts(q->bits); part++) {
      vu w[MSGL_MAX_PANELS][NV];
      UNROLL for (int p = 0; p < np; p++) {
        UNROLL for (int v = 0; v < NV; v++) {
          w[p][v] = line_part(q->bits, vldu(lines + (size_t)p * panel + v * VW * 4), part);
        }
      }
      UNROLL for (int b = 0; b < nb; b++) {
        vi xv = vset1i(load_i32(x + 4 * b));
        UNROLL for (int p = 0; p < np; p++) {
          UNROLL for (int v = 0; v < NV; v++) sum[p][b][v] = sum_add(q, sum[p][b][v], w[p][v], xv);
        }
      }
      x += 4 * nb;
    }
    UNROLL for (int p = 0; p < np && stream; p++) prefetch(lines + (size_t)p * panel + ahead);
    lines += LINE;
  }
}

// One step of 64 columns. w: the step of the first panel; x: the packed step
ALWAYS void quant_step(int dtype, int np, int nb, vf acc[MSGL_MAX_PANELS][TILE_ROWS][NV], const char *w, size_t panel, const char *x,
                       size_t ahead, int stream) {
  const msgl_quant q = msgl_quant_of(dtype);
  const int groups = MSGL_QUANT_STEP / q.group, group_bytes = q.group * LANES * q.bits / 8;
  const msgl_step step = msgl_step_of(dtype);
  const int row_bytes = x_code_bytes(q.bits);
  const float *scales = (const float *)(x + MSGL_QUANT_STEP * row_bytes * nb);
  const char *rest = (const char *)(scales + MSGL_QUANT_STEP / MSGL_X_GROUP * nb);
  UNROLL for (int p = 0; p < np && stream; p++) {
    UNROLL for (int i = 0; i < step.head; i += LINE) prefetch(w + (size_t)p * panel + ahead + i);
  }
  for (int g = 0; g < groups; g++) {
    vi sum[MSGL_MAX_PANELS][TILE_ROWS][NV];
    UNROLL for (int b = 0; b < nb; b++) {
      int32_t start = q.minimum ? 0 : load_i32(rest + (g * nb + b) * 4);
      UNROLL for (int p = 0; p < np; p++) {
        UNROLL for (int v = 0; v < NV; v++) sum[p][b][v] = sum_begin(&q, start);
      }
    }
    group_sums(&q, np, nb, sum, w + step.head + g * group_bytes, panel, x + (size_t)(g * q.group * row_bytes * nb), ahead, stream);
    UNROLL for (int p = 0; p < np; p++) {
      UNROLL for (int v = 0; v < NV; v++) {
        vf scale = group_scale(&q, w + (size_t)p * panel, g, 0, v);
        vf minimum = q.minimum ? group_scale(&q, w + (size_t)p * panel, g, 1, v) : scale;
        UNROLL for (int b = 0; b < nb; b++) {
          vf both = scale * vset1(scales[g * q.group / MSGL_X_GROUP * nb + b]);
          vi total = sum_end(&q, sum[p][b][v], q.minimum ? 0 : load_i32(rest + (g * nb + b) * 4));
          acc[p][b][v] = vfma(__builtin_convertvector(total, vf), both, acc[p][b][v]);
          if (q.minimum) acc[p][b][v] = vfma(minimum, vset1(((const float *)rest)[g * nb + b]), acc[p][b][v]);
        }
      }
    }
  }
}

// Whether any row of a step has something left. flags: [nb]
ALWAYS int any_left(const char *flags, int nb) {
  int any = 0;
  UNROLL for (int b = 0; b < nb; b++) any |= flags[b];
  return any;
}

ALWAYS float largest_of_group(const float *x) {
  vf most = vset1(0);
  for (int i = 0; i < MSGL_X_GROUP; i += VW) most = vmax(most, (vf)((vu)vld(x + i) & 0x7fffffffu));
  return vec_max(most);
}

// A group of x, rounded to codes of 8 bits.
typedef struct {
  int8_t codes[MSGL_X_GROUP];
  int32_t sums[2];  // of the codes of either half
  float scale;
} x_group;

// Rounds 32 values, of which the largest magnitude is given; a NaN counts as zero. left: what the rounding left, or NULL
ALWAYS void quant_group(x_group *to, const float *x, float largest, float *left) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  float inverse = largest > 0 ? 127.0f / largest : 0;
  to->scale = largest / 127.0f;
  UNROLL for (int half = 0; half < 2; half++) {
    vi sum = vset1i(0);
    UNROLL for (int i = half * MSGL_X_GROUP / 2; i < (half + 1) * MSGL_X_GROUP / 2; i += VW) {
      vf shifted = vld(x + i) * vset1(inverse) + vset1(magic);
      vi code = ((vi)shifted - (vi)vset1(magic)) & (vi)(shifted == shifted);
      if (left) vst(left + i, vld(x + i) - (shifted - vset1(magic)) * vset1(to->scale));
      vb bytes = __builtin_convertvector(code, vb);
      memcpy(to->codes + i, &bytes, VW);
      sum += code;
    }
    to->sums[half] = vec_sum(sum);
  }
}

// Writes four codes of x to row b of a packed step: those of columns 4 * quad on.
ALWAYS void put_codes(char *step, const int8_t *codes, int quad, int b, int nb, int bytes) {
  if (bytes == 1) {
    memcpy(step + (quad * nb + b) * 4, codes, 4);
    return;
  }
  for (int odd = 0; odd < 2; odd++) {
    int16_t wide[2] = {codes[odd], codes[odd + 2]};
    memcpy(step + ((quad * 2 + odd) * nb + b) * 4, wide, 4);
  }
}

// Writes the scale of group g of x, and what comes with it, to row b of a packed step.
ALWAYS void put_scale(char *step, const msgl_quant *q, int g, int b, int nb, const x_group *x) {
  const int x_groups = MSGL_QUANT_STEP / MSGL_X_GROUP, parts = MSGL_X_GROUP / q->group;
  char *scales = step + MSGL_QUANT_STEP * x_code_bytes(q->bits) * nb, *sums = scales + x_groups * nb * 4;
  memcpy(scales + (g * nb + b) * 4, &x->scale, 4);
  UNROLL for (int part = 0; part < parts; part++) {
    int32_t sum = parts == 1 ? x->sums[0] + x->sums[1] : x->sums[part], start = -q->zero * sum;
    float scaled = (float)sum * x->scale;
    memcpy(sums + ((g * parts + part) * nb + b) * 4, q->minimum ? (const void *)&scaled : (const void *)&start, 4);
  }
}

ALWAYS void put_group(char *step, const msgl_quant *q, int g, int b, int nb, const x_group *x) {
  put_scale(step, q, g, b, nb, x);
  UNROLL for (int i = 0; i < MSGL_X_GROUP; i += 4) {
    put_codes(step, x->codes + i, (g * MSGL_X_GROUP + i) / 4, b, nb, x_code_bytes(q->bits));
  }
}

// Packs row b of a block of nb rows. Where nothing is left, scales of zero say so: codes don't matter then. x: the row
ALWAYS void pack_quant_row(char *block, const float *x, int cols, int b, int nb, int steps, int dtype) {
  const msgl_quant q = msgl_quant_of(dtype);
  const size_t bytes = (size_t)(x_bytes(dtype) * nb), all = (size_t)steps * bytes;
  const float far = MSGL_OUTLIER * MSGL_OUTLIER * sum_squares(x, cols) / (float)cols;
  const x_group none = {{0}, {0}, 0};
  char *flags = block + 2 * all;
  for (int s = 0; s < steps; s++, block += bytes) {
    flags[s * nb + b] = 0;
    for (int g = 0; g < MSGL_QUANT_STEP / MSGL_X_GROUP; g++) {
      int col = s * MSGL_QUANT_STEP + g * MSGL_X_GROUP;
      x_group to = none;
      put_scale(block + all, &q, g, b, nb, &none);
      if (col < cols) {
        float left[MSGL_X_GROUP], most = largest_of_group(x + col);
        int outlier = most * most > far;
        quant_group(&to, x + col, most, outlier ? left : NULL);
        if (outlier) {
          x_group rest;
          quant_group(&rest, left, largest_of_group(left), NULL);
          put_group(block + all, &q, g, b, nb, &rest);
          flags[s * nb + b] = 1;
        }
      }
      put_group(block, &q, g, b, nb, &to);
    }
  }
}

#define QUANTIZE(dtype) case dtype: pack_quant_row(block, x, cols, b, nb, steps, dtype); return;
static void quantize_row(int dtype, char *block, const float *x, int cols, int b, int nb, int steps) {
  switch (dtype) {
    QUANTIZE(MSGL_Q8)
    QUANTIZE(MSGL_Q4)
    QUANTIZE(MSGL_Q4M)
    QUANTIZE(MSGL_Q6)
    QUANTIZE(MSGL_Q8M)
  }
}
