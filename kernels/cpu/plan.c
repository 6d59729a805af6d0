// plan.c: checks operations and splits them into phases.
#include <string.h>

#include "plan.h"

enum {
  SERIAL_PACK = 16384,    // LINEAR's copy of x below this costs less than a barrier
  LINEAR_BYTES = 16 << 20, // of LINEAR's copy of x; more rows than that allows are computed in several passes
};

// Whether every element of an index operand, [1, n], is in [0, limit).
static int indices(const msgl_tensor *t, int64_t limit) {
  const int32_t *v = msgl_i32(t);
  for (int64_t i = 0; i < t->cols; i++) {
    if (v[i] < 0 || v[i] >= limit) return MSGL_ERR_INDEX;
  }
  return MSGL_OK;
}

// A phase over the rows of a tensor of `cols` columns.
static void add_rows(msgl_job *job, msgl_phase_fn run, int64_t rows, int64_t cols) {
  add_phase(job, run, rows, 1, rows == 1 || rows * cols < SERIAL_ELEMENTS);
}

static int plan_embed(msgl_job *job, const msgl_op *op) {
  const msgl_tensor *dst = &op->t[0], *table = &op->t[1], *ids = &op->t[2], *last = &op->t[3];
  int code = both(columns(dst, MSGL_F32, table->cols), packed(table, dst->cols));
  code = both(code, both(view(ids, MSGL_I32, 1, dst->rows), optional(last, MSGL_I32, 1, last->cols)));
  if (code != MSGL_OK) return code;
  int64_t slots = last->addr ? last->cols : 0;
  for (int64_t i = 0; i < dst->rows; i++) {
    int64_t id = msgl_i32(ids)[i];
    if (id < 0) {
      if (-id - 1 >= slots) return MSGL_ERR_INDEX;
      id = msgl_i32(last)[-id - 1];
    }
    if (id < 0 || id >= table->rows) return MSGL_ERR_INDEX;
  }
  add_rows(job, job->kernels->embed, dst->rows, dst->cols);
  return MSGL_OK;
}

static int plan_rms_norm(msgl_job *job, const msgl_op *op) {
  const msgl_tensor *dst = &op->t[0], *x = &op->t[1];
  int code = both(columns(x, MSGL_F32, dst->cols), view(dst, MSGL_F32, x->rows, x->cols));
  code = both(code, both(view(&op->t[2], MSGL_F32, 1, x->cols), optional(&op->t[3], MSGL_F32, x->rows, x->cols)));
  if (code != MSGL_OK) return code;
  add_rows(job, job->kernels->rms_norm, x->rows, x->cols);
  return MSGL_OK;
}

static int on_tiles(const msgl_job *job, const msgl_op *op) { return job->kernels->tile_rows > 0 && op->t[2].dtype == MSGL_BF16; }

// Splits rows into blocks of at most `most`. Those that are computed together may take half
// of a core's L2 cache, a row bytes of it.
static void split_rows(msgl_linear_plan *p, const msgl_job *job, int64_t rows, int64_t most, int64_t bytes) {
  p->row = 0;
  p->rows = rows;
  p->best = NULL;
  p->block_rows = (int)msgl_ceil_div(rows, msgl_ceil_div(rows, most));
  p->blocks = (int)msgl_ceil_div(rows, p->block_rows);
  p->group = (int)msgl_min(p->blocks, msgl_max(1, job->l2_bytes / 2 / (p->block_rows * bytes)));
}

void msgl_split_linear(msgl_linear_plan *p, const msgl_job *job, int64_t rows, int64_t cols, int dtype) {
  const msgl_kernels *kernels = job->kernels;
  int bits = msgl_quant_of(dtype).bits, most = bits ? kernels->quant_rows[bits == 4] : kernels->linear_rows;
  p->steps = msgl_steps(cols, dtype);
  p->row_bytes = msgl_packed_row(kernels, cols, dtype);
  p->packed = bits || dtype == MSGL_BF16 || rows > 1 || cols % 2;
  split_rows(p, job, rows, most, (int64_t)p->steps * kernels->x_bytes(dtype));
}

