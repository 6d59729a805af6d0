// attention.cu: causal attention over the paged cache.
//
// Positions go in tiles of 16 and chunks of 256, at fixed multiples from 0. Within a chunk a
// running softmax takes tile after tile; chunks are merged in order. That is so for a
// row of a prompt, whose chunks one warp merges, and for one that is decoded, whose
// chunks different warps take. So a row's result depends on its position alone.
//
// Keys and values come by asynchronous copies, a few tiles ahead: of a prompt's task
// for all warps of a block, of a chunk's for its warp alone. Each is read once for all
// query heads above it.
#include "attention_tile.cuh"

namespace msgl {
namespace {

enum {
  MOST_WARPS = 8,
  TILES = CHUNK / TILE,
  MERGE_WARPS = 8,
  MOST_SUMS = 256 / WARP,  // of a head, for a lane
};

// The threads that share the copies of a task, and their shared memory.
struct Team {
  bool block;  // all of the block, else the warp
  int me, size;
  int *slots;         // [2][CHUNK]: where the positions of a chunk and of the next are in the caches; -1: not read
  float *k_scales, *v_scales;  // [2][CHUNK], of caches of i8
  char *stages;
  char *queries;  // of the warp
};

__device__ inline void wait_for(const Team &team) {
  if (team.block) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

// Bytes of a block's shared memory: the list of tasks; each warp's slots and scales, and its queries;
// rings of stages, one for each warp, or one and what each warp keeps while it goes through chunks.
template <int DTYPE, int D> struct Room {
  static constexpr int SLOTS = 2 * CHUNK * 4 * (DTYPE == MSGL_I8 ? 3 : 1);
  static constexpr int RING = KvStage<DTYPE, D>::RING;
  static constexpr int QUERIES = Queries<DTYPE, D>::ROOM;
  static constexpr int TOTAL = PAIRS * D * 4;
};

template <int DTYPE, int D> size_t shared_bytes(int requests, int warps) {
  typedef Room<DTYPE, D> R;
  return (size_t)(list_words(requests) * 4 + warps * (R::SLOTS + R::QUERIES) + larger(warps * R::RING, R::RING + warps * R::TOTAL));
}

template <int DTYPE, int D> __device__ Team team_of(const AttnArgs &a, bool block) {
  typedef Room<DTYPE, D> R;
  int warps = (int)blockDim.x / WARP, warp = block ? 0 : (int)threadIdx.x / WARP;
  int me = block ? (int)threadIdx.x : (int)threadIdx.x % WARP, size = block ? (int)blockDim.x : WARP;
  char *queries = shared_memory<char>() + list_words(a.requests) * 4, *slots = queries + warps * R::QUERIES;
  char *stages = slots + warps * R::SLOTS + warp * R::RING;
  slots += warp * R::SLOTS;
  float *scales = (float *)slots + 2 * CHUNK;
  return {block, me, size, (int *)slots, scales, scales + 2 * CHUNK, stages, queries + (int)threadIdx.x / WARP * R::QUERIES};
}

// Finds where the positions of a chunk are.
template <int DTYPE> __device__ void find_slots(Guard g, const AttnArgs &a, const Task &t, const Team &team, int chunk) {
  if (chunk * CHUNK > t.high) return;
  for (int i = team.me; i < CHUNK; i += team.size) {
    int position = chunk * CHUNK + i, at = chunk % 2 * CHUNK + i, slot = -1;
    if (position >= t.low && position <= t.high) {
      int page = a.table[t.request * a.table_stride + position / a.page];
      if (page < 0 || page >= a.cache_pages) {
        fail(g, MSGL_ERR_INDEX);
      } else {
        slot = page * a.page + position % a.page;
      }
    }
    team.slots[at] = slot;
    if (DTYPE != MSGL_I8) continue;
    int64_t scale = slot * a.row_bytes + a.kv * a.d;
    team.k_scales[at] = slot < 0 ? 0 : ((const float *)(a.k + scale))[t.head];
    team.v_scales[at] = slot < 0 ? 0 : ((const float *)(a.v + scale))[t.head];
  }
}

// Starts to copy a tile's keys and values, BYTES at a time.
template <int DTYPE, int D, int BYTES> __device__ void copy_tile(const AttnArgs &a, const Task &t, const Team &team, int tile) {
  typedef KvStage<DTYPE, D> S;
  constexpr int PARTS = S::PITCH / BYTES;
  const int *slots = team.slots + tile % (2 * TILES) * TILE;
  char *stage = team.stages + tile % S::COUNT * S::BYTES;
  int head_bytes = a.d * S::ELEM;
#pragma unroll 4
  for (int i = team.me; i < 2 * TILE * PARTS; i += team.size) {
    int half = i / (TILE * PARTS), row = i / PARTS % TILE, at = i % PARTS * BYTES, slot = slots[row];
    bool there = slot >= 0 && at < head_bytes;
    const char *from = (half ? a.v : a.k) + (there ? slot * a.row_bytes + t.head * head_bytes + at : 0);
    copy_async<BYTES>(stage + half * S::HALF + S::at(row, at / 16) + at % 16, from, there);
  }
}

// Starts to copy a tile if the task has it. Each call is a group of copies.
template <int DTYPE, int D> __device__ void start_tile(const AttnArgs &a, const Task &t, const Team &team, int tile) {
  if (tile <= t.high / TILE) {
    if (KvStage<DTYPE, D>::ELEM > 1 || a.aligned) {
      copy_tile<DTYPE, D, 16>(a, t, team, tile);
    } else {
      copy_tile<DTYPE, D, 4>(a, t, team, tile);
    }
  }
  commit_copies();
}

// What the lane's rows see; last -1: the row is none.
struct Sight {
  int first[2], last[2];
};

__device__ inline Sight sight_of(const AttnArgs &a, const Task &t, int pair, int pairs) {
  Sight s;
  for (int h = 0; h < 2; h++) {
    int own = lane_g() + 8 * h, position = t.first_position + (pair + own) / (a.heads / a.kv);
    s.last[h] = own < pairs ? position : -1;
    s.first[h] = first_seen(a, position);
  }
  return s;
}

// Scales a tile's scores, and hides those that are not seen.
template <int DTYPE> __device__ void hide(float s[2][4], const AttnArgs &a, const Team &team, const Sight &sight, int tile) {
  for (int i = 0; i < 8; i++) {
    int h = i / 2 % 2, within = i / 4 * 8 + lane_j() * 2 + i % 2, position = tile * TILE + within;
    float x = s[i / 4][i % 4] * a.scale;
    if (DTYPE == MSGL_I8) x *= team.k_scales[position % (2 * CHUNK)];
    s[i / 4][i % 4] = position <= sight.last[h] && position >= sight.first[h] ? x : minus_infinity();
  }
}

template <int DTYPE, int D>
__device__ void attend(Softmax<D> *all, const Queries<DTYPE, D> &q, const AttnArgs &a, const Team &team, const Sight &sight, int tile) {
  typedef KvStage<DTYPE, D> S;
  const char *keys = team.stages + tile % S::COUNT * S::BYTES;
  float s[2][4] = {};
  score(s, q, keys, a.d);
  hide<DTYPE>(s, a, team, sight, tile);
  weigh(all, s);
  for (int i = 0; i < 8 && DTYPE == MSGL_I8; i++) {
    s[i / 4][i % 4] *= team.v_scales[(tile * TILE + i / 4 * 8 + lane_j() * 2 + i % 2) % (2 * CHUNK)];
  }
  add_values<DTYPE>(all, s, keys + S::HALF, a.d);
}

// How much a merge keeps of one softmax, and takes of another.
struct Shares {
  float keep, take;
};

// Merges m and l of the positions that follow.
__device__ inline Shares merge(float *m, float *l, float next_m, float next_l) {
  if (!(next_m > minus_infinity())) return {1, 0};
  float top = next_m > *m ? next_m : *m;
  Shares s = {exp_of(*m - top), exp_of(next_m - top)};
  *m = top;
  *l = *l * s.keep + next_l * s.take;
  return s;
}

__device__ inline float merge(float o, float next, const Shares &s) { return fmaf(next, s.take, o * s.keep); }

// What the chunks before have given: a row's m and l, and the sums in shared memory.
struct Total {
  float m[2], l[2];
  float *o;  // [D / 8 * 4][lanes]
};

template <int D> __device__ Total no_total(char *room) {
  float *o = (float *)(room + (int)threadIdx.x / WARP * PAIRS * D * 4) + (int)threadIdx.x % WARP;
  for (int i = 0; i < D / 2; i++) o[i * WARP] = 0;
  return {{minus_infinity(), minus_infinity()}, {0, 0}, o};
}

template <int D> __device__ void merge_chunk(Total *total, const Softmax<D> &s) {
  Shares shares[2];
  for (int h = 0; h < 2; h++) shares[h] = merge(&total->m[h], &total->l[h], s.m[h], row_sum(s.l[h]));
#pragma unroll
  for (int i = 0; i < D / 2; i++) total->o[i * WARP] = merge(total->o[i * WARP], s.o[i / 4][i % 4], shares[i % 4 / 2]);
}

// The dimension of sum i of a lane.
__device__ inline int dimension(int i) { return i / 32 * 64 + lane_j() * 16 + i % 2 * 8 + i / 4 % 8; }

template <int D> __device__ void store_total(const AttnArgs &a, const Task &t, const Total &total, int pair, int pairs) {
  int group = a.heads / a.kv;
  for (int h = 0; h < 2; h++) {
    int own = lane_g() + 8 * h;
    if (own >= pairs) continue;
    float *to = a.dst.row(t.first_row + (pair + own) / group) + (t.head * group + (pair + own) % group) * a.d;
    for (int i = 0; i < D / 2; i++) {
      if (i % 4 / 2 == h && dimension(i) < a.d) to[dimension(i)] = total.o[i * WARP] / total.l[h];
    }
  }
}

template <int D> __device__ void store_part(const AttnArgs &a, const Task &t, const Softmax<D> &s) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int own = lane_g() + 8 * h;
    int64_t part = part_of(a, t.request, t.low / CHUNK, t.head * (a.heads / a.kv) + t.pair + own);
    float l = row_sum(s.l[h]);
    if (own >= t.pairs) continue;
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
      if (i % 4 / 2 == h && dimension(i) < a.d) a.parts[part * a.d + dimension(i)] = s.o[i / 4][i % 4];
    }
    if (lane_j() == 0) a.part_tops[part * 2] = s.m[h], a.part_tops[part * 2 + 1] = l;
  }
}

