// Package ref is the reference device: every operation as plain loops, the
// oracle that the other devices are tested against.
//
// It is written to be read and to be right. Sums are accumulated in float64 and
// rounded once, so its results are at least as exact as those of a device that
// accumulates in float32; expect agreement to about 1e-5 relative, not equal bits.
package ref

import (
	"errors"
	"fmt"
	"math"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/float8"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// maxInFlight is the number of lists that may be submitted and not waited for.
const maxInFlight = 4

// Device implements device.Device. Lists run within Submit.
type Device struct {
	mem  memory
	done []error // results of lists that nobody has waited for yet, oldest first
}

// New returns an empty device.
func New() *Device { return &Device{} }

// Name returns "ref".
func (d *Device) Name() string { return "ref" }

// Alloc returns n bytes of zeroed memory.
func (d *Device) Alloc(n int64) (ops.Addr, error) { return d.mem.alloc(n) }

// Write copies src to device memory.
func (d *Device) Write(dst ops.Addr, src []byte) error {
	b, err := d.mem.bytes(dst, int64(len(src)))
	if err != nil {
		return fmt.Errorf("ref: write: %w", err)
	}
	copy(b, src)
	return nil
}

// Read copies device memory to dst.
func (d *Device) Read(dst []byte, src ops.Addr) error {
	b, err := d.mem.bytes(src, int64(len(dst)))
	if err != nil {
		return fmt.Errorf("ref: read: %w", err)
	}
	copy(dst, b)
	return nil
}

// Load stores a weight as its rows, one after the other; a quantized one as the
// float32 values that its codes stand for, and one of F8 as the BF16 values.
func (d *Device) Load(w device.Weight) (ops.Tensor, error) {
	if err := w.Check(maxDim, maxDim); err != nil {
		return ops.Tensor{}, fmt.Errorf("ref: %w", err)
	}
	stored := w.DType
	if stored == ops.F8 {
		stored = ops.BF16
	}
	addr, err := d.mem.alloc(int64(w.Rows) * int64(w.Cols) * int64(stored.Size()))
	if err != nil {
		return ops.Tensor{}, err
	}
	t := ops.New(addr, w.Rows, w.Cols, stored)
	for r := range w.Rows {
		d.mem.view(t).setRow(r, values(w, r))
	}
	return t, nil
}

// values returns row r of a weight.
func values(w device.Weight, r int) []float32 {
	out := make([]float32, w.Cols)
	if q, ok := w.DType.Quant(); ok {
		row := device.MakeQuantRows(q, 1, w.Cols)
		w.Quant(row, r)
		for c := range out {
			out[c] = row.Value(q, c)
		}
		return out
	}
	if w.Float8 != nil {
		codes, scales := make([]uint8, w.Cols), make([]float32, w.Groups())
		w.Float8(codes, scales, r)
		for c, code := range codes {
			out[c] = float8.Float32(code) * scales[c/ops.F8Group]
		}
		return out
	}
	if w.BF16 == nil {
		w.Floats(out, r)
		return out
	}
	bits := make([]uint16, w.Cols)
	w.BF16(bits, r)
	for c, b := range bits {
		out[c] = math.Float32frombits(uint32(b) << 16)
	}
	return out
}

// Submit runs the list.
func (d *Device) Submit(l *ops.List) error {
	if len(d.done) == maxInFlight {
		return fmt.Errorf("ref: submit: %d lists are in flight; wait for one first", maxInFlight)
	}
	if err := l.Err(); err != nil {
		return fmt.Errorf("ref: submit: %w", err)
	}
	d.done = append(d.done, d.run(l))
	return nil
}

// Wait returns the error of the oldest submitted list.
func (d *Device) Wait() error {
	if len(d.done) == 0 {
		return errors.New("ref: wait: no list was submitted")
	}
	err := d.done[0]
	d.done = d.done[1:]
	return err
}

// Close frees all memory.
func (d *Device) Close() error {
	d.mem.free()
	return nil
}

func (d *Device) run(l *ops.List) error {
	for i, op := range l.Ops {
		if err := d.runOp(op); err != nil {
			return fmt.Errorf("ref: operation %d, %v: %w", i, op, err)
		}
	}
	return nil
}

// runOp runs one operation. The loops address tensors by row and column without
// checks of their own; whatever lies outside is a fault, caught here and only here.
func (d *Device) runOp(op ops.Op) (err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fault)
			if !ok {
				panic(r)
			}
			err = f
		}
	}()
	switch op.Kind {
	case ops.KindEmbed:
		d.mem.embed(op)
	case ops.KindRMSNorm:
		d.mem.rmsNorm(op)
	case ops.KindLinear:
		d.mem.linear(op)
	case ops.KindRopeStore:
		d.mem.ropeStore(op)
	case ops.KindAttention:
		d.mem.attention(op)
	case ops.KindActMul:
		d.mem.actMul(op)
	case ops.KindGatherRows:
		d.mem.gatherRows(op)
	case ops.KindSample:
		d.mem.sample(op)
	case ops.KindAdjust:
		d.mem.adjust(op)
	case ops.KindMask:
		d.mem.mask(op)
	case ops.KindLogprobs:
		d.mem.logprobs(op)
	case ops.KindMoE:
		d.mem.moe(op)
	default:
		return fmt.Errorf("unknown kind of operation %d", int32(op.Kind))
	}
	return nil
}
