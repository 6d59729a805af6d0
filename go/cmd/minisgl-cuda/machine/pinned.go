//go:build cuda

package machine

// #cgo LDFLAGS: -lcuda
// #include <cuda.h>
import "C"

import (
	"fmt"
	"unsafe"
)

// pin returns host memory that the GPU copies from while the host goes on; cu has no
// function for it, but one to free it.
func pin(n int) ([]byte, error) {
	var p unsafe.Pointer
	if code := C.cuMemAllocHost(&p, C.size_t(n)); code != C.CUDA_SUCCESS {
		return nil, fmt.Errorf("pinning %d bytes of host memory: CUDA error %d", n, int(code))
	}
	return unsafe.Slice((*byte)(p), n), nil
}
