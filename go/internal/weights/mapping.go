package weights

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pointerPrefix begins the text that stands for a file which Git LFS has not fetched.
const pointerPrefix = "version https://git-lfs"

// mapping is a file mapped read-only into memory.
type mapping struct {
	path string
	data []byte
}

// openMapping maps the file at path. The file must not shrink while it is mapped.
func openMapping(path string) (*mapping, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%v)", info.Mode().Type())
	}
	if info.Size() == 0 {
		return nil, errors.New("the file is empty: fetch it again")
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", info.Size(), err)
	}
	if bytes.HasPrefix(data, []byte(pointerPrefix)) {
		return nil, errors.Join(pointerError(len(data)), unix.Munmap(data))
	}
	return &mapping{path: path, data: data}, nil
}

// within reports whether part is a part of whole.
func within(part, whole []byte) bool {
	if len(part) == 0 || len(whole) == 0 {
		return false
	}
	first, start := uintptr(unsafe.Pointer(&part[0])), uintptr(unsafe.Pointer(&whole[0]))
	return first >= start && first+uintptr(len(part)) <= start+uintptr(len(whole))
}

// release gives back the whole pages of a part of the mapping; reading it again fetches them anew.
func (m *mapping) release(part []byte) {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(&m.data[0]))
	first := uintptr(unsafe.Pointer(&part[0])) - start
	end := (first + uintptr(len(part))) / page * page
	if first = (first + page - 1) / page * page; first < end {
		_ = unix.Madvise(m.data[first:end], unix.MADV_DONTNEED) // advice: nothing depends on it
	}
}

// pointerError says that a file holds only a Git LFS pointer.
func pointerError(size int) error {
	return fmt.Errorf("this is a Git LFS pointer of %d bytes, not the file itself: run `git lfs pull` in its repository", size)
}

// Close unmaps the file. A second call does nothing.
func (m *mapping) Close() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmap %s: %w", m.path, err)
	}
	return nil
}
