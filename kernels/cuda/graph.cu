// graph.cu: submissions that are recorded once and launched many times. The
// emulation keeps the operations and submits them anew.
#include <stdlib.h>

#include "check.h"

using namespace msgl;

#if defined(__CUDACC__)

int msgl_cuda_capture(uint64_t *graph, msgl_cuda_run *run, const msgl_op *ops, int n) {
  cudaStream_t stream = (cudaStream_t)(uintptr_t)run->stream;
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return MSGL_ERR_DEVICE;
  int code = msgl_cuda_submit(run, ops, n);
  bool ended = cudaStreamEndCapture(stream, &captured) == cudaSuccess;
  if (code == MSGL_OK && !(ended && cudaGraphInstantiate(&executable, captured, 0) == cudaSuccess)) code = MSGL_ERR_DEVICE;
  if (captured) cudaGraphDestroy(captured);
  *graph = (uint64_t)(uintptr_t)executable;
  return code;
}

int msgl_cuda_launch(uint64_t graph, uint64_t stream) {
  cudaError_t code = cudaGraphLaunch((cudaGraphExec_t)(uintptr_t)graph, (cudaStream_t)(uintptr_t)stream);
  return code == cudaSuccess ? MSGL_OK : MSGL_ERR_DEVICE;
}

void msgl_cuda_graph_free(uint64_t graph) { cudaGraphExecDestroy((cudaGraphExec_t)(uintptr_t)graph); }

#else

namespace {

struct Graph {
  msgl_cuda_run run;
  int n;
  msgl_op *ops;
};

}  // namespace

int msgl_cuda_capture(uint64_t *graph, msgl_cuda_run *run, const msgl_op *ops, int n) {
  Graph *g = (Graph *)malloc(sizeof *g);
  msgl_op *copy = (msgl_op *)malloc((size_t)n * sizeof *copy);
  *graph = (uint64_t)(uintptr_t)g;
  if (!g || !copy) {
    free(g);
    free(copy);
    return MSGL_ERR_MEMORY;
  }
  memcpy(copy, ops, (size_t)n * sizeof *copy);
  *g = {*run, n, copy};
  return MSGL_OK;
}

int msgl_cuda_launch(uint64_t graph, uint64_t) {
  Graph *g = (Graph *)(uintptr_t)graph;
  return msgl_cuda_submit(&g->run, g->ops, g->n);
}

void msgl_cuda_graph_free(uint64_t graph) {
  Graph *g = (Graph *)(uintptr_t)graph;
  free(g->ops);
  free(g);
}

#endif
