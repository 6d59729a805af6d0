// msgl_fi.h: the boundary of FlashInfer's attention, which is in a library of its own:
// scripts/cuda.sh flashinfer builds it, the host loads it when it is asked for.
//
// attention_fi.cu makes a task of an ATTENTION; msgl_fi_attend puts it on the stream and waits for
// nothing. Pointers and sizes only. What a task points to is the device's memory.
#ifndef MSGL_FI_H
#define MSGL_FI_H

#include <stdint.h>

enum {
  MSGL_FI_VERSION = 1,  // of this file: a library of another one is not for us
  MSGL_FI_TILE = 16,    // pairs of a tile
  MSGL_FI_LACKS = -1,   // not compiled for this size of head or type of cache
};

// Attention over paged caches. Pair p of a request, under one key/value head, is its row p / group and
// that row's query head p % group of that head, where group = heads / kv. Tile n has pairs 16n ... 16n + 15.
// Indices are i32. What depends on the batch is in memory, so that a task can be captured in a graph.
typedef struct {
  uint64_t stream;         // cudaStream_t
  uint64_t out;            // f32 [rows, heads * d], aligned to 8 bytes
  uint64_t q;              // [rows, heads * d], of the caches' type, aligned to 16 bytes
  uint64_t k, v;           // the caches: rows of kv * d, aligned to 16 bytes
  uint64_t first_rows;     // [requests + 1]: a request's first row, then the number of rows
  uint64_t lens;           // [requests]: a request's positions; its rows are the last of them
  uint64_t pages;          // each request's pages, one request after the other; all are pages of the caches
  uint64_t page_starts;    // [requests + 1]: where a request's pages begin, and where the last's end
  uint64_t tile_there;     // u8 [tiles]: 0: there is no such tile
  uint64_t tile_requests;  // [tiles]
  uint64_t tile_numbers;   // [tiles]: n, of the request's tiles
  uint64_t tile_chunks;    // [tiles]: zeros
  uint64_t chunk;          // one word: 1
  int32_t tiles, requests, heads, kv, d, page;
  int32_t row_elems;  // of a cache, from row to row
  int32_t dtype;      // of the caches: MSGL_BF16 or MSGL_F16
  int32_t window;     // 0: none
  float scale;
} msgl_fi_task;

#ifdef __cplusplus
extern "C" {
#endif

// MSGL_FI_VERSION of the library.
int msgl_fi_version(void);

// Returns 0, MSGL_FI_LACKS, or a CUDA error.
int msgl_fi_attend(const msgl_fi_task *task);
typedef int (*msgl_fi_attention)(const msgl_fi_task *task);

#ifdef __cplusplus
}
#endif

#endif
