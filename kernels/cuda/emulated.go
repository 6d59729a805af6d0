//go:build !cuda && amd64

package cuda

// #include <stdlib.h>
// #include <string.h>
// #include "emu/emulated.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Order is the order in which the emulation runs the threads of a block. What a kernel
// computes must not depend on it; if it does, a barrier is missing.
type Order int

// The orders.
const (
	Forward  Order = 0
	Backward Order = 1
	Shuffled Order = 2
)

// emulation guards the emulation, of which a process has one, and holds the order in
// which it runs.
var (
	emulation sync.Mutex
	running   Order
)

// Supported reports why the processor can't run the emulation.
func Supported() error {
	if C.msgl_emu_supported() == 0 {
		return errors.New("the emulation of CUDA needs a processor with AVX2 and FMA")
	}
	return nil
}

// EmulatedAttention stands in for FlashInfer's, for heads of 64, 128 and 256.
func EmulatedAttention() Attention { return Attention(C.msgl_emu_attend) }

// Emulate runs f, which may submit, with the threads of a block in the given order.
func Emulate(order Order, f func() error) error {
	take(order)
	defer emulation.Unlock()
	return f()
}

func take(order Order) {
	emulation.Lock()
	running = order
	C.msgl_emu_set_order(C.int(order))
}

// Alloc returns n bytes of zeroed memory for the emulation, to be given back with
// Free. Each is an allocation of its own, so that the address sanitizer sees what lies outside.
func Alloc(n int64) (uintptr, error) {
	var p unsafe.Pointer
	if code := C.posix_memalign(&p, 64, C.size_t(max(n, 1))); code != 0 {
		return 0, fmt.Errorf("cuda kernels: alloc %d bytes: error %d", n, int(code))
	}
	C.memset(p, 0, C.size_t(max(n, 1)))
	return uintptr(p), nil
}

// Free gives back memory of Alloc.
func Free(p uintptr) { C.free(pointer(p)) }

// Bytes returns n bytes of memory of Alloc.
func Bytes(p uintptr, n int) []byte { return unsafe.Slice((*byte)(pointer(p)), n) }

// pointer turns an address outside the Go heap into a pointer.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
