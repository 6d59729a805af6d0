// Package cpu holds the C kernels of the CPU device and thin wrappers around
// them. msgl.h is the boundary; the wrappers add nothing but Go types and errors.
//
// The kernels are compiled for several instruction sets and choose one when a
// pool is made. Floating-point arithmetic is exact IEEE: multiply-adds are fused
// where the source says so and nowhere else, so that results do not depend on
// the compiler (see vec.h).
package cpu

// The flags below come after CGO_CFLAGS, so they win over an -Ofast there. ISO C
// (c11, not gnu11) is what turns contraction off: cgo refuses -ffp-contract. Lines
// are all that -g1 keeps for a debugger, which makes it a third faster to compile.

// #cgo CFLAGS: -std=c11 -O3 -g1 -fno-fast-math
// #cgo CFLAGS: -Wall -Wextra -Werror -Wno-psabi -Wno-unknown-pragmas
// #cgo LDFLAGS: -lm -lpthread
// #include "msgl.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Panel is the number of rows (outputs) of a packed panel.
const Panel = 16

// MaxThreads bounds the size of a pool.
const MaxThreads = 1024

var codes = map[C.int]error{
	C.MSGL_ERR_MEMORY: errors.New("out of memory"),
	C.MSGL_ERR_THREAD: errors.New("a thread could not be started"),
	C.MSGL_ERR_KIND:   errors.New("unknown kind of operation"),
	C.MSGL_ERR_DTYPE:  errors.New("an operand's element type is not supported"),
	C.MSGL_ERR_SHAPE:  errors.New("an operand is missing or its shape does not fit"),
	C.MSGL_ERR_ISA:    errors.New("MINISGL_CPU_ISA names an instruction set that this machine lacks; use amx, avx512_bf16, avx512, avx2, on Arm neon_i8mm, neon_dot, or portable"),
	C.MSGL_ERR_INDEX:  errors.New("an index operand (ids, rows, slots, positions, pages) is out of range"),
}

func codeErr(code C.int) error {
	if code == C.MSGL_OK {
		return nil
	}
	if err, ok := codes[code]; ok {
		return err
	}
	return fmt.Errorf("code %d", int(code))
}

// OpError is the failure of one operation of a submission. The operations before
// it have run.
type OpError struct {
	Index int   // of the operation in its list
	Err   error // why
}

func (e *OpError) Error() string { return fmt.Sprintf("cpu kernels: operation %d: %v", e.Index, e.Err) }

func (e *OpError) Unwrap() error { return e.Err }

// Pool is a pool of threads that runs operations; the goroutine that submits is
// one of them. The others sleep when there is nothing to do.
type Pool struct {
	p      *C.msgl_pool
	failed C.int // Submit's out argument; here, so that Submit does not allocate
}

// NewPool starts a pool of 1 to MaxThreads threads.
func NewPool(threads int) (*Pool, error) {
	if threads < 1 || threads > MaxThreads {
		return nil, fmt.Errorf("cpu kernels: new pool: %d threads; want 1 to %d", threads, MaxThreads)
	}
	var p Pool
	if err := codeErr(C.msgl_pool_new(&p.p, C.int(threads))); err != nil {
		return nil, fmt.Errorf("cpu kernels: new pool of %d threads: %w", threads, err)
	}
	return &p, nil
}

// Submit runs n operations, laid out as msgl_op, in one call into C. One
// submission at a time. The error is an *OpError. To ns, unless it is nil, it adds
// the nanoseconds that each operation took.
func (p *Pool) Submit(ops unsafe.Pointer, n int, ns []int64) error {
	if n == 0 {
		return nil
	}
	if ns != nil && len(ns) < n {
		return fmt.Errorf("cpu kernels: submit: room for the times of %d of %d operations", len(ns), n)
	}
	code := C.msgl_submit(&p.failed, (*C.int64_t)(unsafe.SliceData(ns)), p.p, (*C.msgl_op)(ops), C.int(n))
	if code == C.MSGL_OK {
		return nil
	}
	return &OpError{Index: int(p.failed), Err: codeErr(code)}
}

