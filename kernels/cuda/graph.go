//go:build cuda || amd64

package cuda

// #include "msgl_cuda.h"
import "C"

import "unsafe"

// Graph is a submission that was captured, to be launched again and again. It may be
// in flight once at a time.
type Graph struct {
	g C.uint64_t
}

// Capture captures what Submit would put on the stream, without running it.
func (r *Run) Capture(ops unsafe.Pointer, n int) (*Graph, error) {
	var g Graph
	if code := C.msgl_cuda_capture(&g.g, &r.c, (*C.msgl_op)(ops), C.int(n)); code != C.MSGL_OK {
		return nil, r.err(code)
	}
	return &g, nil
}

// Launch puts the graph on a stream.
func (g *Graph) Launch(stream uintptr) error {
	return codeErr(C.msgl_cuda_launch(g.g, C.uint64_t(stream)))
}

// Free gives the graph up; it must not be in flight.
func (g *Graph) Free() { C.msgl_cuda_graph_free(g.g) }
