//go:build cuda && !cuda_shared

package cuda

// `make cuda` puts the two libraries there.

// #cgo LDFLAGS: -L${SRCDIR}/../../build/lib -lmsgl_cuda -lcudart_static -lstdc++ -lpthread -ldl -lrt
import "C"
