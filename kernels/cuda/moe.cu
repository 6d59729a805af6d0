// moe.cu: a mixture of experts: routing, then LINEAR over each expert's rows, twice.
//
// A slot is one (row, expert) pair; slots are ordered by expert, then by row. How many
// rows an expert has is known to the device alone.
#include "linear.cuh"

namespace msgl {
namespace {

enum { MOE_THREADS = 256, SLOTS = 1 << 14 };  // SLOTS: of one pass, so that scratch is bounded

// What the kernels leave for each other, for the rows of one pass.
struct Routing {
  int32_t *ids;      // [rows, K]: experts of a row, ascending
  float *weights;    // [rows, K]
  int32_t *slots;    // [rows, K]: the slots of those pairs
  int32_t *counts;   // [E]: slots of each expert
  int32_t *starts;   // [E + 1]
  int32_t *sources;  // [slots]: the row of x
  int rows, experts, k, first;  // first: row of the pass
};

// A warp a row: the k largest logits, smaller ids first among equals. NaNs lose.
__global__ void route_kernel(Guard g, Routing r, Floats logits, int normalise) {
  if (stopped(g)) return;
  int lane = (int)threadIdx.x % WARP, row = (int)(blockIdx.x * (MOE_THREADS / WARP) + threadIdx.x / WARP);
  if (row >= r.rows) return;
  const float *x = logits.row(r.first + row);
  int32_t *ids = r.ids + (int64_t)row * r.k;
  float *weights = r.weights + (int64_t)row * r.k;
  float most = minus_infinity(), all = 0, chosen = 0;
  for (int e = lane; e < r.experts; e += WARP) most = x[e] > most ? x[e] : most;
  most = warp_max(most);
  for (int e = lane; e < r.experts; e += WARP) all += exp_of(x[e] - most);
  all = warp_sum(all);
  // An expert is chosen if fewer than k come before it; its place is how many of those have smaller ids.
  int have = 0;
  for (int first = 0; first < r.experts; first += WARP) {
    int e = first + lane, before = 0;
    bool there = e < r.experts;
    float own = there ? x[e] : 0;
    for (int i = 0; i < r.experts && there; i++) {
      bool larger = own != own ? x[i] == x[i] : x[i] > own;
      bool equal = x[i] == own || (x[i] != x[i] && own != own);
      before += larger || (equal && i < e);
    }
    unsigned bits = __ballot_sync(0xffffffffu, there && before < r.k);
    int at = have;
    for (int i = 0; i < lane; i++) at += bits >> i & 1;
    if (bits >> lane & 1) {
      ids[at] = e;
      weights[at] = exp_of(own - most) / all;
    }
    for (int i = 0; i < WARP; i++) have += bits >> i & 1;
  }
  __syncwarp();
  for (int i = 0; i < r.k; i++) chosen += weights[i];
  __syncwarp();
  for (int i = lane; i < r.k && normalise; i += WARP) weights[i] /= chosen;
}

// A block an expert: how many slots it has.
__global__ void count_kernel(Guard g, Routing r) {
  if (stopped(g)) return;
  int mine = 0;
  for (int i = (int)threadIdx.x; i < r.rows * r.k; i += MOE_THREADS) mine += r.ids[i] == (int)blockIdx.x;
  int all = block_sum(mine, shared_memory<int>());
  if (threadIdx.x == 0) r.counts[blockIdx.x] = all;
}

// A block an expert: gives its pairs their slots, in order of row.
__global__ void group_kernel(Guard g, Routing r) {
  if (stopped(g)) return;
  int *room = shared_memory<int>(), e = (int)blockIdx.x, mine = 0;
  for (int i = (int)threadIdx.x; i < e; i += MOE_THREADS) mine += r.counts[i];
  int at = block_sum(mine, room);
  if (threadIdx.x == 0) {
    r.starts[e] = at;
    if (e == r.experts - 1) r.starts[r.experts] = at + r.counts[e];
  }
  for (int first = 0; first < r.rows * r.k; first += MOE_THREADS) {
    int i = first + (int)threadIdx.x, total;
    bool own = i < r.rows * r.k && r.ids[i] == e;
    int slot = at + block_before((int)own, room, &total);
    if (own) {
      r.slots[i] = slot;
      r.sources[slot] = r.first + i / r.k;
    }
    at += total;
  }
}

// A block a slot: silu(gate) * up.
__global__ void gate_kernel(Guard g, Floats dst, Floats x, int cols) {
  if (stopped(g)) return;
  const float *gate = x.row(blockIdx.x);
  for (int c = (int)threadIdx.x; c < cols; c += MOE_THREADS) dst.row(blockIdx.x)[c] = silu(gate[c]) * gate[cols + c];
}

// A block a row: adds up its experts' outputs, in ascending order of expert.
__global__ void combine_kernel(Guard g, Routing r, Floats dst, Floats outputs, int cols) {
  if (stopped(g)) return;
  int64_t row = blockIdx.x;
  for (int c = (int)threadIdx.x; c < cols; c += MOE_THREADS) {
    float sum = 0;
    for (int i = 0; i < r.k; i++) sum = fmaf(outputs.row(r.slots[row * r.k + i])[c], r.weights[row * r.k + i], sum);
    dst.row(r.first + row)[c] = sum;
  }
}

// LINEAR over the slots with an expert's weight each.
LinearArgs grouped(const Routing &r, const msgl_tensor &w, int outputs) {
  LinearArgs a = {};
  a.w = (const char *)(uintptr_t)w.addr;
  a.n = outputs;
  a.k = w.cols;
  a.dtype = w.dtype;
  a.rows = r.rows * r.k;
  a.starts = r.starts;
  a.groups = r.experts;
  a.group_bytes = ceil_div(outputs, PANEL) * PANEL * weight_row_bytes(w.cols, w.dtype);
  return a;
}

int check_moe(const msgl_op &op) {
  const msgl_tensor &dst = op.t[0], &x = op.t[1], &logits = op.t[2], &gate_up = op.t[3], &down = op.t[4];
  int64_t e = logits.cols, k = op.i[0];
  int code = first_error(packed(gate_up, x.cols), packed(down, down.cols), columns(x, MSGL_F32, gate_up.cols),
                         view(dst, MSGL_F32, x.rows, x.cols), view(logits, MSGL_F32, x.rows, e));
  if (code != MSGL_OK) return code;
  if (e < 1 || k < 1 || k > e) return MSGL_ERR_SHAPE;
  bool fits = gate_up.rows == e * ceil_div(2 * (int64_t)down.cols, PANEL) * PANEL && down.rows == e * ceil_div(x.cols, PANEL) * PANEL;
  return fits ? MSGL_OK : MSGL_ERR_SHAPE;
}

int route(Run &run, const msgl_op &op, const Routing &r) {
  dim3 rows((unsigned)ceil_div(r.rows, MOE_THREADS / WARP)), experts((unsigned)r.experts);
  int code = launch(run, route_kernel, rows, MOE_THREADS, 0, run.guard, r, floats(op.t[2]), (int)op.i[1]);
  if (code == MSGL_OK) code = launch(run, count_kernel, experts, MOE_THREADS, WARP * sizeof(int), run.guard, r);
  if (code == MSGL_OK) code = launch(run, group_kernel, experts, MOE_THREADS, WARP * sizeof(int), run.guard, r);
  return code;
}

// The rows of one pass.
int moe_pass(Run &run, const msgl_op &op, int first, int rows) {
  const msgl_tensor &x = op.t[1], &gate_up = op.t[3], &down = op.t[4];
  int k = op.i[0], e = op.t[2].cols, slots = rows * k, f = down.cols, h = x.cols;
  Routing r = {take<int32_t>(run, slots), take<float>(run, slots),   take<int32_t>(run, slots), take<int32_t>(run, e),
               take<int32_t>(run, e + 1), take<int32_t>(run, slots), rows, e, k, first};
  Floats gates = {take<float>(run, (int64_t)slots * 2 * f), 2 * f}, acts = {take<float>(run, (int64_t)slots * f), f};
  Floats outputs = {take<float>(run, (int64_t)slots * h), h};
  LinearArgs up = grouped(r, gate_up, 2 * f), back = grouped(r, down, h);
  up.dst = gates;
  up.x = floats(x);
  up.sources = r.sources;
  back.dst = outputs;
  back.x = acts;
  int code = route(run, op, r);
  if (code == MSGL_OK) code = launch_rounding(run, &up, x.rows);
  if (code == MSGL_OK) code = launch_linear(run, up);
  if (code == MSGL_OK) code = launch(run, gate_kernel, dim3((unsigned)slots), MOE_THREADS, 0, run.guard, acts, gates, f);
  if (code == MSGL_OK) code = launch_rounding(run, &back, slots);
  if (code == MSGL_OK) code = launch_linear(run, back);
  if (code != MSGL_OK) return code;
  return launch(run, combine_kernel, dim3((unsigned)rows), MOE_THREADS, 0, run.guard, r, floats(op.t[0]), outputs, h);
}

}  // namespace

int moe(Run &run, const msgl_op &op) {
  int code = check_moe(op), rows = op.t[1].rows, most = (int)larger(1, SLOTS / larger(1, op.i[0]));
  size_t taken = run.taken, needed = taken;
  for (int first = 0; first < rows && code == MSGL_OK; first += most) {
    run.taken = taken;  // the passes follow each other on the stream
    code = moe_pass(run, op, first, (int)smaller(most, rows - first));
    needed = run.taken > needed ? run.taken : needed;
  }
  run.taken = needed;
  return code;
}

}  // namespace msgl