template <int DTYPE, int D> __device__ void run_task(Guard g, const AttnArgs &a, const Task &t, const Team &team) {
  constexpr int AHEAD = KvStage<DTYPE, D>::COUNT - 1;
  int offset = t.whole ? (int)threadIdx.x / WARP * PAIRS : 0, pair = t.pair + offset, pairs = (int)smaller(PAIRS, t.pairs - offset);
  int first = t.low / TILE, end = t.high / TILE + 1;
  wait_for(team);  // for those who are not done with the task before
#pragma unroll 1
  for (int i = 0; i < 2; i++) find_slots<DTYPE>(g, a, t, team, first / TILES + i);
  auto q = load_queries<DTYPE, D>(a, t, pair, pairs, team.queries);
  Sight sight = sight_of(a, t, pair, pairs);
  Total total = {};
  if (t.whole) total = no_total<D>(team.stages + KvStage<DTYPE, D>::RING);
  Softmax<D> s;
  reset(&s);
  wait_for(team);
#pragma unroll 1
  for (int tile = first - AHEAD; tile < end; tile++) {
    if (tile >= first) {
      wait_copies<AHEAD - 1>();
      wait_for(team);
    }
    if (tile > first && tile % TILES == 0) find_slots<DTYPE>(g, a, t, team, tile / TILES + 1);
    start_tile<DTYPE, D>(a, t, team, tile + AHEAD);
    if (tile < first) continue;
    if (pairs > 0) attend(&s, q, a, team, sight, tile);
    if (t.whole && ((tile + 1) % TILES == 0 || tile + 1 == end)) {
      merge_chunk(&total, s);
      reset(&s);
    }
  }
  if (t.whole) {
    store_total<D>(a, t, total, pair, pairs);
  } else {
    store_part(a, t, s);
  }
}

