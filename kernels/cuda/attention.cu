// attention.cu: causal attention over the paged cache.
//
// A block takes up to 8 (row, query head) pairs of a request under one key/value head.
// Positions go in chunks of 256 and blocks of 32, at fixed multiples from 0: a warp
// takes a block and computes its softmax by itself, then warp i merges the blocks of
// pair i in order, and chunks are merged in order. A request with one row (decoding)
// has a block of threads for each chunk and a second kernel that merges them, by
// the same arithmetic. So a row's result depends on its position alone.
#include "check.h"
#include "device.cuh"

namespace msgl {
namespace {

enum {
  ATTN_THREADS = 256,
  ATTN_WARPS = ATTN_THREADS / WARP,
  PAIRS = ATTN_WARPS,               // a warp merges a pair
  POSITIONS = WARP,                 // of a block: a lane has one
  CHUNK = ATTN_WARPS * POSITIONS,
  LOAD = 8,                         // values of a head that are loaded together
};

struct AttnArgs {
  Floats dst, q;
  const char *k, *v;
  Indices table, cu, lens;
  int64_t table_stride, row_bytes;
  int table_cols, requests, rows, cache_pages;
  int heads, kv, d, page, window;
  float scale;
  float *partials;  // [requests, max_chunks, heads, D + 2]: o, max, sum
  int max_chunks;
};

// A running softmax: o is the sum of weights times values, l that of the weights exp(s - m).
template <int NC> struct Softmax {
  float m, l, o[NC];  // lane i has elements i, i + 32, ... of o
};

template <int NC> __device__ Softmax<NC> nothing() {
  Softmax<NC> s = {};
  s.m = minus_infinity();
  return s;
}

// Merges the result of the positions that follow.
template <int NC> __device__ void merge(Softmax<NC> *all, const Softmax<NC> &next) {
  if (!(next.m > minus_infinity())) return;
  float top = next.m > all->m ? next.m : all->m, keep = exp_of(all->m - top), take = exp_of(next.m - top);
  all->m = top;
  all->l = all->l * keep + next.l * take;
  for (int c = 0; c < NC; c++) all->o[c] = fmaf(next.o[c], take, all->o[c] * keep);
}

// Eight values from i on of a head, as stored.
template <int DTYPE> __device__ void load_values(float out[LOAD], const char *head, int i) {
  if (DTYPE == MSGL_F32) {
    uint4 a = ((const uint4 *)head)[i / 4], b = ((const uint4 *)head)[i / 4 + 1];
    uint32_t words[LOAD] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    for (int e = 0; e < LOAD; e++) out[e] = __uint_as_float(words[e]);
  } else if (DTYPE == MSGL_I8) {
    for (int w = 0; w < 2; w++) {
      uint32_t word = ((const uint32_t *)head)[i / 4 + w];
      for (int e = 0; e < 4; e++) out[4 * w + e] = (float)(int8_t)(word >> (8 * e));
    }
  } else {
    uint4 a = ((const uint4 *)head)[i / LOAD];
    uint32_t words[4] = {a.x, a.y, a.z, a.w};
    for (int e = 0; e < LOAD; e++) {
      uint16_t half = (uint16_t)(words[e / 2] >> (16 * (e % 2)));
      out[e] = DTYPE == MSGL_BF16 ? from_bf16(half) : from_f16(half);
    }
  }
}

template <int DTYPE> __device__ float load_value(const char *head, int i) {
  if (DTYPE == MSGL_F32) return ((const float *)head)[i];
  if (DTYPE == MSGL_I8) return (float)((const int8_t *)head)[i];
  uint16_t half = ((const uint16_t *)head)[i];
  return DTYPE == MSGL_BF16 ? from_bf16(half) : from_f16(half);
}

// A block's work: pairs of one request under one key/value head, against chunks.
struct Task {
  int request, head, length;  // head: of keys and values
  int first_row;              // of the request, in the batch
  int rows;                   // of the request in the batch
  int pair, pairs;            // pair p: row p / group of the request, query head p % group
  int chunk, end_chunk;
  bool whole;                 // all chunks: no merging afterwards
};

// How many tasks request r has under each key/value head. What does not fit is a fault, and has none.
__device__ int count_tasks(Guard g, const AttnArgs &a, int r) {
  int count = a.cu[r + 1] - a.cu[r], length = a.lens[r];
  bool ends = (r > 0 || a.cu[0] == 0) && (r + 1 < a.requests || a.cu[a.requests] == a.rows);
  if (!ends || count < 0 || length < count || a.cu[r] < 0 || a.cu[r + 1] > a.rows || ceil_div(length, a.page) > a.table_cols) {
    fail(g, MSGL_ERR_INDEX);
    return 0;
  }
  int tiles = (int)ceil_div((int64_t)count * (a.heads / a.kv), PAIRS);
  return count == 1 ? tiles * (int)ceil_div(length, CHUNK) : tiles;
}

// Fills starts[0 .. requests] with the first task of each request; returns their number.
__device__ int list_tasks(Guard g, const AttnArgs &a, int *starts) {
  int lane = (int)threadIdx.x % WARP, total = 0;
  if (threadIdx.x < WARP) {
    for (int first = 0; first < a.requests; first += WARP) {
      int r = first + lane, count = r < a.requests ? count_tasks(g, a, r) : 0, before = warp_before(count);
      if (r < a.requests) starts[r] = total + before;
      total += __shfl_sync(0xffffffffu, before + count, WARP - 1);
    }
    if (lane == 0) starts[a.requests] = total;
  }
  __syncthreads();
  return starts[a.requests];
}

__device__ Task find_task(const AttnArgs &a, const int *starts, int index) {
  int low = 0, high = a.requests;  // starts[low] <= unit < starts[high]
  int unit = index / a.kv;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (starts[middle] <= unit) {
      low = middle;
    } else {
      high = middle;
    }
  }
  Task t = {low, index % a.kv, a.lens[low], a.cu[low], a.cu[low + 1] - a.cu[low], 0, 0, 0, 0, true};
  int group = a.heads / a.kv, chunks = (int)ceil_div(t.length, CHUNK), within = unit - starts[low];
  t.whole = t.rows != 1;
  t.chunk = t.whole ? 0 : within % chunks;
  t.pair = (t.whole ? within : within / chunks) * PAIRS;
  t.pairs = (int)smaller(PAIRS, (int64_t)t.rows * group - t.pair);
  int last = t.length - t.rows + (t.pair + t.pairs - 1) / group;  // position of the last pair
  t.end_chunk = t.whole ? last / CHUNK + 1 : t.chunk + 1;
  if (t.whole && a.window > 0) t.chunk = (int)larger(0, t.length - t.rows + t.pair / group + 1 - a.window) / CHUNK;
  return t;
}

// A block's shared memory.
struct Room {
  int *starts;   // [requests + 1]
  float *q;      // [PAIRS][D]
  float *p;      // [warps][PAIRS][POSITIONS]
  float *o;      // [warps][PAIRS][D]
  float *m, *l;  // [warps][PAIRS]
};

__host__ __device__ inline int64_t starts_words(int requests) { return (requests + 1 + 3) / 4 * 4; }

__device__ Room room_of(const AttnArgs &a) {
  float *base = shared_memory<float>();
  Room room = {(int *)base, base + starts_words(a.requests), nullptr, nullptr, nullptr, nullptr};
  room.p = room.q + PAIRS * a.d;
  room.o = room.p + ATTN_WARPS * PAIRS * POSITIONS;
  room.m = room.o + ATTN_WARPS * PAIRS * a.d;
  room.l = room.m + ATTN_WARPS * PAIRS;
  return room;
}

size_t room_bytes(const AttnArgs &a) {
  return sizeof(float) * (size_t)(starts_words(a.requests) + PAIRS * a.d * (1 + ATTN_WARPS) + ATTN_WARPS * PAIRS * (POSITIONS + 2));
}

// The lane's position of a block, and where its key and value are.
struct Place {
  int64_t slot;
  bool seen;  // by any pair of the task
};

__device__ Place find_place(Guard g, const AttnArgs &a, const Task &t, int position) {
  int group = a.heads / a.kv, first = t.length - t.rows + t.pair / group, last = t.length - t.rows + (t.pair + t.pairs - 1) / group;
  Place place = {0, position <= last && (a.window <= 0 || position > first - a.window)};
  if (!place.seen) return place;
  int page = a.table[t.request * a.table_stride + position / a.page];
  if (page < 0 || page >= a.cache_pages) {
    fail(g, MSGL_ERR_INDEX);
    place.seen = false;
    return place;
  }
  place.slot = (int64_t)page * a.page + position % a.page;
  return place;
}

// The scores of the lane's position: q . k for each pair.
template <int DTYPE> __device__ void scores(float s[PAIRS], const AttnArgs &a, const float *q, const char *key) {
#pragma unroll 1
  for (int i = 0; i < a.d; i += LOAD) {
    float k[LOAD];
    load_values<DTYPE>(k, key, i);
    for (int p = 0; p < PAIRS; p++) {
      for (int e = 0; e < LOAD; e++) s[p] = fmaf(q[p * a.d + i + e], k[e], s[p]);
    }
  }
}

__device__ inline float head_scale(const AttnArgs &a, const char *row, int head) { return ((const float *)(row + a.kv * a.d))[head]; }

// A warp's block of positions from `start` on, for all pairs of the task; leaves m, l, o in the room.
template <int DTYPE, int NC> __device__ void attend_block(Guard g, const AttnArgs &a, const Task &t, const Room &room, int start) {
  int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, group = a.heads / a.kv;
  int position = start + lane, first_position = t.length - t.rows;
  Place place = find_place(g, a, t, position);
  unsigned seen = __ballot_sync(0xffffffffu, place.seen);
  if (seen == 0) {
    if (lane < PAIRS) room.m[warp * PAIRS + lane] = minus_infinity();
    return;
  }
  const char *keys = a.k + place.slot * a.row_bytes, *values = a.v + place.slot * a.row_bytes;
  int head_offset = t.head * a.d * elem_size(DTYPE);
  float s[PAIRS] = {}, *weights = room.p + warp * PAIRS * POSITIONS;
  if (place.seen) scores<DTYPE>(s, a, room.q, keys + head_offset);
  for (int p = 0; p < PAIRS; p++) {
    if (p >= t.pairs) {
      weights[p * POSITIONS + lane] = 0;
      continue;
    }
    int own = first_position + (t.pair + p) / group;
    bool visible = place.seen && position <= own && (a.window <= 0 || position > own - a.window);
    float x = minus_infinity(), weight = 0;
    if (visible) x = DTYPE == MSGL_I8 ? s[p] * a.scale * head_scale(a, keys, t.head) : s[p] * a.scale;
    float m = warp_max(x);
    if (m > minus_infinity()) weight = exp_of(x - m);
    float l = warp_sum(weight);
    if (DTYPE == MSGL_I8 && place.seen) weight *= head_scale(a, values, t.head);
    weights[p * POSITIONS + lane] = weight;
    if (lane == 0) {
      room.m[warp * PAIRS + p] = m;
      room.l[warp * PAIRS + p] = l;
    }
  }
  __syncwarp();
  float o[PAIRS][NC] = {};
#pragma unroll(NC > 4 ? 1 : 4)
  for (int j = 0; j < POSITIONS; j++) {
    if (!(seen >> j & 1)) continue;
    int64_t slot = __shfl_sync(0xffffffffu, place.slot, j);
    const char *head = a.v + slot * a.row_bytes + head_offset;
    for (int c = 0; c < NC; c++) {
      int i = c * WARP + lane;
      float v = i < a.d ? load_value<DTYPE>(head, i) : 0;
      for (int p = 0; p < PAIRS; p++) o[p][c] = fmaf(weights[p * POSITIONS + j], v, o[p][c]);
    }
  }
#pragma unroll
  for (int p = 0; p < PAIRS; p++) {
#pragma unroll
    for (int c = 0; c < NC; c++) {
      if (p < t.pairs && c * WARP + lane < a.d) room.o[(warp * PAIRS + p) * a.d + c * WARP + lane] = o[p][c];
    }
  }
}

// Merges the warps' blocks of the pair that belongs to this warp.
template <int NC> __device__ Softmax<NC> merge_blocks(const AttnArgs &a, const Room &room) {
  int lane = (int)threadIdx.x % WARP, pair = (int)threadIdx.x / WARP;
  Softmax<NC> all = nothing<NC>();
  for (int w = 0; w < ATTN_WARPS; w++) {
    int at = w * PAIRS + pair;
    Softmax<NC> next = {room.m[at], room.l[at], {}};
    if (!(next.m > minus_infinity())) continue;
    for (int c = 0; c < NC; c++) next.o[c] = c * WARP + lane < a.d ? room.o[at * a.d + c * WARP + lane] : 0;
    merge(&all, next);
  }
  return all;
}

template <int NC> __device__ void store_result(const AttnArgs &a, float *dst, const Softmax<NC> &s) {
  int lane = (int)threadIdx.x % WARP;
  for (int c = 0; c < NC; c++) {
    if (c * WARP + lane < a.d) dst[c * WARP + lane] = s.o[c] / s.l;
  }
}

__device__ inline float *partial(const AttnArgs &a, int request, int chunk, int head) {
  return a.partials + (((int64_t)request * a.max_chunks + chunk) * a.heads + head) * (a.d + 2);
}

template <int NC> __device__ void store_partial(const AttnArgs &a, float *to, const Softmax<NC> &s) {
  int lane = (int)threadIdx.x % WARP;
  for (int c = 0; c < NC; c++) {
    if (c * WARP + lane < a.d) to[c * WARP + lane] = s.o[c];
  }
  if (lane == 0) {
    to[a.d] = s.m;
    to[a.d + 1] = s.l;
  }
}

template <int DTYPE, int NC> __device__ void run_task(Guard g, const AttnArgs &a, const Task &t, const Room &room) {
  int warp = (int)threadIdx.x / WARP, group = a.heads / a.kv;
  for (int i = (int)threadIdx.x; i < PAIRS * a.d; i += ATTN_THREADS) {
    int pair = t.pair + i / a.d, head = t.head * group + pair % group;
    room.q[i] = i / a.d < t.pairs ? a.q.row(t.first_row + pair / group)[head * a.d + i % a.d] : 0;
  }
  Softmax<NC> all = nothing<NC>();
  for (int chunk = t.chunk; chunk < t.end_chunk; chunk++) {
    __syncthreads();
    attend_block<DTYPE, NC>(g, a, t, room, chunk * CHUNK + warp * POSITIONS);
    __syncthreads();
    if (warp >= t.pairs) continue;
    Softmax<NC> next = merge_blocks<NC>(a, room);
    if (t.whole) {
      merge(&all, next);
    } else {
      all = next;
    }
  }
  __syncthreads();
  if (warp >= t.pairs) return;
  int pair = t.pair + warp, head = t.head * group + pair % group;
  if (t.whole) {
    store_result(a, a.dst.row(t.first_row + pair / group) + head * a.d, all);
  } else {
    store_partial(a, partial(a, t.request, t.chunk, head), all);
  }
}

// A fixed number of blocks, so that the launch does not depend on lengths.
template <int DTYPE, int NC> __global__ void __launch_bounds__(ATTN_THREADS, 1) attention_kernel(Guard g, AttnArgs a) {
  if (stopped(g)) return;
  Room room = room_of(a);
  int tasks = list_tasks(g, a, room.starts) * a.kv;
  for (int i = (int)blockIdx.x; i < tasks; i += (int)gridDim.x) run_task<DTYPE, NC>(g, a, find_task(a, room.starts, i), room);
}

// Merges the chunks of requests with one row: a block a request, a warp a head.
template <int NC> __global__ void attention_merge_kernel(Guard g, AttnArgs a) {
  if (stopped(g)) return;
  int r = (int)blockIdx.x, head = (int)(blockIdx.y * ATTN_WARPS + threadIdx.x / WARP), lane = (int)threadIdx.x % WARP;
  if (head >= a.heads || a.cu[r + 1] - a.cu[r] != 1 || count_tasks(g, a, r) == 0) return;
  Softmax<NC> all = nothing<NC>();
  int chunks = (int)ceil_div(a.lens[r], CHUNK);
  for (int chunk = 0; chunk < chunks; chunk++) {
    const float *from = partial(a, r, chunk, head);
    Softmax<NC> next = {from[a.d], from[a.d + 1], {}};
    for (int c = 0; c < NC; c++) next.o[c] = c * WARP + lane < a.d ? from[c * WARP + lane] : 0;
    merge(&all, next);
  }
  store_result(a, a.dst.row(a.cu[r]) + head * a.d, all);
}

template <int DTYPE, int NC> int launch_attention(Run &run, const AttnArgs &a) {
  int64_t group = a.heads / a.kv, decode = (int64_t)a.requests * a.max_chunks * ceil_div(group, PAIRS);
  int64_t most = (decode + ceil_div(a.rows * group, PAIRS) + a.requests) * a.kv;
  dim3 grid((unsigned)smaller(most, 4 * multiprocessors()));
  int code = launch(run, attention_kernel<DTYPE, NC>, grid, ATTN_THREADS, room_bytes(a), run.guard, a);
  if (code != MSGL_OK) return code;
  dim3 rows((unsigned)a.requests, (unsigned)ceil_div(a.heads, ATTN_WARPS));
  return launch(run, attention_merge_kernel<NC>, rows, ATTN_THREADS, 0, run.guard, a);
}

template <int NC> int launch_dtype(Run &run, const AttnArgs &a, int dtype) {
  switch (dtype) {
    case MSGL_F32: return launch_attention<MSGL_F32, NC>(run, a);
    case MSGL_BF16: return launch_attention<MSGL_BF16, NC>(run, a);
    case MSGL_F16: return launch_attention<MSGL_F16, NC>(run, a);
    default: return launch_attention<MSGL_I8, NC>(run, a);
  }
}

int check_attention(const msgl_op &op) {
  int code = check_heads(op);
  if (code != MSGL_OK) return code;
  const msgl_tensor &dst = op.t[0], &q = op.t[1], &table = op.t[4];
  return first_error(columns(q, MSGL_F32, (int64_t)op.i[0] * op.i[2]), view(dst, MSGL_F32, q.rows, q.cols),
                     check_caches(op, op.t[2], op.t[3]), columns(table, MSGL_I32, table.cols),
                     view(op.t[5], MSGL_I32, 1, (int64_t)table.rows + 1), view(op.t[6], MSGL_I32, 1, table.rows));
}

}  // namespace