// The same on tiles, for which x is packed in rows of whole ones.
static void split_tiles(msgl_linear_plan *p, const msgl_job *job, int64_t rows, int64_t cols) {
  p->steps = msgl_steps(cols, MSGL_BF16);
  p->row_bytes = msgl_ceil_div(cols, MSGL_TILE_COLS) * MSGL_TILE_COLS * 2;
  p->packed = 1;
  split_rows(p, job, rows, job->kernels->tile_rows, p->row_bytes);
}

// Whether LINEAR leaves the largest logit of each panel alone, an eighth of the memory, to the SAMPLE
// behind it. It does where those are a submission's last operations: nobody else reads the logits then.
static int ends_greedy(const msgl_job *job, const msgl_op *op, int n) {
  return n == 2 && job->linear.rows == op->t[0].rows && !op->t[3].addr && !on_tiles(job, op) && msgl_greedy(op, op + 1);
}

// Lists the phases of a pass, for which there is scratch.
static void add_linear(msgl_job *job, const msgl_op *op) {
  const msgl_linear_plan *p = &job->linear;
  const msgl_kernels *kernels = job->kernels;
  const msgl_tensor *w = &op->t[2];
  int64_t panels = msgl_ceil_div(w->rows, MSGL_PANEL), groups = msgl_ceil_div(p->blocks, p->group);
  int serial_pack = p->rows * w->cols < SERIAL_PACK, serial = p->rows * w->rows * w->cols < 4 * SERIAL_ELEMENTS;
  if (on_tiles(job, op)) {
    add_phase(job, kernels->tile_pack, p->rows, 1, serial_pack);
    add_phase(job, kernels->tile_linear, groups * panels, PANELS_PER_CLAIM, serial);
    return;
  }
  if (p->packed) add_phase(job, kernels->linear_pack, p->blocks * msgl_ceil_div(p->steps, msgl_pack_range(p, w->dtype)), 1, serial_pack);
  add_phase(job, p->blocks == 1 ? kernels->linear_stream : kernels->linear_blocked, groups * panels, PANELS_PER_CLAIM, serial);
  if (p->best) add_phase(job, kernels->linear_best, p->rows, 1, p->rows * panels < SERIAL_ELEMENTS);
}

static int plan_linear(msgl_job *job, const msgl_op *op, int n) {
  const msgl_tensor *dst = &op->t[0], *x = &op->t[1], *w = &op->t[2], *bias = &op->t[3];
  int code = both(packed(w, x->cols), columns(x, MSGL_F32, w->cols));
  code = both(code, both(view(dst, MSGL_F32, x->rows, w->rows), optional(bias, MSGL_F32, 1, w->rows)));
  if (code != MSGL_OK || x->rows == 0) return code;
  msgl_linear_plan *p = &job->linear;
  int64_t row = job->next_row, most = msgl_max(1, LINEAR_BYTES / msgl_packed_row(job->kernels, w->cols, w->dtype));
  int64_t rows = msgl_min(x->rows - row, most);
  job->next_row = row + rows < x->rows ? row + rows : 0;
  if (on_tiles(job, op)) {
    split_tiles(p, job, rows, w->cols);
  } else {
    msgl_split_linear(p, job, rows, w->cols, w->dtype);
  }
  p->row = row;
  int greedy = ends_greedy(job, op, n);
  size_t x_bytes = p->packed ? ((size_t)msgl_packed_rows(p, rows) + 63) / 64 * 64 : 0;
  size_t best_bytes = greedy ? (size_t)(rows * msgl_ceil_div(w->rows, MSGL_PANEL)) * sizeof *p->best : 0;
  if ((code = msgl_need_shared(job, x_bytes + best_bytes)) != MSGL_OK) return code;
  if (greedy) {
    p->best = (msgl_best *)(job->shared + x_bytes);
    job->nops = 2;
  }
  if ((code = msgl_need_own(job, msgl_linear_own(p))) != MSGL_OK) return code;
  add_linear(job, op);
  return MSGL_OK;
}

