// attention_scores_impl.h: the scores of query rows with a block of 32 keys.
//
// A score has 8 lanes. Lane l takes the elements l, l + 8, ... in order; of bf16 keys, whose
// vectors are pairs, the elements 2l, 2l + 1, 2l + 16, ... Heads end with zeros up to a multiple
// of 32. Lanes that are 4 apart are added first, then those 2 apart, then the two that are left.
// There are two ways to the same bits:
//
//   dot_scores    few rows: vectors are the lanes of a key, so that keys are used as they lie
//   outer_scores  many rows: vectors are positions. Keys are transposed for that, which pays
//                 when several tiles of rows use them

// Rows of a tile of dot_scores, and the most rows that it is used for.
#if defined(MSGL_ISA_AVX512)
enum { DOT_ROWS = 4, DOT_MOST = 8 };
#define DOT_TILES(X) X(1) X(2) X(3) X(4)
#else
enum { DOT_ROWS = 3, DOT_MOST = 6 };
#define DOT_TILES(X) X(1) X(2) X(3)
#endif

enum {
  SCORE_LANES = 8,
  LANE_PAIRS = SCORE_LANES / 2,                             // lanes l and l + 4
  DOT_KEYS = VW / 2,                                        // keys of a tile of dot_scores
  DOT_VECS = DOT_KEYS * SCORE_LANES / VW,                   // vectors of their lanes
  LANE_VECS = VW < SCORE_LANES ? SCORE_LANES / VW : 1,      // vectors of one key's lanes
};

// Elements of a key that lie together in a lane.
ALWAYS int lane_elements(int dtype) { return dtype == MSGL_BF16 ? 2 : 1; }

// Whether transposed bf16 keys stay pairs until they meet a row: splitting a vector of them
// takes two instructions, for which AVX2 has ports beside the multiply-adds'.
ALWAYS int in_pairs(int dtype) { return VW == 8 && dtype == MSGL_BF16; }

// Where outer_scores has element e of a row of a query: [pair of lanes][element of a lane][2],
// pairs in the order in which they are added up.
ALWAYS int outer_index(int dtype, int d, int e) {
  const int per = lane_elements(dtype);
  int lane = e / per % SCORE_LANES, at = e / (per * SCORE_LANES) * per + e % per, pair = lane % LANE_PAIRS;
  int turn = (pair & 1) << 1 | pair >> 1;
  return (turn * (d / SCORE_LANES) + at) * 2 + lane / LANE_PAIRS;
}

// Where dot_scores has it: the lanes of a vector lie together.
ALWAYS int dot_index(int dtype, int e) {
  const int per = lane_elements(dtype);
  return e / (per * SCORE_LANES) * per * SCORE_LANES + e % per * SCORE_LANES + e / per % SCORE_LANES;
}

// Element `part` of words that hold several of a type.
ALWAYS vf word_part(int dtype, vi words, int part) {
  switch (dtype) {
    case MSGL_BF16: return (vf)(part ? (vu)words & 0xffff0000u : (vu)words << 16);
    case MSGL_F16: {
      vh half = __builtin_convertvector((vu)words >> (16 * part) & 0xffffu, vh);
      return vld_f16(&half);
    }
    case MSGL_I8: return __builtin_convertvector(words << (24 - 8 * part) >> 24, vf);
    default: return (vf)words;
  }
}

// The row of transposed keys that holds element e: several of them share a row of pairs.
ALWAYS int key_row(int dtype, int d, int e) {
  int at = outer_index(dtype, d, e);
  return in_pairs(dtype) ? at / 4 * 2 + at % 2 : at;
}

// keys: the block's, transposed: rows of 32 values or pairs, as key_row has them. Words of 32 bits
// change places as one and are split after that. VW keys at a time, over all their elements: keys
// lie so that the cache could not hold a line of each until its other half is wanted.
ALWAYS void transpose_keys(int dtype, float *keys, const char *const k[BLOCK], int d, int padded) {
  const int size = (int)msgl_elem_size(dtype), per_word = 4 / size, whole = d / (per_word * VW) * per_word * VW;
  for (int j = 0; j < BLOCK; j += VW) {
    for (int i = 0; i < whole; i += per_word * VW) {
      vi r[VW];
      UNROLL for (int l = 0; l < VW; l++) r[l] = (vi)vldu(k[j + l] + i * size);
      transpose(r);
      float *at = keys + (size_t)key_row(dtype, padded, i) * BLOCK + j;
      UNROLL for (int l = 0; l < VW; l++) {
        if (in_pairs(dtype)) {
          vst(at + (size_t)key_row(dtype, padded, 2 * l) * BLOCK, (vf)r[l]);
          continue;
        }
        UNROLL for (int part = 0; part < per_word; part++) {
          vst(at + (size_t)key_row(dtype, padded, per_word * l + part) * BLOCK, word_part(dtype, r[l], part));
        }
      }
    }
  }
  for (int i = whole; i < padded; i += in_pairs(dtype) ? 2 : 1) {
    float *row = keys + (size_t)key_row(dtype, padded, i) * BLOCK;
    for (int j = 0; j < BLOCK; j++) {
      row[j] = i < d && !in_pairs(dtype) ? load_one(dtype, k[j], i) : 0;
      if (i < d && in_pairs(dtype)) memcpy(&row[j], k[j] + 2 * i, 4);
    }
  }
}