int attention(Run &run, const msgl_op &op) {
  int code = check_attention(op);
  if (code != MSGL_OK || op.t[1].rows == 0) return code;
  const msgl_tensor &k = op.t[2], &table = op.t[4];
  AttnArgs a = {};
  a.dst = floats(op.t[0]);
  a.q = floats(op.t[1]);
  a.k = (const char *)(uintptr_t)k.addr;
  a.v = (const char *)(uintptr_t)op.t[3].addr;
  a.table = ints(table);
  a.cu = ints(op.t[5]);
  a.lens = ints(op.t[6]);
  a.table_stride = table.stride;
  a.row_bytes = (int64_t)k.stride * elem_size(k.dtype);
  a.table_cols = table.cols;
  a.requests = table.rows;
  a.rows = op.t[1].rows;
  a.heads = op.i[0];
  a.kv = op.i[1];
  a.d = op.i[2];
  a.page = op.i[3];
  a.window = op.i[4];
  a.cache_pages = (int)(k.rows / a.page);
  a.scale = op.f[0];
  a.max_chunks = (int)ceil_div((int64_t)table.cols * a.page, CHUNK);
  a.partials = take<float>(run, (int64_t)a.requests * a.max_chunks * a.heads * (a.d + 2));
  if (a.d <= 32) return launch_dtype<1>(run, a, k.dtype);
  if (a.d <= 64) return launch_dtype<2>(run, a, k.dtype);
  if (a.d <= 128) return launch_dtype<4>(run, a, k.dtype);
  return launch_dtype<8>(run, a, k.dtype);
}

}  // namespace msgl