// Whether I holds Q, KV, D, page size that the kernels can take.
static int heads(const msgl_op *op) {
  int q = op->i[0], kv = op->i[1], d = op->i[2];
  if (q <= 0 || kv <= 0 || q % kv || d <= 0 || d % 8 || d > MSGL_MAX_HEAD_DIM || op->i[3] <= 0) return MSGL_ERR_SHAPE;
  return q > INT32_MAX / d / 4 ? MSGL_ERR_SHAPE : MSGL_OK;
}

static int caches(const msgl_tensor *k, const msgl_tensor *v, int64_t kv, int64_t d) {
  if (k->dtype != MSGL_F32 && k->dtype != MSGL_BF16 && k->dtype != MSGL_F16 && k->dtype != MSGL_I8) return MSGL_ERR_DTYPE;
  int64_t cols = kv * (k->dtype == MSGL_I8 ? d + 4 : d);
  if (k->stride < cols) return MSGL_ERR_SHAPE;
  if (v->stride != k->stride) return MSGL_ERR_SHAPE;
  return both(view(k, k->dtype, k->rows, cols), view(v, k->dtype, k->rows, cols));
}

static int plan_rope_store(msgl_job *job, const msgl_op *op) {
  int code = heads(op);
  if (code != MSGL_OK) return code;
  int64_t q = op->i[0], kv = op->i[1], d = op->i[2];
  const msgl_tensor *qkv = &op->t[0], *positions = &op->t[1], *slots = &op->t[2], *table = &op->t[3];
  code = both(columns(qkv, MSGL_F32, (q + 2 * kv) * d), columns(table, MSGL_F32, d));
  code = both(code, both(view(positions, MSGL_I32, 1, qkv->rows), view(slots, MSGL_I32, 1, qkv->rows)));
  code = both(code, caches(&op->t[4], &op->t[5], kv, d));
  code = both(code, both(optional(&op->t[6], MSGL_F32, 1, d), optional(&op->t[7], MSGL_F32, 1, d)));
  if (code != MSGL_OK) return code;
  code = both(indices(positions, table->rows), indices(slots, op->t[4].rows));
  if (code != MSGL_OK) return code;
  add_rows(job, job->kernels->rope_store, qkv->rows, qkv->cols);
  return MSGL_OK;
}

// How ATTENTION is cut into tasks.
typedef struct {
  int tile_rows;  // rows of a tile
  int pairs;      // (row, query head) pairs of a task, unless a tile under one head has more
  int split;      // whether a tile of rows becomes one task per chunk of positions
} attn_cut;

typedef struct {
  int64_t tasks, partials;
} attn_count;

// Key/value heads of a task of so many rows. A task takes several heads where there
// are few rows: it then reads whole rows of the cache, which memory likes.
static int heads_per_task(const msgl_op *op, const attn_cut *cut, int rows) {
  int kv = op->i[1], pairs = rows * (op->i[0] / kv);
  return (int)msgl_ceil_div(kv, msgl_ceil_div(kv, msgl_max(1, cut->pairs / pairs)));
}

// Lists the tasks of ATTENTION (tasks NULL: only counts them).
static attn_count list_tasks(msgl_attn_task *tasks, const msgl_op *op, const attn_cut *cut) {
  const int32_t *cu = msgl_i32(&op->t[5]), *lens = msgl_i32(&op->t[6]);
  attn_count n = {0, 0};
  for (int r = 0; r < op->t[4].rows; r++) {
    for (int row = cu[r]; row < cu[r + 1]; row += cut->tile_rows) {
      int rows = (int)msgl_min(cut->tile_rows, cu[r + 1] - row), position = lens[r] - (cu[r + 1] - row);
      int chunks = (int)msgl_ceil_div(position + rows, MSGL_ATTN_CHUNK), heads = heads_per_task(op, cut, rows);
      int first = op->i[4] > 0 ? (int)(msgl_max(0, position - op->i[4] + 1) / MSGL_ATTN_CHUNK) : 0;
      int whole = !cut->split || chunks - first == 1;
      for (int c = first; c < chunks; c++) {
        for (int h = 0; h < op->i[1]; h += heads) {
          msgl_attn_task t = {r, row, rows, position, h, (int)msgl_min(heads, op->i[1] - h), c, whole ? chunks : c + 1, -1, 0};
          if (!whole) t.partial = (int)n.partials;
          if (!whole && c == first) t.parts = chunks - first;
          if (tasks) tasks[n.tasks] = t;
          n.tasks++;
        }
        if (whole) break;
        n.partials++;
      }
    }
  }
  return n;
}