static void load_keys(int dtype, float *keys, const char *const k[BLOCK], int d, int padded) {
  switch (dtype) {
    case MSGL_BF16: transpose_keys(MSGL_BF16, keys, k, d, padded); return;
    case MSGL_F16: transpose_keys(MSGL_F16, keys, k, d, padded); return;
    case MSGL_I8: transpose_keys(MSGL_I8, keys, k, d, padded); return;
    default: transpose_keys(MSGL_F32, keys, k, d, padded); return;
  }
}

// Element i of a lane, at positions from j on; keys: the transposed rows of a pair of lanes.
ALWAYS vf key_at(int dtype, const float *keys, int i, int half, int j) {
  if (!in_pairs(dtype)) return vld(keys + (size_t)(2 * i + half) * BLOCK + j);
  return vld_half_bf16(keys + (size_t)(i / 2 * 2 + half) * BLOCK + j, i % 2);
}

// The sums of two lanes for two vectors of positions from j on, nr rows.
ALWAYS void lane_pair(int dtype, int nr, vf sum[ATTN_ROWS][2], const float *q, const float *keys, int j, int elements,
                      lines_ahead *ahead) {
  vf acc[2][ATTN_ROWS][2];
  UNROLL for (int i = 0; i < 4 * nr; i++) acc[i % 2][i / 4][i / 2 % 2] = vset1(0);
  for (int k = 0; k < elements; k += 2) {
    UNROLL for (int i = 0; i < 4; i++) {
      if (i * 2 % AHEAD_COLS == 0) prefetch_lines(ahead);
      const float *qp = q + (size_t)(2 * k + i) * (size_t)nr;
      vf k0 = key_at(dtype, keys, k + i / 2, i % 2, j), k1 = key_at(dtype, keys, k + i / 2, i % 2, j + VW);
      UNROLL for (int r = 0; r < nr; r++) {
        vf qv = vset1(qp[r]);
        acc[i % 2][r][0] = vfma(qv, k0, acc[i % 2][r][0]);
        acc[i % 2][r][1] = vfma(qv, k1, acc[i % 2][r][1]);
      }
    }
  }
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int v = 0; v < 2; v++) sum[r][v] = acc[0][r][v] + acc[1][r][v];
  }
}

// s[nr][32]; q: [elements as outer_index has them][nr]
ALWAYS void outer_scores(int dtype, int nr, float *s, const float *q, const float *keys, int padded, lines_ahead *ahead) {
  const int elements = padded / SCORE_LANES;
  for (int j = 0; j < BLOCK; j += 2 * VW) {
    vf sum[ATTN_ROWS][2], waiting[2][ATTN_ROWS][2];  // sums of 1 and 2 pairs of lanes
    for (int turn = 0; turn < LANE_PAIRS; turn++) {
      size_t first = (size_t)(turn * elements * 2);
      lane_pair(dtype, nr, sum, q + first * (size_t)nr, keys + first / (in_pairs(dtype) ? 2 : 1) * BLOCK, j, elements, ahead);
      int level = 0;
      for (; turn >> level & 1; level++) {
        UNROLL for (int i = 0; i < 2 * nr; i++) sum[i / 2][i % 2] += waiting[level][i / 2][i % 2];
      }
      if (level == 2) break;
      UNROLL for (int i = 0; i < 2 * nr; i++) waiting[level][i / 2][i % 2] = sum[i / 2][i % 2];
    }
    UNROLL for (int i = 0; i < 2 * nr; i++) vst(s + i / 2 * BLOCK + j + i % 2 * VW, sum[i / 2][i % 2]);
  }
}

#define OUTER(dtype, nr) case nr: outer_scores(dtype, nr, s, q, keys, padded, ahead); break;
#define OUTER_BF16(nr) OUTER(MSGL_BF16, nr)
#define OUTER_F32(nr) OUTER(MSGL_F32, nr)
static void outer_tile(int dtype, int nr, float *s, const float *q, const float *keys, int padded, lines_ahead *ahead) {
  if (in_pairs(dtype)) {
    switch (nr) { ATTN_TILES(OUTER_BF16) }
  } else {
    switch (nr) { ATTN_TILES(OUTER_F32) }
  }
}

// Vector v of the lanes of elements `part` in a stretch of DOT_KEYS keys: on wide vectors the lanes
// of keys v and v + 4.
ALWAYS vf lane_values(int dtype, const char *const *k, size_t at, int part, int v) {
#if VW == 16
  const char *a = k[v] + at, *b = k[v + DOT_VECS] + at;
  if (dtype == MSGL_BF16 || dtype == MSGL_F32) {
    __m512i both = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a));
    both = _mm512_inserti64x4(both, _mm256_loadu_si256((const __m256i *)b), 1);
    return dtype == MSGL_F32 ? (vf)both : word_part(MSGL_BF16, (vi)both, part);
  }
  char joined[32];
  int size = (int)msgl_elem_size(dtype) * SCORE_LANES;
  memcpy(joined, a, (size_t)size);
  memcpy(joined + size, b, (size_t)size);
  return vld_any(dtype, joined, 0);
