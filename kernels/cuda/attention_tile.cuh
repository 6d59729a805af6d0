// attention_tile.cuh: a warp's 16 pairs against 16 positions.
//
// Keys and values lie in shared memory as in the cache. Scores are q kT, sums of weights
// are p v, both by tiles of mma.cuh. With lane = 4g + j, a lane has rows (pairs) g and
// g + 8, and:
//   of a key      the 16 dimensions 64s + 16j ... of every 64
//   of scores     positions 2j, 2j+1 of the first and of the last eight
//   of a value    the 8 dimensions 64s + 8g ... of every 64
//   of the sums   the 16 dimensions 64s + 16j ... of every 64
// Dimensions from D on are zeros.
#ifndef MSGL_ATTENTION_TILE_CUH
#define MSGL_ATTENTION_TILE_CUH

#include "attention_tasks.cuh"
#include "mma.cuh"

namespace msgl {

enum { TILE = 16 };  // positions

// The lane's rows are lane_g() and lane_g() + 8.
__device__ inline int lane_g() { return (int)threadIdx.x % WARP / 4; }
__device__ inline int lane_j() { return (int)threadIdx.x % 4; }

// Keys and then values of a tile in shared memory, rows of D (padded) elements. The 16
// bytes of a row are permuted, so that what lanes read at once lies in different banks.
template <int DTYPE, int D> struct KvStage {
  static constexpr int ELEM = DTYPE == MSGL_F32 ? 4 : DTYPE == MSGL_I8 || DTYPE == MSGL_F8 ? 1 : 2;
  static constexpr int PITCH = D * ELEM, PIECES = PITCH / 16, HALF = TILE * PITCH, BYTES = 2 * HALF;
  static constexpr int SWIZZLE = PIECES < 8 ? PIECES - 1 : 7;
  static constexpr int COUNT = DTYPE == MSGL_F32 ? 2 : 3;  // stages that are filled and read in turn
  static constexpr int RING = COUNT * BYTES;
  static __device__ int at(int row, int piece) { return row * PITCH + (piece ^ (row & SWIZZLE)) * 16; }
};

// Two signed bytes, in the low halves of a pair, as bf16, exactly: 128 + the low 7 bits, less 128, or 256 if negative.
__device__ inline uint32_t i8_to_bf16(uint32_t pair) {
  return fma_pair_bf16((pair & 0x007f007fu) | 0x43004300u, 0x3f803f80u, (pair & 0x00800080u) | 0xc300c300u);
}

// Two e4m3 likewise: with the bits in bf16's places the value is 2^-120 of what it should be. A NaN becomes 480.
__device__ inline uint32_t f8_to_bf16(uint32_t pair) {
  return fma_pair_bf16((pair & 0x00800080u) << 8 | (pair & 0x007f007fu) << 4, 0x7b807b80u, 0x80008000u);
}

// Four bytes as bf16.
template <int DTYPE> __device__ uint2 bytes_to_bf16(uint32_t w) {
  uint32_t low = (w & 0xff) | (w & 0xff00) << 8, high = (w >> 16 & 0xff) | (w >> 8 & 0xff0000);
  if (DTYPE == MSGL_F8) return {f8_to_bf16(low), f8_to_bf16(high)};
  return {i8_to_bf16(low), i8_to_bf16(high)};
}

// What the products are made of: halves, bf16 for caches of i8 and f8.
template <int DTYPE> struct Tile {
  typedef uint4 A;
  typedef uint2 B;
  typedef uint4 Eight;  // values in order

  static __device__ uint32_t pair(float a, float b) { return DTYPE == MSGL_F16 ? pair_f16(a, b) : pair_bf16(a, b); }
  static __device__ A round(const float v[8]) { return {pair(v[0], v[1]), pair(v[2], v[3]), pair(v[4], v[5]), pair(v[6], v[7])}; }

  // Values 8 unit ... of a row.
  template <int D> static __device__ Eight load(const char *rows, int row, int unit) {
    typedef KvStage<DTYPE, D> S;
    if (S::ELEM == 2) return *(const uint4 *)(rows + S::at(row, unit));
    uint2 codes = *(const uint2 *)(rows + S::at(row, unit / 2) + unit % 2 * 8);
    uint2 low = bytes_to_bf16<DTYPE>(codes.x), high = bytes_to_bf16<DTYPE>(codes.y);
    return {low.x, low.y, high.x, high.y};
  }

  // The first or the last four of eight values.
  static __device__ B along(const Eight &x, int last) { return last ? uint2{x.z, x.w} : uint2{x.x, x.y}; }

  // Value e of four rows.
  static __device__ B across(const Eight rows[4], int e) {
    uint32_t w[4];
    for (int r = 0; r < 4; r++) w[r] = e < 2 ? rows[r].x : e < 4 ? rows[r].y : e < 6 ? rows[r].z : rows[r].w;
    if (e % 2) return {w[0] >> 16 | (w[1] & 0xffff0000u), w[2] >> 16 | (w[3] & 0xffff0000u)};
    return {(w[0] & 0xffff) | w[1] << 16, (w[2] & 0xffff) | w[3] << 16};
  }

  static __device__ void multiply(float d[4], const A &a, const B &b) {
    if (DTYPE == MSGL_F16) {
      mma_f16(d, a, b);
    } else {
      mma_bf16(d, a, b);
    }
  }
};

template <> struct Tile<MSGL_F32> {
  typedef FloatsA A;
  typedef FloatsB B;
  typedef FloatsA Eight;

  static __device__ A round(const float v[8]) { return {{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]}}; }

