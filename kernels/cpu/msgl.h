// msgl.h: the boundary of the CPU kernels.
//
// Pointers and sizes only: nothing here knows of requests, models or files. A
// forward pass is an array of msgl_op that msgl_submit runs on a pool of
// threads. Every function returns MSGL_OK or an error code; none prints or exits.
//
// Batch invariance: the result of a row never depends on the other rows of the
// call, nor on the number of threads. Work is split over output rows and
// columns, never over a reduction; a reduction has one order.
#ifndef MSGL_H
#define MSGL_H

#include <stddef.h>
#include <stdint.h>

enum msgl_code {
  MSGL_OK = 0,
  MSGL_ERR_MEMORY = 1,  // an allocation failed
  MSGL_ERR_THREAD = 2,  // a thread could not be started
  MSGL_ERR_KIND = 3,    // an operation or an activation of unknown kind
  MSGL_ERR_DTYPE = 4,   // an operand's element type is not supported by the operation
  MSGL_ERR_SHAPE = 5,   // an operand's shape is not supported by the operation
  MSGL_ERR_ISA = 6,     // MINISGL_CPU_ISA names an instruction set that this machine lacks, or an unknown one
  MSGL_ERR_INDEX = 7,   // an index operand (ids, slots, positions, pages, rows) names something out of range
  MSGL_ERR_DEVICE = 8,  // the device failed; only devices other than the CPU do
};

enum msgl_activation { MSGL_SILU = 0, MSGL_GELU_TANH = 1 };

// The Q types are for weights alone: codes in groups of columns, a scale for each
// group of a row. See msgl_pack_quant.
enum msgl_dtype {
  MSGL_F32 = 0,
  MSGL_BF16 = 1,
  MSGL_I32 = 2,
  MSGL_Q8 = 3,   // (code - 128) * scale: 8 bits, groups of 32, scales f16
  MSGL_Q4 = 4,   // (code - 8) * scale: 4 bits, groups of 32, scales f16
  MSGL_Q4M = 5,  // code * scale + minimum: 4 bits, groups of 32, f32
  MSGL_Q6 = 6,   // (code - 128) * scale: 8 bits, groups of 16, scales f32
  MSGL_Q8M = 7,  // code * scale + minimum: 8 bits, groups of 16, f32
  MSGL_F16 = 8,
  MSGL_I8 = 9,   // caches only: a row is KV heads of D signed codes, then a scale f32 for each head
};

enum msgl_kind {
  MSGL_EMBED = 1,
  MSGL_RMS_NORM = 2,
  MSGL_LINEAR = 3,
  MSGL_ROPE_STORE = 4,
  MSGL_ATTENTION = 5,
  MSGL_ACT_MUL = 6,
  MSGL_GATHER_ROWS = 7,
  MSGL_SAMPLE = 8,
  MSGL_MOE = 9,
  // 10 is the engine's
  MSGL_ADJUST = 11,
  MSGL_LOGPROBS = 12,
  MSGL_MASK = 13,
  MSGL_PROBE = 100,  // for msgl_probe alone
};

// A view of memory: [rows, cols], rows `stride` elements apart. addr 0: absent.
typedef struct {
  uint64_t addr;
  int32_t rows, cols, stride, dtype;
} msgl_tensor;

