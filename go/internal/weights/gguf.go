package weights

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// The GGUF format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
const (
	ggufMagic        = "GGUF"
	defaultAlignment = 32
	maxAlignment     = 1 << 20
	maxDims          = 4
	maxNameBytes     = 1<<16 - 1
	maxMetadataBytes = 1 << 30
	minPairBytes     = 8 + 4 + 1         // an empty key, a kind, one byte
	minTensorBytes   = 8 + 4 + 8 + 4 + 8 // an empty name, one dimension, a type, an offset
)

// stored is a tensor as a file's header describes it, checked against the file.
type stored struct {
	name  string
	kind  Type
	shape []int // Hugging Face order
	start uint64
	data  []byte
}

// parseGGUF reads and checks the header of a GGUF file of version 2 or 3.
func parseGGUF(data []byte) (*Metadata, []stored, error) {
	c := &cursor{data: data}
	if err := checkVersion(c); err != nil {
		return nil, nil, err
	}
	numTensors := c.count("tensors", minTensorBytes)
	numPairs := c.count("metadata pairs", minPairBytes)
	if c.err != nil {
		return nil, nil, c.err
	}
	metadata, err := parseMetadata(c, uint64(numPairs))
	if err != nil {
		return nil, nil, err
	}
	var tensors []stored
	for i := range numTensors {
		tensor, err := parseTensor(c)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %d of %d: %w", i, numTensors, err)
		}
		tensors = append(tensors, tensor)
	}
	alignment, err := alignmentOf(metadata)
	if err != nil {
		return nil, nil, err
	}
	if err := placeTensors(data, tensors, uint64(c.at), alignment); err != nil {
		return nil, nil, err
	}
	return metadata, tensors, nil
}

func checkVersion(c *cursor) error {
	magic, version := string(c.bytes("the magic", 4)), c.uint32("the version")
	switch {
	case c.err != nil:
		return c.err
	case magic != ggufMagic:
		return fmt.Errorf("not a GGUF file: it begins with %q, not %q", magic, ggufMagic)
	case version == 2 || version == 3:
		return nil
	case bits.ReverseBytes32(version) < 1<<16:
		return fmt.Errorf("a big-endian GGUF file (version %d) is not supported: convert it to little-endian",
			bits.ReverseBytes32(version))
	}
	return fmt.Errorf("GGUF version %d is not supported, only 2 and 3: convert the model again", version)
}

func alignmentOf(metadata *Metadata) (uint64, error) {
	const key = "general.alignment"
	if !metadata.Has(key) {
		return defaultAlignment, nil
	}
	alignment, ok := metadata.Uint(key)
	if !ok || bits.OnesCount64(alignment) != 1 || alignment > maxAlignment {
		return 0, fmt.Errorf("%s is %d, not a power of two up to %d", key, alignment, maxAlignment)
	}
	return alignment, nil
}

// parseTensor reads one tensor's name, dimensions, type and offset from the start of the data section.
func parseTensor(c *cursor) (stored, error) {
	tensor := stored{name: string(c.text("a tensor's name", maxNameBytes))}
	dims := c.uint32("the number of dimensions")
	if c.err != nil {
		return stored{}, c.err
	}
	if dims < 1 || dims > maxDims {
		return stored{}, fmt.Errorf("%q has %d dimensions, not 1 to %d", tensor.name, dims, maxDims)
	}
	shape := make([]uint64, dims)
	for i := range shape {
		shape[len(shape)-1-i] = c.uint64("a dimension") // stored with the contiguous one first
	}
	id := c.uint32("a tensor's type")
	tensor.start = c.uint64("a tensor's offset")
	if c.err != nil {
		return stored{}, fmt.Errorf("%q: %w", tensor.name, c.err)
	}
	kind, err := typeFromGGML(id)
	if err != nil {
		return stored{}, fmt.Errorf("%q: %w", tensor.name, err)
	}
	tensor.kind = kind
	if tensor.shape, err = checkShape(shape, kind, uint64(len(c.data))); err != nil {
		return stored{}, fmt.Errorf("%q: %w", tensor.name, err)
	}
	return tensor, nil
}

// checkShape refuses shapes without values, with partial blocks or with more bytes than the file holds.
func checkShape(shape []uint64, kind Type, fileSize uint64) ([]int, error) {
	if slices.Contains(shape, 0) {
		return nil, fmt.Errorf("shape %v has no values", shape)
	}
	if block := uint64(formats[kind].blockSize); len(shape) > 0 && shape[len(shape)-1]%block != 0 {
		return nil, fmt.Errorf("shape %v of type %v: rows are not whole blocks of %d values", shape, kind, block)
	}
	if _, ok := kind.storage(shape, fileSize); !ok {
		return nil, fmt.Errorf("shape %v of type %v takes more than the file's %d bytes: it is cut short or damaged",
			shape, kind, fileSize)
	}
	out := make([]int, len(shape))
	for i, dim := range shape {
		out[i] = int(dim)
	}
	return out, nil
}

// size returns the bytes of a tensor whose shape was checked.
func (t *stored) size() uint64 {
	format := &formats[t.kind]
	values := uint64(1)
	for _, dim := range t.shape {
		values *= uint64(dim)
	}
	return values / uint64(format.blockSize) * uint64(format.blockBytes)
}

// placeTensors gives each tensor its bytes. The data section begins at the first aligned offset after the header.
func placeTensors(data []byte, tensors []stored, headerEnd, alignment uint64) error {
	base := (headerEnd + alignment - 1) / alignment * alignment
	slices.SortFunc(tensors, func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.name, b.name))
	})
	var end uint64
	for i := range tensors {
		t := &tensors[i]
		if t.start%alignment != 0 {
			return fmt.Errorf("tensor %q: offset %d is not a multiple of the alignment %d", t.name, t.start, alignment)
		}
		if i > 0 && t.start < end {
			return fmt.Errorf("tensor %q: offset %d lies inside tensor %q, which ends at %d",
				t.name, t.start, tensors[i-1].name, end)
		}
		size, available := t.size(), uint64(len(data))-min(base, uint64(len(data)))
		if t.start > available || size > available-t.start {
			return fmt.Errorf("tensor %q: needs %d bytes at offset %d of the data, but the file ends at offset %d "+
				"(%d bytes in all): it is cut short or damaged", t.name, size, t.start, available, len(data))
		}
		end = t.start + size
		t.data = data[base+t.start : base+end : base+end]
	}
	return nil
}
