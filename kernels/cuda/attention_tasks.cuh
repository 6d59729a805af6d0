// attention_tasks.cuh: how ATTENTION is cut into tasks.
//
// A pair is a row of a request and a query head; pairs under one key/value head read the
// same keys and values. Positions go in chunks of CHUNK, at fixed multiples from 0. A
// request with several rows (a prompt) is cut into tasks of many pairs, which a block takes
// with all their positions. A request with one row (decoding) is cut into tasks of a
// chunk, which a warp takes; a second kernel merges the chunks.
#ifndef MSGL_ATTENTION_TASKS_CUH
#define MSGL_ATTENTION_TASKS_CUH

#include "check.h"
#include "device.cuh"

namespace msgl {

enum {
  PAIRS = 16,   // of a warp
  CHUNK = 256,  // positions
};

struct AttnArgs {
  Floats dst, q;
  const char *k, *v;
  Indices table, cu, lens;
  int64_t table_stride, row_bytes;
  int table_cols, requests, rows, cache_pages;
  int heads, kv, d, page, window;
  float scale;
  int max_chunks;    // of a request
  float *parts;      // [requests, max_chunks, heads, D]: sums of weights times values, of requests with one row
  float *part_tops;  // [requests, max_chunks, heads, 2]: the largest score, the sum of the weights
  bool aligned;      // rows and heads of the caches begin at multiples of 16 bytes
};

// Some pairs of a request under one key/value head, against positions.
struct Task {
  int request, head;   // head: of keys and values
  int first_row;       // of the request, in the batch
  int first_position;  // of the request's first row
  int pair, pairs;     // pair p: row p / group of the request, query head p % group
  int low, high;       // the first and the last position
  bool whole;          // all positions that the pairs see: no merging afterwards
};

// The first position that a row at `position` sees.
__device__ inline int first_seen(const AttnArgs &a, int position) {
  return a.window > 0 ? (int)larger(0, (int64_t)position + 1 - a.window) : 0;
}

// How many tasks a request has under each key/value head.
struct TaskCount {
  int whole, split;
};

// What does not fit is a fault, and has none.
__device__ inline TaskCount count_tasks(Guard g, const AttnArgs &a, int r, int block_pairs) {
  int rows = a.cu[r + 1] - a.cu[r], length = a.lens[r], group = a.heads / a.kv;
  bool ends = (r > 0 || a.cu[0] == 0) && (r + 1 < a.requests || a.cu[a.requests] == a.rows);
  if (!ends || rows < 0 || length < rows || a.cu[r] < 0 || a.cu[r + 1] > a.rows || ceil_div(length, a.page) > a.table_cols) {
    fail(g, MSGL_ERR_INDEX);
    return {0, 0};
  }
  if (rows != 1) return {(int)ceil_div((int64_t)rows * group, block_pairs), 0};
  int chunks = (length - 1) / CHUNK - first_seen(a, length - 1) / CHUNK + 1;
  return {0, (int)ceil_div(group, PAIRS) * chunks};
}

// The first task of each request, [requests + 1] of either kind.
struct TaskList {
  int *whole, *split;
};

// Words of a TaskList and of the room to make it.
__host__ __device__ inline int64_t list_words(int requests) { return (2 * ((int64_t)requests + 1) + WARP + 3) / 4 * 4; }

// All of the block's threads fill the list.
__device__ inline TaskList list_tasks(Guard g, const AttnArgs &a, int *words, int block_pairs) {
  TaskList list = {words + WARP, words + WARP + a.requests + 1};
  int whole = 0, split = 0, sum;
  for (int first = 0; first < a.requests; first += (int)blockDim.x) {
    int r = first + (int)threadIdx.x;
    TaskCount count = r < a.requests ? count_tasks(g, a, r, block_pairs) : TaskCount{0, 0};
    int at = whole + block_before(count.whole, words, &sum);
    whole += sum;
    if (r < a.requests) list.whole[r] = at;
    at = split + block_before(count.split, words, &sum);
    split += sum;
    if (r < a.requests) list.split[r] = at;
  }
  if (threadIdx.x == 0) {
    list.whole[a.requests] = whole;
    list.split[a.requests] = split;
  }
  __syncthreads();
  return list;
}

// The request r of starts[r] <= unit < starts[r + 1].
__device__ inline int request_of(const int *starts, int requests, int unit) {
  int low = 0, high = requests;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (starts[middle] <= unit) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Pairs [pair, pair + most) of a request, at most as many as there are.
__device__ inline Task task_of(const AttnArgs &a, int request, int head, int pair, int most) {
  int rows = a.cu[request + 1] - a.cu[request], group = a.heads / a.kv, first = a.lens[request] - rows;
  int pairs = (int)smaller(most, (int64_t)rows * group - pair);
  int low = first_seen(a, first + pair / group), high = first + (pair + pairs - 1) / group;
  return {request, head, a.cu[request], first, pair, pairs, low, high, true};
}

// Task number `index` of those that blocks take; a request's longest come first.
__device__ inline Task whole_task(const AttnArgs &a, const int *starts, int index, int block_pairs) {
  int unit = index / a.kv, r = request_of(starts, a.requests, unit);
  return task_of(a, r, index % a.kv, (starts[r + 1] - 1 - unit) * block_pairs, block_pairs);
}

// Task number `index` of those that warps take.
__device__ inline Task split_task(const AttnArgs &a, const int *starts, int index) {
  int unit = index / a.kv, r = request_of(starts, a.requests, unit), parts = (int)ceil_div(a.heads / a.kv, PAIRS);
  unit -= starts[r];
  Task t = task_of(a, r, index % a.kv, unit % parts * PAIRS, PAIRS);
  int start = (t.low / CHUNK + unit / parts) * CHUNK;
  t.low = (int)larger(t.low, start);
  t.high = (int)smaller(t.high, start + CHUNK - 1);
  t.whole = false;
  return t;
}

__device__ inline int64_t part_of(const AttnArgs &a, int request, int chunk, int head) {
  return ((int64_t)request * a.max_chunks + chunk) * a.heads + head;
}

}  // namespace msgl

#endif
