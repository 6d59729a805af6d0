// msgl_cuda.h: the boundary of the CUDA kernels.
//
// The operations are msgl.h's, on memory of the device, and MSGL_ALL_GATHER. msgl_cuda_submit
// puts them on a stream, one call a list, and waits for nothing: whoever calls it owns
// the stream, the memory and the events. The same source, compiled by g++ against emu/,
// runs on the CPU.
//
// What depends on the content of memory (ids, slots, pages) is checked by the kernels
// themselves: the first operation that finds an index out of range says so in the
// status word, and the operations behind it do nothing.
#ifndef MSGL_CUDA_H
#define MSGL_CUDA_H

#include "../cpu/msgl.h"
#include "msgl_fi.h"

// ALL_GATHER  t: dst f32 [M, ranks * N], x f32 [M, N] whose rows are one after the other
//             every rank's dst gets the columns of each rank's x, in order of rank
enum { MSGL_ALL_GATHER = 10 };

#ifdef __cplusplus
extern "C" {
#endif

// How a rank exchanges with the others of its model: puts on the stream what brings
// `count` floats of each rank, in order of rank, to `all`. Returns 0, or a code of its own.
typedef int (*msgl_cuda_gather)(uint64_t rank, void *all, const void *own, uint64_t count, uint64_t stream);

typedef struct {
  msgl_cuda_gather gather;  // NULL: there is one rank
  uint64_t rank;            // what gather knows the rank by
  int32_t ranks;            // how many there are
  int32_t reserved;
} msgl_cuda_exchange;

// Beside msgl_dtype, for caches and weights: e4m3, which the CPU's kernels have not. In a cache, what is
// too large becomes 448. A weight has a scale for every 64 columns of a row; a value times its
// scale is rounded to bf16 and meets x as a weight of bf16 does.
enum { MSGL_F8 = 10 };

// A submission.
typedef struct {
  uint64_t stream;         // cudaStream_t
  uint64_t scratch;        // device memory that is free until the operations have run
  uint64_t scratch_bytes;
  uint64_t status;         // a word of device memory: 0 when all operations have run, else see msgl_cuda_status
  uint64_t needed;         // out: the scratch that the operations need
  msgl_cuda_exchange exchange;
  msgl_fi_attention attention;  // FlashInfer's, for caches of bf16 and f16; NULL: our own kernels
  int32_t failed;          // out: the operation that could not be submitted; those before it were
  int32_t exchange_code;   // out: if not 0, what exchange.gather returned
  int32_t attention_code;  // out: if not 0, what attention returned
} msgl_cuda_run;

// Submits ops[0..n). MSGL_ERR_MEMORY with needed > scratch_bytes: nothing was
// submitted, there has to be more scratch. MSGL_ERR_DEVICE: see msgl_cuda_message.
int msgl_cuda_submit(msgl_cuda_run *run, const msgl_op *ops, int n);

// Captures what msgl_cuda_submit would put on the stream, without running it, as a
// graph that can be launched again and again. The scratch and the status word become
// the graph's, so it may be in flight once at a time.
int msgl_cuda_capture(uint64_t *graph, msgl_cuda_run *run, const msgl_op *ops, int n);
int msgl_cuda_launch(uint64_t graph, uint64_t stream);
void msgl_cuda_graph_free(uint64_t graph);

// The code in a status word, and the operation that left it.
static inline int msgl_cuda_status(int *op, int32_t word) {
  *op = (word >> 8) - 1;
  return word & 255;
}

// What a device has to say about MSGL_ERR_DEVICE.
const char *msgl_cuda_message(void);

// Bytes of a weight of n rows and k columns, in the layout of pack.cc.
size_t msgl_cuda_weight_bytes(int n, int k, int dtype);

// Bytes of a panel of 16 rows, the unit in which weights are packed.
size_t msgl_cuda_panel_bytes(int k, int dtype);

// Packs m <= 16 rows of k values, in host memory, into a panel: f32 or, for bf16
// weights, bf16 bits. See msgl_pack_panel.
int msgl_cuda_pack_panel(void *panel, const void *rows, int from, int m, int k, int dtype);

// Packs rows of a quantized type likewise. See msgl_pack_quant.
int msgl_cuda_pack_quant(void *panel, const uint8_t *codes, const float *scales, const float *minima, int m, int k, int dtype);

// Packs rows of e4m3 likewise: their bits, no NaN among them, and [m, ceil(k / 64)] scales, which are below 128.
int msgl_cuda_pack_float8(void *panel, const uint8_t *codes, const float *scales, int m, int k);

#ifdef __cplusplus
}
#endif

#endif