// A fixed number of blocks, so that the launch does not depend on lengths. Each takes its
// share of the tasks for blocks, then each warp its share of the others.
template <int DTYPE, int D> __global__ void __launch_bounds__(MOST_WARPS *WARP, 1) attention_kernel(Guard g, AttnArgs a) {
  if (stopped(g)) return;
  int warps = (int)blockDim.x / WARP, block_pairs = warps * PAIRS;
  TaskList list = list_tasks(g, a, shared_memory<int>(), block_pairs);
  int whole = list.whole[a.requests] * a.kv, split = list.split[a.requests] * a.kv;
  int i = (int)blockIdx.x, step = (int)gridDim.x;
  bool block = true;
#pragma unroll 1
  for (;; i += step) {
    if (block && i >= whole) {
      __syncthreads();
      i = (int)blockIdx.x * warps + (int)threadIdx.x / WARP;
      step = (int)gridDim.x * warps;
      block = false;
    }
    if (!block && i >= split) return;
    Task t = block ? whole_task(a, list.whole, i, block_pairs) : split_task(a, list.split, i);
    run_task<DTYPE, D>(g, a, t, team_of<DTYPE, D>(a, block));
  }
}

// Merges the chunks of requests with one row: a warp a head.
__global__ void attention_merge_kernel(Guard g, AttnArgs a) {
  if (stopped(g)) return;
  int r = (int)blockIdx.x, head = (int)(blockIdx.y * MERGE_WARPS + threadIdx.x / WARP), lane = (int)threadIdx.x % WARP;
  if (head >= a.heads || count_tasks(g, a, r, PAIRS).split == 0) return;
  float m = minus_infinity(), l = 0, o[MOST_SUMS] = {};
  int last = a.lens[r] - 1;
  for (int chunk = first_seen(a, last) / CHUNK; chunk <= last / CHUNK; chunk++) {
    int64_t part = part_of(a, r, chunk, head);
    Shares shares = merge(&m, &l, a.part_tops[part * 2], a.part_tops[part * 2 + 1]);
    for (int c = 0; c < MOST_SUMS; c++) {
      if (c * WARP + lane < a.d) o[c] = merge(o[c], a.parts[part * a.d + c * WARP + lane], shares);
    }
  }
  for (int c = 0; c < MOST_SUMS; c++) {
    if (c * WARP + lane < a.d) a.dst.row(a.cu[r])[head * a.d + c * WARP + lane] = o[c] / l;
  }
}

