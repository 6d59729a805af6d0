package weights

import (
	"encoding/binary"
	"fmt"
)

// cursor reads a header front to back. After a failure, err is set and every read returns zero.
type cursor struct {
	data []byte
	at   int
	err  error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// bytes returns the next size bytes, without a copy.
func (c *cursor) bytes(what string, size uint64) []byte {
	if left := uint64(len(c.data) - c.at); c.err == nil && size > left {
		c.fail("%s of %d bytes at offset %d passes the end of the file (%d bytes): it is cut short or damaged",
			what, size, c.at, len(c.data))
	}
	if c.err != nil {
		return nil
	}
	start := c.at
	c.at += int(size)
	return c.data[start:c.at:c.at]
}

func (c *cursor) uint32(what string) uint32 {
	if raw := c.bytes(what, 4); raw != nil {
		return binary.LittleEndian.Uint32(raw)
	}
	return 0
}

func (c *cursor) uint64(what string) uint64 {
	if raw := c.bytes(what, 8); raw != nil {
		return binary.LittleEndian.Uint64(raw)
	}
	return 0
}

// count reads a number of things that take at least size bytes each in the rest of the file.
func (c *cursor) count(what string, size int) int {
	n := c.uint64("a count of " + what)
	if left := uint64(len(c.data) - c.at); c.err == nil && n > left/uint64(size) {
		c.fail("%d %s don't fit in the %d bytes that follow: the file is cut short or damaged", n, what, left)
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

// text reads a string of at most limit bytes with its length before it, without a copy.
func (c *cursor) text(what string, limit int) []byte {
	size := c.uint64("the length of " + what)
	if c.err == nil && size > uint64(limit) {
		c.fail("%s of %d bytes is longer than the %d allowed", what, size, limit)
	}
	return c.bytes(what, size)
}

func (c *cursor) checkBools(raw []byte) {
	for _, b := range raw {
		if b > 1 {
			c.fail("a boolean holds %d, neither 0 nor 1", b)
			return
		}
	}
}
