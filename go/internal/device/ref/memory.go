package ref

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/minisgl/minisgl/go/internal/float16"
	"github.com/minisgl/minisgl/go/internal/float8"
	"github.com/minisgl/minisgl/go/internal/ops"
)

const (
	maxDim   = 1 << 30
	maxAlloc = 1 << 39
	// An address is (segment+1) << segShift | offset, so that 0 is no address and
	// one that runs out of its segment is noticed.
	segShift = 40
)

// memory is a list of segments, one per allocation.
type memory struct {
	mu   sync.RWMutex
	segs [][]byte
}

// fault is what an operation runs into: an address outside of memory, an operand
// that does not fit. It is panicked with and recovered in runOp.
type fault struct{ msg string }

func (f fault) Error() string { return f.msg }

func fail(format string, args ...any) { panic(fault{fmt.Sprintf(format, args...)}) }

func require(ok bool, format string, args ...any) {
	if !ok {
		fail(format, args...)
	}
}

func (m *memory) alloc(n int64) (ops.Addr, error) {
	if n < 0 || n > maxAlloc {
		return 0, fmt.Errorf("ref: alloc: %d bytes; want 0 to %d", n, int64(maxAlloc))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.segs = append(m.segs, make([]byte, n))
	return ops.Addr(len(m.segs)) << segShift, nil
}

// bytes returns the n bytes at a.
func (m *memory) bytes(a ops.Addr, n int64) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	seg, off := int(a>>segShift)-1, int64(a&(1<<segShift-1))
	if seg < 0 || seg >= len(m.segs) {
		return nil, fmt.Errorf("address %#x is in no allocation", uint64(a))
	}
	if size := int64(len(m.segs[seg])); n < 0 || off > size || n > size-off {
		return nil, fmt.Errorf("%d bytes at offset %d of an allocation of %d bytes", n, off, size)
	}
	return m.segs[seg][off : off+n], nil
}

func (m *memory) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.segs = nil
}

// view is a tensor whose memory has been found.
type view struct {
	ops.Tensor
	b []byte
}

// view finds a tensor's memory; a fault if any of it lies outside.
func (m *memory) view(t ops.Tensor) view {
	require(t.Valid(), "an operand is missing")
	require(t.Rows >= 0 && t.Cols >= 0 && (t.Rows <= 1 || t.Stride >= t.Cols), "operand %v with stride %d", t, t.Stride)
	n := int64(0)
	if t.Rows > 0 {
		n = (int64(t.Rows-1)*int64(t.Stride) + int64(t.Cols)) * int64(t.DType.Size())
	}
	b, err := m.bytes(t.Addr, n)
	if err != nil {
		fail("operand %v: %v", t, err)
	}
	return view{t, b}
}

// typed is view for an operand that must be of type dt and of the given shape.
func (m *memory) typed(t ops.Tensor, dt ops.DType, rows, cols int) view {
	require(t.DType == dt, "operand %v: element type is not supported, want %v", t, dt)
	require(int(t.Rows) == rows && int(t.Cols) == cols, "operand %v, want [%d,%d]", t, rows, cols)
	return m.view(t)
}

// cache is view for a key or value cache of h's heads.
func (m *memory) cache(t ops.Tensor, h heads) view {
	require(t.DType.Float() || t.DType == ops.I8 || t.DType == ops.F8, "cache %v: element type is not supported", t)
	cols := ops.CacheCols(t.DType, h.kv, h.dim)
	require(int(t.Cols) == cols, "cache %v, want %d columns", t, cols)
	return m.view(t)
}

// at returns where row r begins.
func (v view) at(r int) int {
	require(r >= 0 && r < int(v.Rows), "row %d of %v", r, v.Tensor)
	return r * int(v.Stride) * v.DType.Size()
}

// row returns a copy of row r as float32.
func (v view) row(r int) []float32 {
	out := make([]float32, v.Cols)
	at, size := v.at(r), v.DType.Size()
	for c := range out {
		b := v.b[at+c*size:]
		switch v.DType {
		case ops.BF16:
			out[c] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
		case ops.F16:
			out[c] = float16.Float32(binary.LittleEndian.Uint16(b))
		case ops.F8:
			out[c] = float8.Float32(b[0])
		default:
			out[c] = math.Float32frombits(binary.LittleEndian.Uint32(b))
		}
	}
	return out
}

// setRow stores row r, rounding to v's element type.
func (v view) setRow(r int, x []float32) {
	at, size := v.at(r), v.DType.Size()
	for c, f := range x {
		b := v.b[at+c*size:]
		switch v.DType {
		case ops.BF16:
			binary.LittleEndian.PutUint16(b, toBF16(f))
		case ops.F16:
			binary.LittleEndian.PutUint16(b, float16.Round(f))
		case ops.F8:
			b[0] = float8.Round(f)
		default:
			binary.LittleEndian.PutUint32(b, math.Float32bits(f))
		}
	}
}

// heads returns row r of a cache as float32.
func (v view) heads(r int, h heads) []float32 {
	if v.DType != ops.I8 {
		return v.row(r)
	}
	at, n := v.at(r), h.kv*h.dim
	out := make([]float32, n)
	for c := range out {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(v.b[at+n+4*(c/h.dim):]))
		out[c] = float32(int8(v.b[at+c])) * scale
	}
	return out
}

// setHeads stores row r of a cache.
func (v view) setHeads(r int, h heads, x []float32) {
	if v.DType != ops.I8 {
		v.setRow(r, x)
		return
	}
	at := v.at(r)
	for i := range h.kv {
		head, largest, inverse := h.of(x, i), float32(0), float32(0)
		for _, f := range head {
			largest = max(largest, float32(math.Abs(float64(f))))
		}
		if largest > 0 {
			inverse = 127 / largest
		}
		for c, f := range head {
			v.b[at+i*h.dim+c] = byte(int8(math.RoundToEven(float64(f * inverse))))
		}
		binary.LittleEndian.PutUint32(v.b[at+h.kv*h.dim+4*i:], math.Float32bits(largest/127))
	}
}

// ints returns a copy of row r of an I32 tensor.
func (v view) ints(r int) []int {
	out := make([]int, v.Cols)
	at := v.at(r)
	for c := range out {
		out[c] = int(int32(binary.LittleEndian.Uint32(v.b[at+4*c:])))
	}
	return out
}

func (v view) setInt(c, x int) {
	require(c >= 0 && c < int(v.Cols), "column %d of %v", c, v.Tensor)
	binary.LittleEndian.PutUint32(v.b[4*c:], uint32(int32(x)))
}

// toBF16 rounds to nearest, ties to even; a NaN stays a NaN.
func toBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}