// Probe measures what the machine can do with the pool's threads: bytes read from
// memory and float32 operations in a second, a multiply-add being two.
func (p *Pool) Probe() (bytesPerSecond, flopsPerSecond float64, err error) {
	var bytes, flops C.double
	if err := codeErr(C.msgl_probe(&bytes, &flops, p.p)); err != nil {
		return 0, 0, fmt.Errorf("cpu kernels: probe: %w", err)
	}
	return float64(bytes), float64(flops), nil
}

// Close stops the threads and frees the pool's memory. No submission may be running.
func (p *Pool) Close() {
	C.msgl_pool_free(p.p)
	p.p = nil
}

// Alloc returns n bytes of zeroed memory outside the Go heap, aligned to 64
// bytes, to be given back with Free(p, n).
func Alloc(n int64) (unsafe.Pointer, error) {
	if n <= 0 {
		return nil, fmt.Errorf("cpu kernels: alloc: %d bytes", n)
	}
	var p unsafe.Pointer
	if err := codeErr(C.msgl_alloc(&p, C.size_t(n))); err != nil {
		return nil, fmt.Errorf("cpu kernels: alloc %d bytes: %w", n, err)
	}
	return p, nil
}

// Populate has the system give n bytes of Alloc's memory, from p on, now rather than when they are
// first written. What they hold stays.
func Populate(p unsafe.Pointer, n int64) error { return codeErr(C.msgl_populate(p, C.size_t(n))) }

// Free gives back memory of Alloc.
func Free(p unsafe.Pointer, n int64) { C.msgl_free(p, C.size_t(n)) }

// PackedBytes returns the size of a packed weight of the given shape; dtype as in
// msgl_dtype.
func PackedBytes(rows, cols, dtype int) int64 {
	return int64(C.msgl_packed_bytes(C.int(rows), C.int(cols), C.int(dtype)))
}

// PackPanel stores rows, up to Panel rows of cols values one after the other, as
// the given panel of the packed weight at dst: float32 values, or the bits of
// bfloat16 values for a weight of bfloat16.
func PackPanel[T float32 | uint16](dst unsafe.Pointer, rows []T, cols, dtype, panel int) error {
	if cols <= 0 || len(rows) == 0 || len(rows)%cols != 0 {
		return fmt.Errorf("cpu kernels: pack panel %d: %d values in rows of %d", panel, len(rows), cols)
	}
	from := C.int(C.MSGL_F32)
	if unsafe.Sizeof(rows[0]) == 2 {
		from = C.MSGL_BF16
	}
	code := C.msgl_pack_panel(dst, unsafe.Pointer(unsafe.SliceData(rows)), from, C.int(len(rows)/cols), C.int(cols), C.int(dtype), C.int(panel))
	if err := codeErr(code); err != nil {
		return fmt.Errorf("cpu kernels: pack panel %d: %w", panel, err)
	}
	return nil
}

// PackQuant stores rows of a quantized type likewise: codes, and the scales and
// minima of their groups; a type without minima ignores those.
func PackQuant(dst unsafe.Pointer, codes []uint8, scales, minima []float32, cols, dtype, panel int) error {
	group := int(C.msgl_quant_group(C.int(dtype)))
	if cols <= 0 || len(codes) == 0 || len(codes)%cols != 0 || group == 0 || len(scales) != len(codes)/group || len(minima) != len(scales) {
		return fmt.Errorf("cpu kernels: pack panel %d of type %d: %d codes in rows of %d, %d scales, %d minima",
			panel, dtype, len(codes), cols, len(scales), len(minima))
	}
	code := C.msgl_pack_quant(dst, (*C.uint8_t)(unsafe.SliceData(codes)), (*C.float)(unsafe.SliceData(scales)),
		(*C.float)(unsafe.SliceData(minima)), C.int(len(codes)/cols), C.int(cols), C.int(dtype), C.int(panel))
	if err := codeErr(code); err != nil {
		return fmt.Errorf("cpu kernels: pack panel %d: %w", panel, err)
	}
	return nil
}

// ISA names the instruction set that a new pool uses: "amx", "avx512_bf16", "avx512",
// "avx2", on Arm "neon_i8mm", "neon_dot", or "portable".
func ISA() (string, error) {
	var name *C.char
	if err := codeErr(C.msgl_isa(&name)); err != nil {
		return "", fmt.Errorf("cpu kernels: %w", err)
	}
	return C.GoString(name), nil
}
