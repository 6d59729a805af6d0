// Package device defines what the engine needs of a compute device. The
// implementations are in ref (pure Go, the oracle) and cpu (C kernels).
package device

import "github.com/minisgl/minisgl/go/internal/ops"

// Device holds memory and runs op lists. Alloc, Load and Close are for one
// goroutine; Write and Read may run while a list runs if they don't touch memory
// that the list uses.
type Device interface {
	// Name is what --device calls it: "cpu", "ref".
	Name() string

	// Alloc returns n bytes of zeroed memory, aligned to 64 bytes. It lives
	// until Close.
	Alloc(n int64) (ops.Addr, error)

	// Write copies src to device memory, Read copies device memory to dst.
	Write(dst ops.Addr, src []byte) error
	Read(dst []byte, src ops.Addr) error

	// Load stores a weight of the given shape as dt (ops.F32 or ops.BF16, rounded
	// to nearest even) in a layout of the device's own. fill writes row r, cols
	// values, to dst; it may be called from several goroutines at once, for rows
	// in any order, each once.
	Load(rows, cols int, dt ops.DType, fill func(dst []float32, r int)) (ops.Tensor, error)

	// Submit starts a list and returns; the list must stay unchanged until its
	// Wait. At most two lists may be in flight; they run in order.
	Submit(l *ops.List) error

	// Wait blocks until the oldest submitted list has run and returns its error.
	Wait() error

	// Close waits for what is in flight and frees all memory.
	Close() error
}