  template <int D> static __device__ Eight load(const char *rows, int row, int unit) {
    Eight x;
    for (int i = 0; i < 8; i++) x.v[i] = ((const float *)(rows + KvStage<MSGL_F32, D>::at(row, 2 * unit + i / 4)))[i % 4];
    return x;
  }

  static __device__ B along(const Eight &x, int last) { return {{x.v[4 * last], x.v[4 * last + 1], x.v[4 * last + 2], x.v[4 * last + 3]}}; }
  static __device__ B across(const Eight rows[4], int e) { return {{rows[0].v[e], rows[1].v[e], rows[2].v[e], rows[3].v[e]}}; }
  static __device__ void multiply(float d[4], const A &a, const B &b) { mma_f32(d, a, b); }
};

// The warp's queries as parts of tiles: in registers where there are enough, else in shared memory.
template <int DTYPE, int D> struct Queries {
  typedef typename Tile<DTYPE>::A Part;
  static constexpr int STEPS = D / 16;
  static constexpr bool HELD = D <= 128 && DTYPE != MSGL_F32;
  static constexpr int ROOM = HELD ? 0 : STEPS * WARP * (int)sizeof(Part);  // bytes of shared memory
  Part held[HELD ? STEPS : 1];
  Part *room;  // the lane's; from step to step WARP parts

  __device__ void set(int i, const Part &x) {
    if (HELD) {
      held[HELD ? i : 0] = x;
    } else {
      room[i * WARP] = x;
    }
  }
  __device__ const Part &step(int i) const { return HELD ? held[HELD ? i : 0] : room[i * WARP]; }
};

// Pairs [pair, pair + pairs) of a task. room: of the warp
template <int DTYPE, int D> __device__ Queries<DTYPE, D> load_queries(const AttnArgs &a, const Task &t, int pair, int pairs, char *room) {
  Queries<DTYPE, D> q;
  q.room = (typename Tile<DTYPE>::A *)room + (int)threadIdx.x % WARP;
  int group = a.heads / a.kv;
  const float *rows[2];
  for (int h = 0; h < 2; h++) {
    int own = lane_g() + 8 * h, row = (pair + own) / group, head = t.head * group + (pair + own) % group;
    rows[h] = own < pairs ? a.q.row(t.first_row + row) + head * a.d : nullptr;
  }
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
    int first = i / 4 * 64 + lane_j() * 16 + i % 4 * 4;
    float v[8];
    for (int e = 0; e < 8; e++) {
      const float *row = rows[e / 2 % 2];
      v[e] = row && first < a.d ? row[first + e / 4 * 2 + e % 2] : 0;
    }
    q.set(i, Tile<DTYPE>::round(v));
  }
  return q;
}

