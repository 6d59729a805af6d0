package cpu

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cpu"
)

const (
	alignment = 64
	slabBytes = 32 << 20
	maxAlloc  = 1 << 46
)

// block is an allocation, or a slab that allocations are cut from.
type block struct {
	p unsafe.Pointer // outside the Go heap
	n int64
}

func (b block) addr() ops.Addr { return ops.Addr(uintptr(b.p)) }

// memory hands out memory that lives until free. Small allocations share slabs,
// because the system gives memory out in huge pages.
type memory struct {
	mu     sync.RWMutex
	slabs  []block
	rest   block   // what is left of the newest slab
	blocks []block // by address
}

func (m *memory) alloc(n int64) (block, error) {
	if n < 0 || n > maxAlloc {
		return block{}, fmt.Errorf("cpu: alloc: %d bytes; want 0 to %d", n, int64(maxAlloc))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	size := max(1, (n+alignment-1)/alignment) * alignment
	if size > m.rest.n {
		slab, err := m.newSlab(max(size, slabBytes))
		if err != nil {
			return block{}, err
		}
		if slab.n-size < m.rest.n { // the old slab has more left
			return m.insert(block{slab.p, n}), nil
		}
		m.rest = slab
	}
	b := block{m.rest.p, n}
	m.rest = block{unsafe.Add(m.rest.p, size), m.rest.n - size}
	return m.insert(b), nil
}

func (m *memory) newSlab(n int64) (block, error) {
	p, err := kernels.Alloc(n)
	if err != nil {
		return block{}, fmt.Errorf("cpu: %w", err)
	}
	m.slabs = append(m.slabs, block{p, n})
	return block{p, n}, nil
}

func (m *memory) insert(b block) block {
	i, _ := m.search(b.addr())
	m.blocks = slices.Insert(m.blocks, i, b)
	return b
}

// search returns the index of the first block at a or above it.
func (m *memory) search(a ops.Addr) (int, bool) {
	return slices.BinarySearchFunc(m.blocks, a, func(b block, a ops.Addr) int {
		switch at := b.addr(); {
		case at < a:
			return -1
		case at > a:
			return 1
		}
		return 0
	})
}

// bytes returns the n bytes at a, which must lie in one allocation.
func (m *memory) bytes(a ops.Addr, n int) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, exact := m.search(a)
	if !exact {
		i--
	}
	if i < 0 {
		return nil, fmt.Errorf("address %#x is in no allocation", uint64(a))
	}
	b := m.blocks[i]
	off := uint64(a - b.addr())
	if off > uint64(b.n) || uint64(n) > uint64(b.n)-off {
		return nil, fmt.Errorf("%d bytes at offset %d of an allocation of %d bytes", n, off, b.n)
	}
	return unsafe.Slice((*byte)(unsafe.Add(b.p, off)), n), nil
}

func (m *memory) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.slabs {
		kernels.Free(s.p, s.n)
	}
	m.slabs, m.blocks, m.rest = nil, nil, block{}
}

// Alloc returns n bytes of zeroed memory, aligned to 64 bytes.
func (d *Device) Alloc(n int64) (ops.Addr, error) {
	b, err := d.mem.alloc(n)
	if err != nil {
		return 0, err
	}
	return b.addr(), nil
}

// Populate has the system give n bytes of memory, from a on, before they are first written.
func (d *Device) Populate(a ops.Addr, n int64) error {
	b, err := d.mem.bytes(a, int(n))
	if err != nil || n == 0 {
		return err
	}
	return kernels.Populate(unsafe.Pointer(&b[0]), n)
}

// Write copies src to device memory.
func (d *Device) Write(dst ops.Addr, src []byte) error {
	b, err := d.mem.bytes(dst, len(src))
	if err != nil {
		return fmt.Errorf("cpu: write: %w", err)
	}
	copy(b, src)
	return nil
}

// Read copies device memory to dst.
func (d *Device) Read(dst []byte, src ops.Addr) error {
	b, err := d.mem.bytes(src, len(dst))
	if err != nil {
		return fmt.Errorf("cpu: read: %w", err)
	}
	copy(dst, b)
	return nil
}
