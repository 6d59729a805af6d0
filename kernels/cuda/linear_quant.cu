// linear_quant.cu: LINEAR for quantized weights, with integer dot products.
//
// The rules and the order of sums are those of kernels/cpu/quant_impl.h: x is rounded
// to 8 bits in groups of 32; a group with a value far out of its row has what
// the rounding left rounded once more. Steps of 64 columns: first the groups of the
// first rounding, then those of the second.
#include "linear.cuh"

namespace msgl {
namespace {

enum {
  QUANT_THREADS = 128,
  Q_OUTPUTS = 64,  // of a block: 4 of a thread
  Q_ROWS = 16,     // of a block: 2 of a thread
  Q_STEP = 64,     // columns
  Q_WORDS = Q_STEP / 4,
  Q_PITCH = Q_WORDS + 1,
  MAX_GROUPS = Q_STEP / 16,
  ROUND_THREADS = 256,
};

// How far out of its row a value stands, as a multiple of the row's root mean
// square, for its group to be rounded twice.
constexpr float OUTLIER = 12.0f;

// Rounds the lane's value of a group to a code; *left is what that left.
__device__ int8_t round_group(float x, float most, float *scale, float *left) {
  float inverse = most > 0 ? 127.0f / most : 0, code = rintf(x * inverse);
  *scale = most / 127.0f;
  *left = x - code * *scale;
  return (int8_t)code;
}

// A block a row, a warp a group.
__global__ void quantize_kernel(Guard g, Codes to, Floats x, int k) {
  if (stopped(g)) return;
  float *room = shared_memory<float>();
  const float *row = x.row(blockIdx.x);
  int lane = (int)threadIdx.x % WARP;
  float squares = 0;
  for (int c = (int)threadIdx.x; c < k; c += ROUND_THREADS) squares = fmaf(row[c], row[c], squares);
  float far = OUTLIER * OUTLIER * block_sum(squares, room) / (float)k;
  for (int group = (int)threadIdx.x / WARP; group < k / X_GROUP; group += ROUND_THREADS / WARP) {
    float v = row[group * X_GROUP + lane], most = warp_max(fabsf(v)), left, none, scale, rest = 0;
    int64_t at = (int64_t)blockIdx.x * k + group * X_GROUP + lane;
    to.codes[0][at] = round_group(v, most, &scale, &left);
    int8_t second = 0;
    if (most * most > far) second = round_group(left, warp_max(fabsf(left)), &rest, &none);
    to.codes[1][at] = second;
    if (lane == 0) {
      to.scales[0][(int64_t)blockIdx.x * (k / X_GROUP) + group] = scale;
      to.scales[1][(int64_t)blockIdx.x * (k / X_GROUP) + group] = rest;
    }
  }
}

// A step of a block in shared memory.
struct Stage {
  int32_t w[Q_OUTPUTS * Q_PITCH];       // codes, less 128 if they have 8 bits
  int32_t x[2][Q_ROWS * Q_PITCH];
  float scales[Q_OUTPUTS][MAX_GROUPS], minima[Q_OUTPUTS][MAX_GROUPS];
  float x_scales[2][Q_ROWS][Q_STEP / X_GROUP];
};

// Four codes of a row of a weight, from column c on, as signed bytes.
__device__ int32_t weight_codes(const char *row, int c, int bits) {
  if (bits == 8) return *(const int32_t *)(row + c) ^ (int32_t)0x80808080u;
  uint32_t half = *(const uint16_t *)(row + c / 2);
  return (int32_t)((half & 15) | (half & 0xf0) << 4 | (half & 0xf00) << 8 | (half & 0xf000) << 12);
}

template <int DTYPE> __device__ void stage_weights(Stage *s, const LinearArgs &a, const RowTile &t, int output, int k) {
  constexpr Quant q = quant_of(DTYPE);
  int64_t row_bytes = weight_row_bytes(a.k, DTYPE);
  for (int i = (int)threadIdx.x; i < Q_OUTPUTS * Q_WORDS; i += QUANT_THREADS) {
    int n = i / Q_WORDS, c = k + i % Q_WORDS * 4;
    s->w[n * Q_PITCH + i % Q_WORDS] = output + n < a.n && c < a.k ? weight_codes(t.w + (output + n) * row_bytes, c, q.bits) : 0;
  }
  const int groups = Q_STEP / q.group;
  for (int i = (int)threadIdx.x; i < Q_OUTPUTS * groups; i += QUANT_THREADS) {
    int n = i / groups, group = k / q.group + i % groups;
    bool there = output + n < a.n && group < a.k / q.group;
    const char *scales = t.w + (there ? output + n : 0) * row_bytes + a.k * q.bits / 8, *minima = scales + a.k / q.group * q.scale_bytes;
    float scale = 0;
    if (there) scale = q.scale_bytes == 2 ? from_f16(((const uint16_t *)scales)[group]) : ((const float *)scales)[group];
    s->scales[n][i % groups] = scale;
    s->minima[n][i % groups] = q.minimum && there ? ((const float *)minima)[group] : 0;
  }
}

__device__ inline void stage_codes(Stage *s, const LinearArgs &a, const RowTile &t, int k) {
  for (int i = (int)threadIdx.x; i < 2 * Q_ROWS * Q_WORDS; i += QUANT_THREADS) {
    int pass = i / (Q_ROWS * Q_WORDS), r = i / Q_WORDS % Q_ROWS, c = k + i % Q_WORDS * 4;
    bool there = r < t.rows && c < a.k;
    s->x[pass][r * Q_PITCH + i % Q_WORDS] = there ? *(const int32_t *)(a.codes.codes[pass] + source(a, t.first + r) * a.k + c) : 0;
  }
  for (int i = (int)threadIdx.x; i < 2 * Q_ROWS * 2; i += QUANT_THREADS) {
    int pass = i / (Q_ROWS * 2), r = i / 2 % Q_ROWS, group = k / X_GROUP + i % 2;
    bool there = r < t.rows && group < a.k / X_GROUP;
    s->x_scales[pass][r][i % 2] = there ? a.codes.scales[pass][source(a, t.first + r) * (a.k / X_GROUP) + group] : 0;
  }
}

// Adds group `group` of a step to an output's chain.
template <int DTYPE> __device__ float add_group(const Stage *s, int pass, int group, int n, int r, float acc) {
  constexpr Quant q = quant_of(DTYPE);
  const int32_t *w = s->w + n * Q_PITCH + group * q.group / 4, *x = s->x[pass] + r * Q_PITCH + group * q.group / 4;
  int sum = 0, ones = 0;
  for (int i = 0; i < q.group / 4; i++) {
    sum = __dp4a(w[i], x[i], sum);
    ones = __dp4a(0x01010101, x[i], ones);
  }
  sum += ((q.bits == 8 ? 128 : 0) - q.zero) * ones;
  float scale = s->x_scales[pass][r][group * q.group / X_GROUP];
  acc = fmaf((float)sum, s->scales[n][group] * scale, acc);
  return q.minimum ? fmaf(s->minima[n][group], (float)ones * scale, acc) : acc;
}

template <int DTYPE> __global__ void __launch_bounds__(QUANT_THREADS, 1) linear_quant_kernel(Guard g, LinearArgs a) {
  if (stopped(g)) return;
  Stage *s = shared_memory<Stage>();
  RowTile t = row_tile(a, (int)blockIdx.x, Q_ROWS);
  if (t.rows <= 0) return;
  int output = (int)blockIdx.y * Q_OUTPUTS, n = (int)threadIdx.x % 16 * 4, r = (int)threadIdx.x / 16 * 2;
  constexpr int groups = Q_STEP / quant_of(DTYPE).group;
  float acc[2][4] = {};
  for (int k = 0; k < a.k; k += Q_STEP) {
    __syncthreads();
    stage_weights<DTYPE>(s, a, t, output, k);
    stage_codes(s, a, t, k);
    __syncthreads();
#pragma unroll 1
    for (int at = 0; at < (r < t.rows ? 2 * groups : 0); at++) {
      int pass = at / groups, group = at % groups;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (pass == 1 && s->x_scales[1][r + i][group * quant_of(DTYPE).group / X_GROUP] == 0) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = add_group<DTYPE>(s, pass, group, n + j, r + i, acc[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int at = output + n + j;
      if (r + i < t.rows && at < a.n) a.dst.row(t.first + r + i)[at] = a.bias ? acc[i][j] + a.bias[at] : acc[i][j];
    }
  }
}

}  // namespace

int launch_quantize(Run &run, Codes *codes, Floats x, int rows, int k) {
  for (int pass = 0; pass < 2; pass++) {
    codes->codes[pass] = take<int8_t>(run, (int64_t)rows * k);
    codes->scales[pass] = take<float>(run, (int64_t)rows * (k / X_GROUP));
  }
  return launch(run, quantize_kernel, dim3((unsigned)rows), ROUND_THREADS, WARP * sizeof(float), run.guard, *codes, x, k);
}

int launch_linear_quant(Run &run, const LinearArgs &a) {
  dim3 grid(row_tiles(a, Q_ROWS), (unsigned)ceil_div(a.n, Q_OUTPUTS));
  auto start = [&](void (*kernel)(Guard, LinearArgs)) { return launch(run, kernel, grid, QUANT_THREADS, sizeof(Stage), run.guard, a); };
  switch (a.dtype) {
    case MSGL_Q8: return start(linear_quant_kernel<MSGL_Q8>);
    case MSGL_Q4: return start(linear_quant_kernel<MSGL_Q4>);
    case MSGL_Q4M: return start(linear_quant_kernel<MSGL_Q4M>);
    case MSGL_Q6: return start(linear_quant_kernel<MSGL_Q6>);
    case MSGL_Q8M: return start(linear_quant_kernel<MSGL_Q8M>);
    default: return MSGL_ERR_DTYPE;
  }
}

}  // namespace msgl