template <int DTYPE, int D> int launch_attention(Run &run, const AttnArgs &a) {
  int64_t most = most_shared(), group = a.heads / a.kv;
  int warps = MOST_WARPS;
  while (warps > 1 && (int64_t)shared_bytes<DTYPE, D>(a.requests, warps) > most) warps /= 2;
  size_t shared = shared_bytes<DTYPE, D>(a.requests, warps);
  if ((int64_t)shared > most) return MSGL_ERR_SHAPE;
  int64_t whole = ceil_div(a.rows * group, warps * PAIRS) + a.requests, split = a.requests * a.max_chunks * ceil_div(group, PAIRS);
  dim3 grid((unsigned)smaller((whole + ceil_div(split, warps)) * a.kv, multiprocessors() * (most / (int64_t)shared)));
  int code = launch(run, attention_kernel<DTYPE, D>, grid, warps * WARP, shared, run.guard, a);
  if (code != MSGL_OK) return code;
  dim3 rows((unsigned)a.requests, (unsigned)ceil_div(a.heads, MERGE_WARPS));
  return launch(run, attention_merge_kernel, rows, MERGE_WARPS * WARP, 0, run.guard, a);
}

template <int DTYPE> int launch_dtype(Run &run, const AttnArgs &a) {
  constexpr int ELEM = KvStage<DTYPE, 64>::ELEM;  // not each size of head has a kernel of its own
  if constexpr (ELEM > 1) {
    if (a.d <= 64) return launch_attention<DTYPE, 64>(run, a);
  }
  if constexpr (ELEM < 4) {
    if (a.d <= 128) return launch_attention<DTYPE, 128>(run, a);
  }
  return launch_attention<DTYPE, 256>(run, a);
}

int check_attention(const msgl_op &op) {
  int code = check_heads(op);
  if (code != MSGL_OK) return code;
  const msgl_tensor &dst = op.t[0], &q = op.t[1], &table = op.t[4];
  return first_error(columns(q, MSGL_F32, (int64_t)op.i[0] * op.i[2]), view(dst, MSGL_F32, q.rows, q.cols),
                     check_caches(op, op.t[2], op.t[3]), columns(table, MSGL_I32, table.cols),
                     view(op.t[5], MSGL_I32, 1, (int64_t)table.rows + 1), view(op.t[6], MSGL_I32, 1, table.rows));
}

bool aligned16(uint64_t address_or_size) { return address_or_size % 16 == 0; }

}  // namespace

int attention(Run &run, const msgl_op &op) {
  int code = check_attention(op);
  if (code != MSGL_OK || op.t[1].rows == 0) return code;
  if (run.args->attention) return attention_fi(run, op);
  const msgl_tensor &k = op.t[2], &v = op.t[3], &table = op.t[4];
  AttnArgs a = {};
  a.dst = floats(op.t[0]);
  a.q = floats(op.t[1]);
  a.k = (const char *)(uintptr_t)k.addr;
  a.v = (const char *)(uintptr_t)v.addr;
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
  a.parts = take<float>(run, (int64_t)a.requests * a.max_chunks * a.heads * a.d);
  a.part_tops = take<float>(run, (int64_t)a.requests * a.max_chunks * a.heads * 2);
  a.aligned = aligned16(k.addr) && aligned16(v.addr) && aligned16((uint64_t)a.row_bytes) && aligned16((uint64_t)(a.d * elem_size(k.dtype)));
  switch (k.dtype) {
    case MSGL_F32: return launch_dtype<MSGL_F32>(run, a);
    case MSGL_BF16: return launch_dtype<MSGL_BF16>(run, a);
    case MSGL_F16: return launch_dtype<MSGL_F16>(run, a);
    case MSGL_F8: return launch_dtype<MSGL_F8>(run, a);
    default: return launch_dtype<MSGL_I8>(run, a);
  }
}

}  // namespace msgl
