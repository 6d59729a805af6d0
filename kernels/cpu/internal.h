// internal.h: what the files of the CPU kernels share.
//
// An operation runs as phases. A phase is a function over items [0, n) that any
// thread may run in any order and any grouping: an item's result depends on
// nothing but the item. plan.c turns an operation into phases, pool.c runs them,
// the *_impl.h files hold the functions, once per instruction set.
#ifndef MSGL_INTERNAL_H
#define MSGL_INTERNAL_H

#include "msgl.h"

// Rounding must not depend on the compiler's mood: see the flags in cpu.go.
#ifdef __FAST_MATH__
#error "the kernels need exact IEEE arithmetic: do not build them with -ffast-math or -Ofast"
#endif

enum {
  MSGL_PANEL = 16,            // outputs of a packed panel
  MSGL_MAX_PANELS = 8,        // that LINEAR computes together
  MSGL_TILE_COLS = 32,        // columns of a tile of x in bf16
  MSGL_QUANT_STEP = 64,       // columns of a step of a quantized weight
  MSGL_X_GROUP = 32,          // values of x that share a scale when they meet a quantized weight
  MSGL_PACK_COLS = 256,       // columns of one item when x is packed
  MSGL_MAX_PHASES = 5,        // of one operation
  MSGL_MAX_HEAD_DIM = 1024,   // elements of an attention head
  MSGL_ATTN_BLOCK = 32,       // positions whose scores are computed together
  MSGL_ATTN_CHUNK = 256,      // positions after which the running softmax starts anew; chunks are merged in order
  MSGL_ATTN_TILE = 96,        // (row, query head) pairs of a task of ATTENTION
  MSGL_RADIX_BUCKETS = 2048,  // of one level of the sampler's selection
};

// How far out of its row a value of x stands, as a multiple of the row's root mean
// square, for its group to be rounded twice when it meets a quantized weight.
#define MSGL_OUTLIER 12.0f

typedef struct msgl_job msgl_job;
typedef void (*msgl_phase_fn)(const msgl_job *job, int thread, int64_t from, int64_t to);

typedef struct {
  msgl_phase_fn run;
  int64_t items;
  int step;    // items that a thread claims at a time
  int serial;  // too little work to share
} msgl_phase;

// One instruction set's kernels.
typedef struct {
  const char *name;
  int linear_rows;  // rows of x that LINEAR keeps in registers
  int quant_rows[2];  // the same for quantized weights, with codes of 8 and of 4 bits
  int (*x_bytes)(int dtype);  // of one row of x, as LINEAR packs it, for a step of a weight's columns
  msgl_phase_fn embed, rms_norm, linear_pack, linear_stream, linear_blocked, linear_best;
  int tile_rows;              // rows of x that LINEAR computes together on tiles, for weights of bf16; 0: there are none
  msgl_phase_fn tile_pack, tile_linear;
  msgl_phase_fn rope_store, attention, attention_merge, act_mul, gather_rows, sample, adjust, mask, logprobs;
  msgl_phase_fn probe_read, probe_fma;
  int64_t probe_flops;  // of an item of probe_fma
  msgl_phase_fn moe_route, moe_pack, moe_gate_up, moe_act, moe_down, moe_combine;
} msgl_kernels;

extern const msgl_kernels msgl_kernels_portable;
#if defined(__x86_64__)
extern const msgl_kernels msgl_kernels_avx2, msgl_kernels_avx512, msgl_kernels_avx512_bf16;
#elif defined(__aarch64__)
extern const msgl_kernels msgl_kernels_neon_dot, msgl_kernels_neon_i8mm;
#endif

// Whether the compiler has AMX.
#if defined(__x86_64__) && (__GNUC__ >= 11 || defined(__clang__))
#define MSGL_AMX
// Has kernels multiply weights of bf16 on tiles, and calls them "amx".
void msgl_add_amx(msgl_kernels *kernels);
#endif

// Sets *out to the kernels that msgl_isa names.
int msgl_choose_kernels(const msgl_kernels **out);