// One operation. What t, f and i hold for each kind:
//   EMBED       t: dst f32 [T, H], table packed [V, H], ids i32 [1, T], last i32 [1, S]
//               an id < 0 stands for last[-id - 1]   f: scale of the rows (0: 1)
//   RMS_NORM    t: dst f32 [M, H], x f32 [M, H], w f32 [1, H], residual f32 [M, H] or absent   f: eps
//               residual += x first, then the residual is normalised
//   LINEAR      t: dst f32 [M, N], x f32 [M, K], w packed [N, K], bias f32 [1, N] or absent
//               if w is bf16, x is rounded to bf16 first, and of a pair of columns the second is added before the first;
//               amx and neon_i8mm, which multiply bf16 by themselves, have orders of their own
//               if w is quantized, x is rounded to 8 bits first: each row in groups of 32, scale max|x| / 127; in a
//               group with a value of more than 12 times the row's root mean square, what that left is rounded again
//   ROPE_STORE  t: qkv f32 [M, (Q+2KV)D], positions i32 [1, M], slots i32 [1, M], cos|sin f32 [P, D],
//                  k cache [S, KV*D], v cache [S, KV*D], q norm f32 [1, D] or absent, k norm likewise
//               caches of i8 have KV*(D+4) columns; a head's scale is its largest magnitude / 127
//               f: eps   i: Q, KV, D, page size
//   ATTENTION   t: dst f32 [M, Q*D], q f32 [M, Q*D], k cache, v cache, page table i32 [R, P],
//                  cumulative query lengths i32 [1, R+1], kv lengths i32 [1, R]
//               f: scale   i: Q, KV, D, page size, window (0: none)
//               dst may be q
//   ACT_MUL     t: dst f32 [M, F], gate|up f32 [M, 2F]   i: msgl_activation
//   GATHER_ROWS t: dst f32 [R, H], x f32 [M, H], rows i32 [1, R]
//   SAMPLE      t: next i32 [1, R], logits f32 [R, V], msgl_sampling as i32 [R, 8], last i32 [1, S]
//               i: vocab (ids from it on are never drawn)
//               a submission's last operation may leave the logits unwritten that the LINEAR before it gives
//   MOE         t: dst f32 [M, H], x f32 [M, H], router logits f32 [M, E], gate|up packed [E * ceil16(2F), H],
//                  down packed [E * ceil16(H), F]: the experts' weights, each padded to whole panels
//               i: experts per row, whether their weights are scaled to a sum of one
//               dst may be x
//   ADJUST      t: logits f32 [R, V], msgl_adjustment as i32 [A, 8], data i32 [1, D], last i32 [1, S]   i: vocab
//   MASK        t: logits f32 [R, V], rows i32 [1, A], bits i32 [A, ceil(vocab / 32)]   i: vocab
//               logits of ids whose bit is 0 become -inf; id has bit id % 32 of word id / 32
//   LOGPROBS    t: dst i32 [L, 1+2K], logits f32 [R, V], msgl_scoring as i32 [L, 4], next i32 [1, R] or absent
//               i: vocab
// Activations and every tensor but weights and caches are row-major.
typedef struct {
  int32_t kind, reserved;
  msgl_tensor t[8];
  float f[4];
  int32_t i[8];
} msgl_op;

// One row of SAMPLE's arguments; see ops.Sampling in Go for the rules.
typedef struct {
  float temperature, top_p, min_p;
  int32_t top_k;
  uint32_t seed_lo, seed_hi, position;
  int32_t slot;
} msgl_sampling;

// One row of ADJUST's arguments; see ops.Adjustment in Go for the rules.
typedef struct {
  int32_t row;
  float presence, frequency, repetition;
  int32_t first, outputs, biases, reserved;
} msgl_adjustment;

// One row of LOGPROBS's arguments; see ops.Scoring in Go for the rules.
typedef struct {
  int32_t row, token, top;
  float temperature;
} msgl_scoring;

typedef struct msgl_pool msgl_pool;

// Starts a pool of `threads` threads, the caller of msgl_submit being one of
// them. Between submissions the others sleep.
int msgl_pool_new(msgl_pool **out, int threads);
void msgl_pool_free(msgl_pool *pool);

// Runs ops[0..n) in order. One submission at a time per pool. On an error the
// operation's index is left in *failed. ns, if not NULL, gets the nanoseconds that
// each operation took.
int msgl_submit(int *failed, int64_t *ns, msgl_pool *pool, const msgl_op *ops, int n);

// Measures the machine with the pool's threads: bytes that they read from memory
// in a second, and 32-bit multiply-adds, each two operations. Takes about a second.
int msgl_probe(double *bytes_per_second, double *flops_per_second, msgl_pool *pool);

// Zeroed memory, 64-byte aligned, on huge pages where the system gives them.
int msgl_alloc(void **out, size_t bytes);
void msgl_free(void *p, size_t bytes);

// Has the system give the pages of [p, p + bytes) of msgl_alloc's memory now rather than when they are
// first written, which would stop a kernel for it. Contents stay. MSGL_ERR_MEMORY: the system can't.
int msgl_populate(void *p, size_t bytes);

// Bytes of a packed weight of n rows (outputs) and k columns (inputs). A packed
// weight is panels of 16 outputs; n and k are padded with zeros.
size_t msgl_packed_bytes(int n, int k, int dtype);

// Packs one panel: m <= 16 rows of k values become outputs 16*panel ... of dst.
// `from` is the rows' type, f32 or bf16; bf16 rows can only become bf16. Values are rounded to nearest even.
int msgl_pack_panel(void *dst, const void *rows, int from, int m, int k, int dtype, int panel);

// Packs one panel of a quantized type: codes [m, k] relative to the type's zero,
// scales and minima f32 [m, k / group]; minima NULL where the type has none.
// k is a multiple of 32. Scales of f16 types must be f16 values.
int msgl_pack_quant(void *dst, const uint8_t *codes, const float *scales, const float *minima, int m, int k, int dtype,
                    int panel);

// Columns of a row that share a scale; 0 if the type is not a quantized one.
int msgl_quant_group(int dtype);

// The instruction set that a new pool uses: "amx", "avx512_bf16", "avx512", "avx2", on Arm "neon_i8mm", "neon_dot",
// or "portable": the best that the machine has, or the one that the environment's MINISGL_CPU_ISA names.
int msgl_isa(const char **name);

#endif
