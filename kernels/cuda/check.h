// check.h: checks of operands on the host, and the operations' launchers.
#ifndef MSGL_CHECK_H
#define MSGL_CHECK_H

#include "platform.h"
#include "weight.h"

namespace msgl {

// Returns the first error of several.
inline int both(int a, int b) { return a != MSGL_OK ? a : b; }
template <class... Rest> int first_error(int a, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return a;
  } else {
    return both(a, first_error(rest...));
  }
}

inline int view(const msgl_tensor &t, int dtype, int64_t rows, int64_t cols) {
  if (t.dtype != dtype) return MSGL_ERR_DTYPE;
  if (t.addr == 0 || t.rows != rows || t.cols != cols || rows < 0 || cols < 0) return MSGL_ERR_SHAPE;
  return rows > 1 && t.stride < cols ? MSGL_ERR_SHAPE : MSGL_OK;
}

inline int optional(const msgl_tensor &t, int dtype, int64_t rows, int64_t cols) {
  return t.addr == 0 ? MSGL_OK : view(t, dtype, rows, cols);
}

// A tensor whose rows are free.
inline int columns(const msgl_tensor &t, int dtype, int64_t cols) { return view(t, dtype, t.rows, cols); }

inline int packed(const msgl_tensor &t, int64_t cols) {
  bool quantized = quant_of(t.dtype).bits != 0;
  bool known = t.dtype == MSGL_F32 || t.dtype == MSGL_BF16 || t.dtype == MSGL_F16 || t.dtype == MSGL_F8;
  if (!known && !quantized) return MSGL_ERR_DTYPE;
  if (quantized && t.cols % X_GROUP) return MSGL_ERR_SHAPE;
  return t.addr == 0 || t.rows <= 0 || t.cols <= 0 || t.cols != cols ? MSGL_ERR_SHAPE : MSGL_OK;
}

// The logits and their vocabulary.
inline int logits_of(const msgl_tensor &logits, int vocab) {
  return both(columns(logits, MSGL_F32, logits.cols), vocab <= 0 || vocab > logits.cols ? MSGL_ERR_SHAPE : MSGL_OK);
}

// Whether I holds Q, KV, D, page size that the kernels can take.
int check_heads(const msgl_op &op);
int check_caches(const msgl_op &op, const msgl_tensor &k, const msgl_tensor &v);

// Each checks an operation and launches its kernels.
int embed(Run &run, const msgl_op &op);
int rms_norm(Run &run, const msgl_op &op);
int act_mul(Run &run, const msgl_op &op);
int gather_rows(Run &run, const msgl_op &op);
int rope_store(Run &run, const msgl_op &op);
int attention(Run &run, const msgl_op &op);
int attention_fi(Run &run, const msgl_op &op);  // of an operation that is checked, with rows
int linear(Run &run, const msgl_op &op);
int moe(Run &run, const msgl_op &op);
int sample(Run &run, const msgl_op &op);
int adjust(Run &run, const msgl_op &op);
int mask(Run &run, const msgl_op &op);
int logprobs(Run &run, const msgl_op &op);
int all_gather(Run &run, const msgl_op &op);

}  // namespace msgl

#endif
