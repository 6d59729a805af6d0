//go:build cuda && cuda_shared

package cuda

// For a module of Python, which finds the library beside itself. NVIDIA's runtime has too much memory
// of its own for each thread to be part of a library of Go's that is loaded into a running process.

// #cgo LDFLAGS: -L${SRCDIR}/../../build/lib/shared -lmsgl_cuda -lstdc++ -Wl,-rpath,$ORIGIN
import "C"
