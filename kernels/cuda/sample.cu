// sample.cu: draws a token per row of logits. A block a row.
//
// The rules are ops.Sampling's. Weights exp((x - max) / T) become integers of 40
// fractional bits, so that sums are exact and do not depend on the order in which threads
// add. The filters leave the tokens down to a cut in the order of descending logits
// and, among equals, ascending ids; the cut is found by radix selection on the bits
// of the logits, so nothing is sorted.
#include "check.h"
#include "device.cuh"

namespace msgl {
namespace {

enum { BUCKETS = 2048, MAX_THREADS = 1024, IDS_PER_THREAD = 16 };

typedef unsigned long long Whole;

constexpr float ONE = 1099511627776.0f;  // 2^40

struct SampleArgs {
  int32_t *next, *last;
  Floats logits;
  const char *args;
  int64_t args_bytes;  // from row to row
  int vocab, slots;
};

// What the filters have left: tokens from the largest down to the last one with the
// key, and only those that weigh at least so much.
struct Cut {
  uint32_t key;
  int last;
  float least;
};

// A row at work.
struct Row {
  const float *x;
  int n;
  float max, temperature;
  Whole *room, *buckets;  // shared: [WARP], [BUCKETS]
  Whole *found;           // shared: [2]
};

__device__ inline float clean(float x) { return x != x ? minus_infinity() : x; }

// Bits that order as the logits do.
__device__ uint32_t order_of(float x) {
  uint32_t u = __float_as_uint(x + 0.0f);  // -0 equals 0
  return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

__device__ float weight_of(const Row &r, float x) {
  if (x == r.max) return 1;  // inf - inf is no difference
  return r.max == -minus_infinity() ? 0 : exp_of((x - r.max) / r.temperature);
}

__device__ bool kept(const Row &r, const Cut &cut, int id, float x) {
  uint32_t key = order_of(x);
  if (key < cut.key || (key == cut.key && id > cut.last)) return false;
  return cut.least <= 0 || weight_of(r, x) >= cut.least;
}

// What a kept token counts: its weight, or one.
__device__ Whole measure(const Row &r, float x, bool by_weight) { return by_weight ? (Whole)(weight_of(r, x) * ONE) : 1; }

__device__ Whole total(const Row &r, const Cut &cut, bool by_weight) {
  Whole sum = 0;
  for (int id = (int)threadIdx.x; id < r.n; id += (int)blockDim.x) {
    float x = clean(r.x[id]);
    if (kept(r, cut, id, x)) sum += measure(r, x, by_weight);
  }
  return block_sum(sum, r.room);
}

// The bucket, from the largest down, in which the sum reaches target; *above gets the
// sum of those before it. target is at least 1 and at most the sum of all.
__device__ int find_bucket(const Row &r, Whole target, Whole *above) {
  int each = BUCKETS / (int)blockDim.x, top = BUCKETS - 1 - (int)threadIdx.x * each;
  Whole sum = 0, all;
  for (int i = 0; i < each; i++) sum += r.buckets[top - i];
  Whole before = block_before(sum, r.room, &all);
  for (int i = 0; i < each; i++) {
    Whole after = before + r.buckets[top - i];
    if (before < target && after >= target) {
      r.found[0] = (Whole)(top - i);
      r.found[1] = before;
    }
    before = after;
  }
  __syncthreads();
  *above = r.found[1];
  int bucket = (int)r.found[0];
  __syncthreads();
  return bucket;
}

// The ids that this thread looks at where order counts: [*from, returned).
__device__ int segment(const Row &r, int *from) {
  int each = (int)ceil_div(r.n, blockDim.x);
  *from = (int)smaller(r.n, (int64_t)threadIdx.x * each);
  return (int)smaller(r.n, (int64_t)(threadIdx.x + 1) * each);
}

// The id of the count-th kept token, from 1, with the key.
__device__ int find_tie(const Row &r, const Cut &cut, uint32_t key, Whole count) {
  int from, to = segment(r, &from);
  Whole mine = 0, all;
  for (int id = from; id < to; id++) {
    float x = clean(r.x[id]);
    mine += order_of(x) == key && kept(r, cut, id, x);
  }
  Whole before = block_before(mine, r.room, &all);
  for (int id = from; id < to && before < count && before + mine >= count; id++) {
    float x = clean(r.x[id]);
    if (order_of(x) != key || !kept(r, cut, id, x)) continue;
    mine--;
    if (++before == count) r.found[0] = (Whole)id;
  }
  __syncthreads();
  int id = (int)r.found[0];
  __syncthreads();
  return id;
}

// Cuts to the smallest set of the largest logits whose measure reaches target.
__device__ Cut keep_largest(const Row &r, Cut cut, Whole target, bool by_weight) {
  uint32_t key = 0, decided = 0;
  Whole above = 0;
  for (int level = 0; level < 3; level++) {
    int shift = level == 0 ? 21 : level == 1 ? 10 : 0;
    uint32_t mask = level == 2 ? 1023 : 2047;
    for (int i = (int)threadIdx.x; i < BUCKETS; i += (int)blockDim.x) r.buckets[i] = 0;
    __syncthreads();
    for (int id = (int)threadIdx.x; id < r.n; id += (int)blockDim.x) {
      float x = clean(r.x[id]);
      uint32_t bits = order_of(x);
      if ((bits & decided) == key && kept(r, cut, id, x)) atomicAdd(&r.buckets[bits >> shift & mask], measure(r, x, by_weight));
    }
    __syncthreads();
    Whole before;
    key |= (uint32_t)find_bucket(r, target - above, &before) << shift;
    decided |= mask << shift;
    above += before;
  }
  // The sum of the ties is in the bucket of the last level; so is the measure of one.
  uint32_t sign = key >> 31 ? 0x80000000u : 0xffffffffu;
  Whole one = measure(r, __uint_as_float(key ^ sign), by_weight);
  cut.last = find_tie(r, cut, key, (target - above + one - 1) / one);
  cut.key = key;
  return cut;
}

// First word of Philox4x32-10 (Salmon et al., 2011) at counter (c0, 0, 0, 0).
__device__ uint32_t philox(uint32_t k0, uint32_t k1, uint32_t c0) {
  uint32_t c1 = 0, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; round++) {
    uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

// Inverse transform in order of id, at word / 2^32.
__device__ int draw(const Row &r, const Cut &cut, uint32_t word) {
  int from, to = segment(r, &from);
  Whole mine = 0, all;
  for (int id = from; id < to; id++) {
    float x = clean(r.x[id]);
    if (kept(r, cut, id, x)) mine += measure(r, x, true);
  }
  Whole before = block_before(mine, r.room, &all);
  Whole target = (all >> 32) * word + ((all & 0xffffffffu) * word >> 32);
  if (before <= target && target < before + mine) {
    int id = from;
    for (;; id++) {
      float x = clean(r.x[id]);
      if (kept(r, cut, id, x)) before += measure(r, x, true);
      if (before > target) break;
    }
    r.found[0] = (Whole)id;
  }
  __syncthreads();
  return (int)r.found[0];
}

__device__ int greedy(const Row &r) {
  int first = r.n;
  for (int id = (int)threadIdx.x; id < r.n && first == r.n; id += (int)blockDim.x) {
    if (clean(r.x[id]) == r.max) first = id;
  }
  if (threadIdx.x == 0) r.found[0] = (Whole)r.n;
  __syncthreads();
  atomicMin(&r.found[0], (Whole)first);
  __syncthreads();
  return (int)r.found[0];
}

__device__ float largest(const float *x, int n, float *room) {
  float most = minus_infinity();
  for (int id = (int)threadIdx.x; id < n; id += (int)blockDim.x) most = clean(x[id]) > most ? clean(x[id]) : most;
  return block_max(most, room);
}

__device__ int sample_row(Row r, const msgl_sampling &a) {
  r.max = largest(r.x, r.n, (float *)r.room);
  __syncthreads();
  if (!(a.temperature > 0)) return greedy(r);
  r.temperature = a.temperature;
  Cut cut = {0, r.n, 0};
  if (a.top_k > 0 && a.top_k < r.n) cut = keep_largest(r, cut, (Whole)a.top_k, false);
  if (a.top_p < 1) {
    Whole all = total(r, cut, true), target = (Whole)ceil((double)a.top_p * (double)all);
    cut = keep_largest(r, cut, target < 1 ? 1 : target > all ? all : target, true);
  }
  if (a.min_p > 0) cut.least = a.min_p < 1 ? a.min_p : 1;
  return draw(r, cut, philox(a.seed_lo, a.seed_hi, a.position));
}

__global__ void sample_kernel(Guard g, SampleArgs a) {
  if (stopped(g)) return;
  const msgl_sampling *args = (const msgl_sampling *)(a.args + blockIdx.x * a.args_bytes);
  if (args->slot >= a.slots) {
    if (threadIdx.x == 0) fail(g, MSGL_ERR_INDEX);
    return;
  }
  Whole *room = shared_memory<Whole>();
  Row r = {a.logits.row(blockIdx.x), a.vocab, 0, 1, room, room + WARP + 2, room + WARP};
  int id = sample_row(r, *args);
  if (threadIdx.x > 0) return;
  a.next[blockIdx.x] = id;
  if (args->slot >= 0) a.last[args->slot] = id;
}

struct ScoreArgs {
  Floats logits;
  int32_t *dst;
  const char *args;
  int64_t dst_stride, args_bytes;
  Indices next;  // or NULL
  int rows, vocab, dst_cols;
};

// The bits of the log-probability of a logit.
__device__ int32_t logprob_bits(const Row &r, float x, double log_of_sum) {
  double scaled = x == r.max ? 0.0 : ((double)x - (double)r.max) / (double)r.temperature;
  return __float_as_int((float)(scaled - log_of_sum));
}

// A logit and its id in one number: the larger logit, then the smaller id, is larger.
__device__ Whole rank_of(float x, int id) { return (Whole)order_of(x) << 32 | (0xffffffffu - (uint32_t)id); }

// The largest rank below `bound` of all ids.
__device__ Whole next_rank(const Row &r, Whole bound) {
  Whole best = 0;
  for (int id = (int)threadIdx.x; id < r.n; id += (int)blockDim.x) {
    Whole rank = rank_of(clean(r.x[id]), id);
    if (rank < bound && rank > best) best = rank;
  }
  for (int mask = WARP / 2; mask > 0; mask /= 2) {
    Whole other = __shfl_xor_sync(0xffffffffu, best, mask);
    best = other > best ? other : best;
  }
  __syncthreads();
  if (threadIdx.x % WARP == 0) r.room[threadIdx.x / WARP] = best;
  __syncthreads();
  for (int i = 0; i < (int)blockDim.x / WARP; i++) best = r.room[i] > best ? r.room[i] : best;
  return best;
}

__device__ void score_row(Row r, const msgl_scoring &s, int token, int32_t *dst) {
  r.max = largest(r.x, r.n, (float *)r.room);
  __syncthreads();
  r.temperature = s.temperature;
  double log_of_sum = log((double)total(r, Cut{0, r.n, 0}, true) / (double)ONE);
  if (threadIdx.x == 0) dst[0] = logprob_bits(r, clean(r.x[token]), log_of_sum);
  Whole rank = ~(Whole)0;
  for (int i = 0; i < s.top; i++) {
    rank = next_rank(r, rank);
    int id = (int)(0xffffffffu - (uint32_t)rank);
    if (threadIdx.x == 0) {
      dst[1 + 2 * i] = id;
      dst[2 + 2 * i] = logprob_bits(r, clean(r.x[id]), log_of_sum);
    }
  }
}

__global__ void logprobs_kernel(Guard g, ScoreArgs a) {
  if (stopped(g)) return;
  const msgl_scoring *s = (const msgl_scoring *)(a.args + blockIdx.x * a.args_bytes);
  int code = MSGL_OK, token = s->token;
  if (s->top < 0 || s->top > a.vocab || 2 * (int64_t)s->top >= a.dst_cols || !(s->temperature > 0)) code = MSGL_ERR_SHAPE;
  if (s->row < 0 || s->row >= a.rows || (token < 0 && !a.next)) code = MSGL_ERR_INDEX;
  if (code == MSGL_OK && token < 0) token = a.next[s->row];
  if (code == MSGL_OK && (token < 0 || token >= a.vocab)) code = MSGL_ERR_INDEX;
  if (code != MSGL_OK) {
    if (threadIdx.x == 0) fail(g, code);
    return;
  }
  Whole *room = shared_memory<Whole>();
  Row r = {a.logits.row(s->row), a.vocab, 0, 1, room, nullptr, room + WARP};
  score_row(r, *s, token, a.dst + blockIdx.x * a.dst_stride);
}

// A power of two, so that it divides the buckets.
int threads_for(int vocab) {
  int threads = WARP;
  while (threads < MAX_THREADS && threads * IDS_PER_THREAD < vocab) threads *= 2;
  return threads;
}

}  // namespace

int sample(Run &run, const msgl_op &op) {
  const msgl_tensor &next = op.t[0], &logits = op.t[1], &args = op.t[2], &last = op.t[3];
  int code = first_error(logits_of(logits, op.i[0]), view(next, MSGL_I32, 1, logits.rows),
                         view(args, MSGL_I32, logits.rows, sizeof(msgl_sampling) / 4), optional(last, MSGL_I32, 1, last.cols));
  if (code != MSGL_OK) return code;
  SampleArgs a = {ints(next), ints(last), floats(logits), (const char *)ints(args), (int64_t)args.stride * 4, op.i[0], last.addr ? last.cols : 0};
  return launch(run, sample_kernel, dim3((unsigned)logits.rows), threads_for(a.vocab), (BUCKETS + WARP + 2) * sizeof(Whole), run.guard, a);
}

int logprobs(Run &run, const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &logits = op.t[1], &rows = op.t[2], &next = op.t[3];
  int code = first_error(logits_of(logits, op.i[0]), view(rows, MSGL_I32, dst.rows, sizeof(msgl_scoring) / 4), columns(dst, MSGL_I32, dst.cols),
                         optional(next, MSGL_I32, 1, logits.rows), dst.cols % 2 == 0 ? MSGL_ERR_SHAPE : MSGL_OK);
  if (code != MSGL_OK) return code;
  ScoreArgs a = {floats(logits), ints(dst),   (const char *)ints(rows), dst.stride, (int64_t)rows.stride * 4,
                 ints(next),     logits.rows, op.i[0],                  dst.cols};
  return launch(run, logprobs_kernel, dim3((unsigned)dst.rows), threads_for(a.vocab), (WARP + 2) * sizeof(Whole), run.guard, a);
}

}  // namespace msgl
