// logits_impl.h: penalties, biases, masks and log-probabilities.

// Penalises the tokens that were generated; ids below zero name rows of last.
static void penalise(float *x, int vocab, const msgl_adjustment *a, const int32_t *ids, const int32_t *last, int32_t *counts) {
  memset(counts, 0, (size_t)vocab * sizeof *counts);
  for (int i = 0; i < a->outputs; i++) counts[ids[i] < 0 ? last[-ids[i] - 1] : ids[i]]++;
  for (int i = 0; i < a->outputs; i++) {
    int32_t id = ids[i] < 0 ? last[-ids[i] - 1] : ids[i];
    if (counts[id] == 0) continue;
    x[id] -= a->frequency * (float)counts[id] + a->presence;
    x[id] = x[id] < 0 ? x[id] * a->repetition : x[id] / a->repetition;
    counts[id] = 0;  // once
  }
}

// Items: rows of the arguments.
static void adjust(const msgl_job *job, int thread, int64_t from, int64_t to) {
  const msgl_op *op = job->op;
  int32_t *counts = (int32_t *)(job->own + (size_t)thread * job->own_bytes);
  const int32_t *last = msgl_i32(&op->t[3]);
  for (int64_t r = from; r < to; r++) {
    const msgl_adjustment *a = (const msgl_adjustment *)msgl_row(&op->t[1], r);
    const int32_t *data = msgl_i32(&op->t[2]) + a->first, *pairs = data + a->outputs;
    float *x = msgl_row(&op->t[0], a->row);
    if (a->outputs > 0) penalise(x, op->i[0], a, data, last, counts);
    for (int i = 0; i < a->biases; i++) {
      float bias;
      memcpy(&bias, &pairs[2 * i + 1], sizeof bias);
      x[pairs[2 * i]] += bias;
    }
  }
}

// Items: rows of the bits.
static void mask(const msgl_job *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const msgl_op *op = job->op;
  int vocab = op->i[0];
  for (int64_t r = from; r < to; r++) {
    float *x = msgl_row(&op->t[0], msgl_i32(&op->t[1])[r]);
    const uint32_t *words = (const uint32_t *)msgl_row(&op->t[2], r);
    int id = 0;
    for (; id + 32 <= vocab; id += 32) {
      uint32_t word = words[id / 32];
      if (word == UINT32_MAX) continue;
      for (int bit = 0; bit < 32; bit++) x[id + bit] = word >> bit & 1 ? x[id + bit] : -INFINITY;
    }
    for (; id < vocab; id++) x[id] = words[id / 32] >> (id % 32) & 1 ? x[id] : -INFINITY;
  }
}

// The logarithm of the sum of exp((x - max) / T); w is scratch of vocab + 64.
static double log_sum(const float *x, int vocab, float max, float temperature, float *w) {
  sampler s = {.x = x, .w = w, .n = vocab};
  double sum = 0;
  fill_weights(&s, vocab, max, temperature);
  for (int i = 0; i < vocab; i++) sum += (double)w[i];
  return log(sum);
}

static int32_t logprob_bits(float x, float max, float temperature, double log_of_sum) {
  float p = (float)((x == max ? 0.0 : ((double)x - (double)max) / (double)temperature) - log_of_sum);
  int32_t bits;
  memcpy(&bits, &p, sizeof bits);
  return bits;
}

// Writes the ids of the largest n logits to every second element of dst,
// descending; of equals, the smaller id first.
static void top_logits(int32_t *dst, int n, const float *x, int vocab) {
  int have = 0;
  for (int id = 0; id < vocab && n > 0; id++) {
    if (have == n && !(x[id] > x[dst[2 * (n - 1)]])) continue;
    int at = have < n ? have++ : n - 1;
    for (; at > 0 && x[id] > x[dst[2 * (at - 1)]]; at--) dst[2 * at] = dst[2 * (at - 1)];
    dst[2 * at] = id;
  }
}

// Items: rows of the arguments.
static void logprobs(const msgl_job *job, int thread, int64_t from, int64_t to) {
  const msgl_op *op = job->op;
  int vocab = op->i[0];
  float *w = (float *)(job->own + (size_t)thread * job->own_bytes);
  for (int64_t r = from; r < to; r++) {
    const msgl_scoring *s = (const msgl_scoring *)msgl_row(&op->t[2], r);
    int32_t *dst = (int32_t *)msgl_row(&op->t[0], r);
    float *x = msgl_row(&op->t[1], s->row);
    float max = clean_max(x, vocab);
    double log_of_sum = log_sum(x, vocab, max, s->temperature, w);
    int32_t token = s->token < 0 ? msgl_i32(&op->t[3])[s->row] : s->token;
    dst[0] = logprob_bits(x[token], max, s->temperature, log_of_sum);
    top_logits(dst + 1, s->top, x, vocab);
    for (int k = 0; k < s->top; k++) dst[2 + 2 * k] = logprob_bits(x[dst[1 + 2 * k]], max, s->temperature, log_of_sum);
  }
}
