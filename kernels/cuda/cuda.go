//go:build cuda || amd64

// Package cuda holds the CUDA kernels and thin wrappers around them. msgl_cuda.h is
// the boundary; its operations are those of kernels/cpu.
//
// Without the build tag cuda, g++ compiles the kernels against emu/, which runs
// them on the CPU, thread by thread: that shows that they are right, not that
// they are fast. With the tag, the package links what `make cuda` has built with nvcc.
package cuda

// #cgo CXXFLAGS: -std=c++17 -O2 -fno-fast-math
// #cgo CXXFLAGS: -Wall -Wextra -Werror -Wno-unknown-pragmas
// #include "msgl_cuda.h"
import "C"

import (
	"embed"
	"errors"
	"fmt"
	"unsafe"

	"github.com/minisgl/minisgl/kernels/cpu"
)

// The sources that no build rule of Go's names: embedding them nowhere makes its
// build cache notice when they change.
//
//go:embed *.cu *.cuh emu
var _ embed.FS

// Panel is the number of rows (outputs) of a packed panel.
const Panel = 16

// Exchange is how a rank of a model exchanges with the others. The zero value: there is
// one rank.
type Exchange struct {
	Gather unsafe.Pointer // a C function, msgl_cuda_gather
	Rank   uint64         // what it knows the rank by
	Ranks  int
}

// Attention is FlashInfer's in the place of our own: a C function, msgl_fi_attend. nil: our own.
type Attention unsafe.Pointer

// Run is where and with what a list of operations runs.
type Run struct {
	c C.msgl_cuda_run
}

// NewRun describes a submission: a stream (0 for the emulation), scratch of so many bytes, a
// word for the status, both memory of the device that is in use until the operations have run,
// the exchange with other ranks, and the attention.
func NewRun(stream, scratch uintptr, scratchBytes int64, status uintptr, x Exchange, a Attention) *Run {
	return &Run{C.msgl_cuda_run{
		stream: C.uint64_t(stream), scratch: C.uint64_t(scratch), scratch_bytes: C.uint64_t(scratchBytes), status: C.uint64_t(status),
		exchange:  C.msgl_cuda_exchange{gather: C.msgl_cuda_gather(x.Gather), rank: C.uint64_t(x.Rank), ranks: C.int32_t(x.Ranks)},
		attention: C.msgl_fi_attention(a),
	}}
}

// ErrScratch says that nothing was submitted for lack of scratch.
type ErrScratch struct {
	Needed int64 // bytes
}

func (e *ErrScratch) Error() string {
	return fmt.Sprintf("cuda kernels: the operations need %d bytes of scratch", e.Needed)
}

// Submit puts n operations, laid out as msgl_op, on the stream, in one call into C. An
// operation that does not fit is a *cpu.OpError; those before it were submitted.
func (r *Run) Submit(ops unsafe.Pointer, n int) error {
	if n == 0 {
		return nil
	}
	code := C.msgl_cuda_submit(&r.c, (*C.msgl_op)(ops), C.int(n))
	switch {
	case code == C.MSGL_OK:
		return nil
	case code == C.MSGL_ERR_MEMORY && r.c.needed > r.c.scratch_bytes:
		return &ErrScratch{int64(r.c.needed)}
	}
	return &cpu.OpError{Index: int(r.c.failed), Err: r.err(code)}
}

// err returns what a code of a submission says.
func (r *Run) err(code C.int) error {
	if code != C.MSGL_OK && r.c.exchange_code != 0 {
		return fmt.Errorf("the exchange with the other ranks failed, code %d", int(r.c.exchange_code))
	}
	if code != C.MSGL_OK && r.c.attention_code == C.MSGL_FI_LACKS {
		return errors.New("FlashInfer was not compiled for this size of head")
	}
	if code != C.MSGL_OK && r.c.attention_code != 0 {
		return fmt.Errorf("FlashInfer's attention failed: CUDA error %d", int(r.c.attention_code))
	}
	return codeErr(code)
}

func codeErr(code C.int) error {
	if code == C.MSGL_OK {
		return nil
	}
	if code == C.MSGL_ERR_DEVICE {
		return errors.New(C.GoString(C.msgl_cuda_message()))
	}
	return cpu.CodeErr(int(code))
}

