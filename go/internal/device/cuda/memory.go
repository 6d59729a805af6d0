//go:build cuda || amd64

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/minisgl/minisgl/go/internal/ops"
)

const maxAlloc = 1 << 46

// block is an allocation.
type block struct {
	p uintptr
	n int64
}

// memory is the allocations of a machine, which live until free.
type memory struct {
	m      Machine
	mu     sync.RWMutex
	blocks []block // by address
}

func (m *memory) alloc(n int64) (block, error) {
	if n < 0 || n > maxAlloc {
		return block{}, fmt.Errorf("alloc: %d bytes; want 0 to %d", n, int64(maxAlloc))
	}
	p, err := m.m.Alloc(n)
	if err != nil {
		free, _ := m.m.FreeMemory()
		return block{}, fmt.Errorf("alloc: %d MiB, but %d MiB of the GPU's memory are free: %w; lower memory_ratio, num_page_override, max_extend_tokens or max_running_req", n>>20, free>>20, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := block{p, n}
	m.blocks = slices.Insert(m.blocks, m.above(p), b)
	return b, nil
}

// above returns the index of the first block that begins above p.
func (m *memory) above(p uintptr) int {
	i, found := slices.BinarySearchFunc(m.blocks, p, func(b block, p uintptr) int {
		switch {
		case b.p < p:
			return -1
		case b.p > p:
			return 1
		}
		return 0
	})
	if found {
		i++
	}
	return i
}

// check reports whether n bytes at a lie in one allocation.
func (m *memory) check(a ops.Addr, n int) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i := m.above(uintptr(a)) - 1
	if i < 0 {
		return fmt.Errorf("address %#x is in no allocation", uint64(a))
	}
	b := m.blocks[i]
	off := uint64(uintptr(a) - b.p)
	if off > uint64(b.n) || uint64(n) > uint64(b.n)-off {
		return fmt.Errorf("%d bytes at offset %d of an allocation of %d bytes", n, off, b.n)
	}
	return nil
}

func (m *memory) free() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, b := range m.blocks {
		errs = append(errs, m.m.Free(b.p))
	}
	m.blocks = nil
	return errors.Join(errs...)
}