// A row's largest logit.
typedef struct {
  float logit;
  int32_t id;
} msgl_best;

// How LINEAR splits the rows of x that it computes in one pass: `blocks` blocks of
// block_rows rows (the last may have fewer); `group` consecutive blocks are computed
// together.
typedef struct {
  int64_t row, rows; // of the pass
  int steps;         // of columns: K rounded up
  int block_rows, blocks, group;
  int packed;        // whether x was packed into job->shared
  int64_t row_bytes; // of a packed row of x
  msgl_best *best;   // [rows, panels]: what LINEAR leaves for the SAMPLE behind it instead of its outputs, or NULL
} msgl_linear_plan;

// One task of ATTENTION: rows of one request, under some of its heads, against
// chunks of its positions.
typedef struct {
  int request, row, rows;
  int position;              // of the first row
  int head, heads;           // key/value heads
  int chunk_from, chunk_to;  // chunks that this task computes
  int partial;               // slot of its result in job->shared; -1: the task covers all chunks
  int parts;                 // results of all chunks, to be merged; 0 but in the task of the first chunk
} msgl_attn_task;

typedef struct {
  const msgl_attn_task *tasks;
  int64_t ntasks;
  float *partials;        // [slots, KV, tile_rows, head_stride + 2]
  int tile_rows;          // (row, query head) pairs of a full tile under one key/value head
  int pairs;              // the most that a task has
  int head_stride;        // D rounded up to 16
  int head_padded;        // D rounded up to 32
} msgl_attn_plan;

// The rows of one expert in MOE: slots [first, first + rows).
typedef struct {
  int expert, first, rows;
  msgl_linear_plan gate_up, down;
  int64_t gate_up_item, down_item;  // its first items in those phases
} msgl_moe_group;

// MOE, for some rows of x. A slot is one (row, expert) pair; slots are ordered by
// expert, then by row.
typedef struct {
  int64_t row, rows;        // the rows that these phases compute
  int32_t *ids;             // [rows, K]: experts of a row, ascending
  float *weights;           // [rows, K]
  int32_t *slots;           // [rows, K]: the slots of those pairs
  int32_t *slot_rows;       // [slots]: the row of x
  int32_t *slot_groups;     // [slots]
  msgl_moe_group *groups;   // experts with rows, ascending
  int ngroups;
  char *x;                  // x packed for the experts; then their outputs, f32 [slots, H]
  float *gate_up;           // [slots, 2F]
  char *act;                // silu(gate) * up, packed for down
} msgl_moe_plan;

struct msgl_job {
  const msgl_op *op;
  const msgl_kernels *kernels;
  int threads;
  int64_t l2_bytes;        // of a core's second cache
  int nphases;
  msgl_phase phases[MSGL_MAX_PHASES];
  msgl_linear_plan linear;
  msgl_attn_plan attn;
  msgl_moe_plan moe;
  int64_t next_row;        // not 0: the operation goes on from this row, and is to be planned again
  int nops;                // operations that the phases run: one, or LINEAR and the SAMPLE behind it
  char *shared;            // scratch that all threads read
  char *own;               // scratch of the threads, own_bytes each
  size_t own_bytes;
  size_t shared_cap, own_cap;
};

// Checks the first of the n operations that are left and sets job's phases. Reads the
// index operands, so the operations before it must have run.
int msgl_plan(msgl_job *job, const msgl_op *op, int n);

// Grows job->shared to at least `bytes`, or the threads' own scratch to `bytes` each.
int msgl_need_shared(msgl_job *job, size_t bytes);
int msgl_need_own(msgl_job *job, size_t bytes);

static inline float *msgl_f32(const msgl_tensor *t) { return (float *)(uintptr_t)t->addr; }
static inline int32_t *msgl_i32(const msgl_tensor *t) { return (int32_t *)(uintptr_t)t->addr; }
static inline float *msgl_row(const msgl_tensor *t, int64_t row) { return msgl_f32(t) + row * t->stride; }