// StatusErr returns what a status word says: nil, or the *cpu.OpError of the first
// operation that failed; those behind it have not run.
func StatusErr(word int32) error {
	if word == 0 {
		return nil
	}
	var op C.int
	code := C.msgl_cuda_status(&op, C.int32_t(word))
	return &cpu.OpError{Index: int(op), Err: codeErr(code)}
}

// PackedBytes returns the size of a packed weight of the given shape; dtype as in
// msgl_dtype.
func PackedBytes(rows, cols, dtype int) int64 {
	return int64(C.msgl_cuda_weight_bytes(C.int(rows), C.int(cols), C.int(dtype)))
}

// PanelBytes returns the size of a panel of a packed weight.
func PanelBytes(cols, dtype int) int64 {
	return int64(C.msgl_cuda_panel_bytes(C.int(cols), C.int(dtype)))
}

// PackPanel packs rows, up to Panel rows of cols values one after the other, into a
// panel: float32 values, or the bits of bfloat16 values for a weight of bfloat16.
func PackPanel[T float32 | uint16](panel []byte, rows []T, cols, dtype int) error {
	if cols <= 0 || len(rows) == 0 || len(rows)%cols != 0 || int64(len(panel)) != PanelBytes(cols, dtype) {
		return fmt.Errorf("cuda kernels: pack %d values in rows of %d into %d bytes", len(rows), cols, len(panel))
	}
	from := C.int(C.MSGL_F32)
	if unsafe.Sizeof(rows[0]) == 2 {
		from = C.MSGL_BF16
	}
	code := C.msgl_cuda_pack_panel(unsafe.Pointer(unsafe.SliceData(panel)), unsafe.Pointer(unsafe.SliceData(rows)), from,
		C.int(len(rows)/cols), C.int(cols), C.int(dtype))
	if code != C.MSGL_OK {
		return fmt.Errorf("cuda kernels: pack panel: %w", codeErr(code))
	}
	return nil
}

// PackFloat8 packs rows of e4m3 likewise: their bits, of which none is a NaN, and a scale below
// 128 for every 64 columns of a row.
func PackFloat8(panel, codes []byte, scales []float32, cols int) error {
	if cols <= 0 || len(codes) == 0 || len(codes)%cols != 0 || int64(len(panel)) != PanelBytes(cols, int(C.MSGL_F8)) || len(scales) != len(codes)/cols*((cols+63)/64) {
		return fmt.Errorf("cuda kernels: pack %d values of e4m3 in rows of %d, %d scales into %d bytes", len(codes), cols, len(scales), len(panel))
	}
	code := C.msgl_cuda_pack_float8(unsafe.Pointer(unsafe.SliceData(panel)), (*C.uint8_t)(unsafe.SliceData(codes)), (*C.float)(unsafe.SliceData(scales)),
		C.int(len(codes)/cols), C.int(cols))
	if code != C.MSGL_OK {
		return fmt.Errorf("cuda kernels: pack panel: %w", codeErr(code))
	}
	return nil
}

// PackQuant packs rows of a quantized type likewise: codes, and the scales and
// minima of their groups; a type without minima ignores those.
func PackQuant(panel, codes []byte, scales, minima []float32, cols, dtype int) error {
	if cols <= 0 || len(codes) == 0 || len(codes)%cols != 0 || int64(len(panel)) != PanelBytes(cols, dtype) || len(scales) == 0 || len(minima) != len(scales) {
		return fmt.Errorf("cuda kernels: pack %d codes in rows of %d, %d scales, %d minima into %d bytes", len(codes), cols, len(scales), len(minima), len(panel))
	}
	code := C.msgl_cuda_pack_quant(unsafe.Pointer(unsafe.SliceData(panel)), (*C.uint8_t)(unsafe.SliceData(codes)), (*C.float)(unsafe.SliceData(scales)),
		(*C.float)(unsafe.SliceData(minima)), C.int(len(codes)/cols), C.int(cols), C.int(dtype))
	if code != C.MSGL_OK {
		return fmt.Errorf("cuda kernels: pack panel: %w", codeErr(code))
	}
	return nil
}