#else
  const char *stretch = k[v / LANE_VECS] + at;
  if (dtype == MSGL_BF16) return vld_half_bf16(stretch + v % LANE_VECS * VW * 4, part);
  return vld_any(dtype, stretch, v % LANE_VECS * VW);
#endif
}

// Vector v of a stretch of a query, as lane_values has keys.
ALWAYS vf lane_query(const float *q, int v) {
#if VW == 16
  (void)v;
  return _mm512_broadcast_f32x8(_mm256_loadu_ps(q));
#else
  return vld(q + v % LANE_VECS * VW);
#endif
}

// Adds the products of a stretch of keys, which begins `at` bytes from their start; q: [nr][padded], at the same elements
ALWAYS void dot_stretch(int dtype, int nr, vf acc[DOT_ROWS][DOT_VECS], const float *q, int padded, const char *const *k,
                        size_t at) {
  UNROLL for (int part = 0; part < lane_elements(dtype); part++) {
    UNROLL for (int v = 0; v < DOT_VECS; v++) {
      vf kv = lane_values(dtype, k, at, part, v);
      UNROLL for (int r = 0; r < nr; r++) vadd_product(&acc[r][v], kv, lane_query(q + r * padded + part * SCORE_LANES, v));
    }
  }
}

// Adds what is s lanes apart: a's sums in the lanes whose bit s is clear, b's in the others.
#define JOIN(a, b, s) (SHUFFLE(a, b, T_ALL(T_LO, s)) + SHUFFLE(a, b, T_ALL(T_HI, s)))

// out[DOT_KEYS]: the sums of their lanes
ALWAYS void join_lanes(float *out, const vf acc[DOT_VECS]) {
#if VW >= 8
  vf even = JOIN(acc[0], acc[2], 4), odd = JOIN(acc[1], acc[3], 4);
#else
  vf even = acc[0] + acc[1], odd = acc[2] + acc[3];
#endif
  vf sum = JOIN(even, odd, 2);
  sum = JOIN(sum, sum, 1);
  UNROLL for (int j = 0; j < DOT_KEYS; j++) out[j] = sum[2 * j];
}

// s[nr][32]; q: [nr][elements as dot_index has them]
ALWAYS void dot_scores(int dtype, int nr, float *s, const float *q, const char *const k[BLOCK], int d, int padded,
                       lines_ahead *ahead) {
  const int width = lane_elements(dtype) * SCORE_LANES, whole = d / width * width;
  const size_t size = msgl_elem_size(dtype);
  for (int j = 0; j < BLOCK; j += DOT_KEYS) {
    vf acc[DOT_ROWS][DOT_VECS];
    UNROLL for (int i = 0; i < nr * DOT_VECS; i++) acc[i / DOT_VECS][i % DOT_VECS] = vset1(0);
    for (int i = 0; i < whole; i += width) {
      UNROLL for (int line = 0; line < DOT_KEYS; line += 4) prefetch_lines(ahead);
      dot_stretch(dtype, nr, acc, q + i, padded, k + j, (size_t)i * size);
    }
    if (whole < d) {
      char rest[DOT_KEYS][2 * SCORE_LANES * sizeof(float)] = {{0}};
      const char *ends[DOT_KEYS];
      for (int key = 0; key < DOT_KEYS; key++) {
        ends[key] = rest[key];
        memcpy(rest[key], k[j + key] + (size_t)whole * size, (size_t)(d - whole) * size);
      }
      dot_stretch(dtype, nr, acc, q + whole, padded, ends, 0);
    }
    UNROLL for (int r = 0; r < nr; r++) join_lanes(s + r * BLOCK + j, acc[r]);
  }
}

#define DOT(dtype, nr) case nr: dot_scores(dtype, nr, s, q, k, d, padded, ahead); break;
#define DOT_F32(nr) DOT(MSGL_F32, nr)
#define DOT_BF16(nr) DOT(MSGL_BF16, nr)
#define DOT_F16(nr) DOT(MSGL_F16, nr)
#define DOT_I8(nr) DOT(MSGL_I8, nr)
static void dot_tile(int dtype, int nr, float *s, const float *q, const char *const k[BLOCK], int d, int padded,
                     lines_ahead *ahead) {
  switch (dtype) {
    case MSGL_BF16: switch (nr) { DOT_TILES(DOT_BF16) } return;
    case MSGL_F16: switch (nr) { DOT_TILES(DOT_F16) } return;
    case MSGL_I8: switch (nr) { DOT_TILES(DOT_I8) } return;
    default: switch (nr) { DOT_TILES(DOT_F32) } return;
  }
}