// Cuts so that every thread has several tasks, if that can be: by chunks of
// positions first, then by heads. Returns how many tasks that makes.
static attn_count cut_attention(attn_cut *cut, const msgl_op *op, int threads) {
  int group = op->i[0] / op->i[1];
  *cut = (attn_cut){(int)msgl_max(1, MSGL_ATTN_TILE / group), MSGL_ATTN_TILE, 0};
  attn_count n = list_tasks(NULL, op, cut);
  if (threads == 1 || n.tasks >= 4 * (int64_t)threads) return n;
  cut->split = 1;
  n = list_tasks(NULL, op, cut);
  while (cut->pairs > group && n.tasks < 4 * (int64_t)threads) {
    cut->pairs /= 2;
    n = list_tasks(NULL, op, cut);
  }
  return n;
}

static int check_pages(const msgl_op *op, int64_t rows) {
  const msgl_tensor *table = &op->t[4];
  const int32_t *cu = msgl_i32(&op->t[5]), *lens = msgl_i32(&op->t[6]);
  int64_t page = op->i[3], pages = op->t[2].rows / page;
  if (cu[0] != 0 || cu[table->rows] != rows) return MSGL_ERR_INDEX;
  for (int r = 0; r < table->rows; r++) {
    int64_t count = (int64_t)cu[r + 1] - cu[r], used = msgl_ceil_div(lens[r], page);
    if (count < 0 || lens[r] < count || used > table->cols) return MSGL_ERR_INDEX;
    // Pages that have left the window of the first row may have been given away.
    int64_t first = op->i[4] > 0 ? msgl_max(0, lens[r] - count - op->i[4] + 1) / page : 0;
    const int32_t *list = msgl_i32(table) + (int64_t)r * table->stride;
    for (int64_t i = first; i < used && count > 0; i++) {
      if (list[i] < 0 || list[i] >= pages) return MSGL_ERR_INDEX;
    }
  }
  return MSGL_OK;
}

static int check_attention(const msgl_op *op) {
  int code = heads(op);
  if (code != MSGL_OK) return code;
  const msgl_tensor *dst = &op->t[0], *q = &op->t[1], *table = &op->t[4];
  int64_t d = op->i[2];
  code = both(columns(q, MSGL_F32, op->i[0] * d), view(dst, MSGL_F32, q->rows, q->cols));
  code = both(code, both(caches(&op->t[2], &op->t[3], op->i[1], d), columns(table, MSGL_I32, table->cols)));
  code = both(code, view(&op->t[5], MSGL_I32, 1, (int64_t)table->rows + 1));
  code = both(code, view(&op->t[6], MSGL_I32, 1, table->rows));
  return code != MSGL_OK ? code : check_pages(op, q->rows);
}

// Floats that a thread needs for a task of `tile` (row, head) pairs; the layout is
// attention_impl.h's.
static size_t attn_floats(size_t tile, size_t padded, size_t stride) {
  size_t block = MSGL_ATTN_BLOCK;
  return tile * padded + padded * block + block * stride + 2 * block + tile * block + tile * (16 + 2 * stride + 4) + 64 * 12;
}