// How the codes of a quantized weight are stored; bits 0: the type is not one.
// A value is (code - zero) * scale, or code * scale + minimum.
typedef struct {
  int bits;     // of a code: 8 or 4
  int group;    // columns that share a scale: 32 or 16
  int zero;
  int wide;     // whether scales (and minima) are f32, not f16
  int minimum;  // whether groups have a minimum
} msgl_quant;

static inline msgl_quant msgl_quant_of(int dtype) {
  switch (dtype) {
    case MSGL_Q8: return (msgl_quant){8, 32, 128, 0, 0};
    case MSGL_Q4: return (msgl_quant){4, 32, 8, 0, 0};
    case MSGL_Q4M: return (msgl_quant){4, 32, 0, 1, 1};
    case MSGL_Q6: return (msgl_quant){8, 16, 128, 1, 0};
    case MSGL_Q8M: return (msgl_quant){8, 16, 0, 1, 1};
    default: return (msgl_quant){0, 0, 0, 0, 0};
  }
}

// The unit in which a panel runs over the inputs; K is padded to whole ones.
typedef struct {
  int cols;
  int head;   // bytes of scales and minima, before the values
  int bytes;  // of the panel
} msgl_step;

// Bytes of an element of a dense weight or of a cache.
static inline size_t msgl_elem_size(int dtype) { return dtype == MSGL_I8 ? 1 : dtype == MSGL_BF16 || dtype == MSGL_F16 ? 2 : 4; }

static inline msgl_step msgl_step_of(int dtype) {
  msgl_quant q = msgl_quant_of(dtype);
  if (q.bits == 0) {
    int bytes = 2 * MSGL_PANEL * (int)msgl_elem_size(dtype);
    return (msgl_step){2, 0, bytes};
  }
  int groups = MSGL_QUANT_STEP / q.group;
  int head = groups * MSGL_PANEL * (q.wide ? 4 : 2) * (q.minimum ? 2 : 1);
  return (msgl_step){MSGL_QUANT_STEP, head, head + MSGL_QUANT_STEP * MSGL_PANEL * q.bits / 8};
}

// Bytes of one packed panel with `steps` steps of columns.
static inline size_t msgl_panel_bytes(int steps, int dtype) { return (size_t)steps * (size_t)msgl_step_of(dtype).bytes; }

static inline int64_t msgl_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Steps of a packed weight of k columns.
static inline int msgl_steps(int64_t k, int dtype) { return (int)msgl_ceil_div(k, msgl_step_of(dtype).cols); }

// Bytes of a row of x, packed for a weight of k columns; quant_impl.h says what
// more there is for quantized ones.
static inline int64_t msgl_packed_row(const msgl_kernels *kernels, int64_t k, int dtype) {
  int64_t x = kernels->x_bytes(dtype);
  return msgl_steps(k, dtype) * (msgl_quant_of(dtype).bits ? 2 * x + 4 : x);
}

static inline int64_t msgl_packed_rows(const msgl_linear_plan *p, int64_t rows) { return rows * p->row_bytes; }

// Steps that one item of packing x takes.
static inline int64_t msgl_pack_range(const msgl_linear_plan *p, int dtype) {
  return msgl_quant_of(dtype).bits ? p->steps : MSGL_PACK_COLS / msgl_step_of(dtype).cols;
}

static inline int64_t msgl_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t msgl_max(int64_t a, int64_t b) { return a > b ? a : b; }

// Rounds to bfloat16, to nearest even. A NaN stays one.
static inline uint16_t msgl_to_bf16(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// Rounds to float16, to nearest even; what is too large becomes infinite. A NaN stays one.
static inline uint16_t msgl_to_f16(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  uint32_t sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);  // 2^16 and above
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 leaves multiples of 2^-24 in the mantissa
    __builtin_memcpy(&x, &magnitude, 4);
    x += 0.5f;
    __builtin_memcpy(&u, &x, 4);
    return (uint16_t)(sign | (u - 0x3f000000));
  }
  return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13));
}

#endif