// A running softmax of the lane's rows: o is the sum of weights times values, l that of the
// lane's weights exp(s - m).
template <int D> struct Softmax {
  float m[2], l[2], o[D / 8][4];  // o[8s + e][2h + c]: row g + 8h, dimension 64s + 16j + 8c + e
};

template <int D> __device__ void reset(Softmax<D> *s) {
  s->m[0] = s->m[1] = minus_infinity();
  s->l[0] = s->l[1] = 0;
#pragma unroll
  for (int i = 0; i < D / 8; i++) s->o[i][0] = s->o[i][1] = s->o[i][2] = s->o[i][3] = 0;
}

// d: dimensions that there are
template <int DTYPE, int D> __device__ void score(float s[2][4], const Queries<DTYPE, D> &q, const char *keys, int d) {
#pragma unroll
  for (int i = 0; i < D / 16; i += 2) {
    if (i / 4 * 64 >= d) break;
#pragma unroll
    for (int t = 0; t < 2; t++) {
      auto key = Tile<DTYPE>::template load<D>(keys, 8 * t + lane_g(), i / 4 * 8 + lane_j() * 2 + i / 2 % 2);
      for (int last = 0; last < 2; last++) Tile<DTYPE>::multiply(s[t], q.step(i + last), Tile<DTYPE>::along(key, last));
    }
  }
}

// The maximum, or the sum, over the four lanes that share a row.
__device__ inline float row_max(float x) {
  for (int mask = 1; mask < 4; mask *= 2) {
    float other = __shfl_xor_sync(0xffffffffu, x, mask);
    x = other > x ? other : x;
  }
  return x;
}

__device__ inline float row_sum(float x) {
  for (int mask = 1; mask < 4; mask *= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

// Turns a tile's scores into weights, with what came before scaled to the new maximum.
template <int D> __device__ void weigh(Softmax<D> *all, float s[2][4]) {
  float keep[2];
  bool rises = false;
  for (int h = 0; h < 2; h++) {
    float top = all->m[h];
    for (int t = 0; t < 2; t++) {
      for (int c = 0; c < 2; c++) top = s[t][2 * h + c] > top ? s[t][2 * h + c] : top;
    }
    top = row_max(top);
    float base = top > minus_infinity() ? top : 0, sum = 0;
    keep[h] = exp_of(all->m[h] - base);
    rises = rises || top > all->m[h];
    all->m[h] = top;
    for (int t = 0; t < 2; t++) {
      for (int c = 0; c < 2; c++) {
        float weight = exp_of(s[t][2 * h + c] - base);
        s[t][2 * h + c] = weight;
        sum += weight;
      }
    }
    all->l[h] = all->l[h] * keep[h] + sum;
  }
  if (!__ballot_sync(0xffffffffu, rises)) return;  // keep is 1
#pragma unroll
  for (int i = 0; i < D / 8; i++) {
    for (int e = 0; e < 4; e++) all->o[i][e] *= keep[e / 2];
  }
}

template <int DTYPE, int D> __device__ void add_values(Softmax<D> *all, const float s[2][4], const char *values, int d) {
  float v[8] = {s[0][0], s[0][1], s[0][2], s[0][3], s[1][0], s[1][1], s[1][2], s[1][3]};
  auto weights = Tile<DTYPE>::round(v);
#pragma unroll
  for (int i = 0; i < D / 64; i++) {
    if (i * 64 >= d) break;
    typename Tile<DTYPE>::Eight rows[4];
    for (int r = 0; r < 4; r++) rows[r] = Tile<DTYPE>::template load<D>(values, r / 2 * 8 + lane_j() * 2 + r % 2, i * 8 + lane_g());
#pragma unroll
    for (int e = 0; e < 8; e++) Tile<DTYPE>::multiply(all->o[i * 8 + e], weights, Tile<DTYPE>::across(rows, e));
  }
}

}  // namespace msgl

#endif