static int plan_attention(msgl_job *job, const msgl_op *op) {
  int code = check_attention(op);
  if (code != MSGL_OK || op->t[1].rows == 0) return code;
  int kv = op->i[1], d = op->i[2], group = op->i[0] / kv;
  attn_cut cut;
  attn_count n = cut_attention(&cut, op, job->threads);
  msgl_attn_plan *p = &job->attn;
  p->tile_rows = cut.tile_rows * group;
  p->pairs = (int)msgl_max(p->tile_rows, MSGL_ATTN_TILE);
  p->head_stride = (d + 15) / 16 * 16;
  p->head_padded = (d + 31) / 32 * 32;
  size_t head = ((size_t)n.tasks * sizeof(msgl_attn_task) + 63) / 64 * 64;
  size_t partial = (size_t)n.partials * (size_t)kv * (size_t)p->tile_rows * (size_t)(p->head_stride + 2) * sizeof(float);
  code = both(msgl_need_shared(job, head + partial),
              msgl_need_own(job, attn_floats((size_t)p->pairs, (size_t)p->head_padded, (size_t)p->head_stride) * sizeof(float)));
  if (code != MSGL_OK) return code;
  list_tasks((msgl_attn_task *)job->shared, op, &cut);
  p->tasks = (const msgl_attn_task *)job->shared;
  p->ntasks = n.tasks;
  p->partials = (float *)(job->shared + head);
  add_phase(job, job->kernels->attention, n.tasks, 1, 0);
  if (n.partials > 0) add_phase(job, job->kernels->attention_merge, n.tasks, 1, n.partials * kv < 64);
  return MSGL_OK;
}

static int plan_act_mul(msgl_job *job, const msgl_op *op) {
  const msgl_tensor *dst = &op->t[0], *x = &op->t[1];
  int code = both(columns(dst, MSGL_F32, dst->cols), view(x, MSGL_F32, dst->rows, 2 * (int64_t)dst->cols));
  if (code != MSGL_OK) return code;
  if (op->i[0] != MSGL_SILU && op->i[0] != MSGL_GELU_TANH) return MSGL_ERR_KIND;
  add_rows(job, job->kernels->act_mul, dst->rows, dst->cols);
  return MSGL_OK;
}

static int plan_gather_rows(msgl_job *job, const msgl_op *op) {
  const msgl_tensor *dst = &op->t[0], *x = &op->t[1], *rows = &op->t[2];
  int code = both(columns(dst, MSGL_F32, x->cols), columns(x, MSGL_F32, dst->cols));
  code = both(code, view(rows, MSGL_I32, 1, dst->rows));
  if (code == MSGL_OK) code = indices(rows, x->rows);
  if (code != MSGL_OK) return code;
  add_rows(job, job->kernels->gather_rows, dst->rows, dst->cols);
  return MSGL_OK;
}

// Items of reading where there is memory to read, of multiply-adds where not.
static int plan_probe(msgl_job *job, const msgl_op *op) {
  int code = msgl_need_own(job, 64);
  add_phase(job, op->t[0].addr ? job->kernels->probe_read : job->kernels->probe_fma, op->i[0], 4, 0);
  return code;
}

int msgl_plan(msgl_job *job, const msgl_op *op, int n) {
  job->op = op;
  job->nphases = 0;
  job->nops = 1;
  switch (op->kind) {
    case MSGL_EMBED: return plan_embed(job, op);
    case MSGL_RMS_NORM: return plan_rms_norm(job, op);
    case MSGL_LINEAR: return plan_linear(job, op, n);
    case MSGL_ROPE_STORE: return plan_rope_store(job, op);
    case MSGL_ATTENTION: return plan_attention(job, op);
    case MSGL_ACT_MUL: return plan_act_mul(job, op);
    case MSGL_GATHER_ROWS: return plan_gather_rows(job, op);
    case MSGL_SAMPLE: return msgl_plan_sample(job, op);
    case MSGL_ADJUST: return msgl_plan_adjust(job, op);
    case MSGL_MASK: return msgl_plan_mask(job, op);
    case MSGL_LOGPROBS: return msgl_plan_logprobs(job, op);
    case MSGL_MOE: return msgl_plan_moe(job, op);
    case MSGL_PROBE: return plan_probe(job, op);
    default: return MSGL_ERR_KIND;
  }
}
