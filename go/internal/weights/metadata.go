package weights

import (
	"fmt"
	"math"
	"slices"
)

// kind is the type of a GGUF metadata value.
type kind uint32

const (
	kindUint8 kind = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// kindSizes holds the bytes of each kind of fixed size.
var kindSizes = map[kind]int{
	kindUint8: 1, kindInt8: 1, kindUint16: 2, kindInt16: 2, kindUint32: 4, kindInt32: 4, kindFloat32: 4, kindBool: 1,
	kindUint64: 8, kindInt64: 8, kindFloat64: 8,
}

// value locates one metadata value in the text of a Metadata. A scalar is an array of one.
type value struct {
	kind       kind // of an array: of its elements
	array      bool
	count      int
	start, end int
}

// Metadata holds the key/value pairs of a GGUF file. It stays valid after its Checkpoint is closed. Its methods report
// false when the key is absent or holds another kind of value. Strings share memory with the Metadata.
type Metadata struct {
	text   string // the file's key/value section
	values map[string]value
}

// Keys returns all keys, sorted.
func (m *Metadata) Keys() []string {
	keys := make([]string, 0, len(m.values))
	for key := range m.values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Has reports whether the key is present, with any kind of value.
func (m *Metadata) Has(key string) bool {
	_, ok := m.values[key]
	return ok
}

// String returns a string value.
func (m *Metadata) String(key string) (string, bool) {
	v, ok := m.values[key]
	if !ok || v.array || v.kind != kindString {
		return "", false
	}
	return m.text[v.start+8 : v.end], true
}

// Strings returns an array of strings in one allocation.
func (m *Metadata) Strings(key string) ([]string, bool) {
	v, ok := m.values[key]
	if !ok || !v.array || v.kind != kindString {
		return nil, false
	}
	out, at := make([]string, v.count), v.start
	for i := range out {
		size := int(little(m.text[at : at+8]))
		out[i] = m.text[at+8 : at+8+size]
		at += 8 + size
	}
	return out, true
}

// Bool returns a boolean value.
func (m *Metadata) Bool(key string) (value, ok bool) {
	v, ok := m.values[key]
	if !ok || v.array || v.kind != kindBool {
		return false, false
	}
	return m.text[v.start] == 1, true
}

// Bools returns an array of booleans.
func (m *Metadata) Bools(key string) ([]bool, bool) {
	return numbers(m, key, func(k kind, raw string) (bool, bool) { return raw == "\x01", k == kindBool })
}

// Uint returns a value of any integer kind that isn't negative.
func (m *Metadata) Uint(key string) (uint64, bool) {
	v, ok := m.values[key]
	if !ok || v.array {
		return 0, false
	}
	if v.kind == kindUint64 {
		return little(m.text[v.start:v.end]), true
	}
	n, ok := integer(v.kind, m.text[v.start:v.end])
	return uint64(n), ok && n >= 0
}

// Int returns a value of any integer kind that an int holds.
func (m *Metadata) Int(key string) (int, bool) {
	v, ok := m.values[key]
	if !ok || v.array {
		return 0, false
	}
	return integer(v.kind, m.text[v.start:v.end])
}

// Ints returns an array of any integer kind whose values ints hold.
func (m *Metadata) Ints(key string) ([]int, bool) { return numbers(m, key, integer) }

// Float returns a float32 or float64 value.
func (m *Metadata) Float(key string) (float64, bool) {
	v, ok := m.values[key]
	if !ok || v.array {
		return 0, false
	}
	return floating(v.kind, m.text[v.start:v.end])
}

// Floats returns an array of float32 or float64 values.
func (m *Metadata) Floats(key string) ([]float64, bool) { return numbers(m, key, floating) }

func numbers[T any](m *Metadata, key string, convert func(kind, string) (T, bool)) ([]T, bool) {
	v, ok := m.values[key]
	if !ok || !v.array || kindSizes[v.kind] == 0 {
		return nil, false
	}
	out, size := make([]T, v.count), kindSizes[v.kind]
	for i := range out {
		at := v.start + i*size
		if out[i], ok = convert(v.kind, m.text[at:at+size]); !ok {
			return nil, false
		}
	}
	return out, true
}

// little reads an unsigned little-endian number of up to eight bytes.
func little(raw string) uint64 {
	var n uint64
	for i := len(raw) - 1; i >= 0; i-- {
		n = n<<8 | uint64(raw[i])
	}
	return n
}

func integer(k kind, raw string) (int, bool) {
	n := little(raw)
	switch k {
	case kindUint8, kindUint16, kindUint32:
		return int(n), true
	case kindUint64:
		return int(n), n <= math.MaxInt
	case kindInt8:
		return int(int8(n)), true
	case kindInt16:
		return int(int16(n)), true
	case kindInt32:
		return int(int32(n)), true
	case kindInt64:
		return int(n), true
	}
	return 0, false
}

func floating(k kind, raw string) (float64, bool) {
	switch k {
	case kindFloat32:
		return float64(math.Float32frombits(uint32(little(raw)))), true
	case kindFloat64:
		return math.Float64frombits(little(raw)), true
	}
	return 0, false
}

// parseMetadata reads count key/value pairs at the cursor.
func parseMetadata(c *cursor, count uint64) (*Metadata, error) {
	start := c.at
	m := &Metadata{values: make(map[string]value)}
	for i := range count {
		key := string(c.text("a metadata key", maxNameBytes))
		if c.err != nil {
			return nil, fmt.Errorf("metadata pair %d of %d: %w", i, count, c.err)
		}
		if m.Has(key) {
			return nil, fmt.Errorf("metadata key %q stands twice", key)
		}
		v := parseValue(c)
		if c.err != nil {
			return nil, fmt.Errorf("metadata key %q: %w", key, c.err)
		}
		v.start, v.end = v.start-start, v.end-start
		m.values[key] = v
	}
	if size := c.at - start; size > maxMetadataBytes {
		return nil, fmt.Errorf("metadata takes %d bytes, more than the %d allowed", size, maxMetadataBytes)
	}
	m.text = string(c.data[start:c.at])
	return m, nil
}

// parseValue walks over one value, leaving failures in c.err.
func parseValue(c *cursor) value {
	v := value{kind: kind(c.uint32("a value's kind")), count: 1}
	if v.kind == kindArray {
		v.array = true
		v.kind = kind(c.uint32("an array's kind"))
		v.count = c.count("array elements", max(kindSizes[v.kind], 1))
	}
	v.start = c.at
	size, fixed := kindSizes[v.kind]
	switch {
	case c.err != nil:
	case v.kind == kindString:
		for range v.count {
			c.text("a string", len(c.data))
		}
	case fixed:
		raw := c.bytes("a value", uint64(v.count*size))
		if v.kind == kindBool {
			c.checkBools(raw)
		}
	case v.kind == kindArray:
		c.fail("arrays of arrays are not supported")
	default:
		c.fail("unknown kind %d of value", v.kind)
	}
	v.end = c.at
	return v
}
