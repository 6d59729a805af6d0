package weights

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// The safetensors format: eight bytes of header length, a JSON header, then the tensors without gaps between them.
// https://huggingface.co/docs/safetensors
const (
	lengthBytes    = 8
	maxHeaderBytes = 100_000_000
	maxShapeDims   = 8
	maxTensorBytes = 1 << 48
)

var safetensorsTypes = map[string]Type{"F32": F32, "F16": F16, "BF16": BF16, "I8": I8, "U8": U8, "F8_E4M3": F8}

// entry is one tensor in a safetensors header.
type entry struct {
	DType   string   `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

// parseSafetensors reads and checks the header of a safetensors file. The tensors come in the order of their bytes.
func parseSafetensors(data []byte) ([]stored, error) {
	c := &cursor{data: data}
	size := c.uint64("the header's length")
	if c.err == nil && size > maxHeaderBytes {
		return nil, fmt.Errorf("header of %d bytes is longer than the %d allowed: not a safetensors file, or damaged",
			size, maxHeaderBytes)
	}
	header := c.bytes("the header", size)
	if c.err != nil {
		return nil, c.err
	}
	tensors, err := parseEntries(header, uint64(len(data)-c.at))
	if err != nil {
		return nil, err
	}
	return tensors, placeEntries(data, tensors, uint64(c.at))
}

// parseEntries reads the header's JSON object, whose keys are tensor names but for one.
func parseEntries(header []byte, dataSize uint64) ([]stored, error) {
	d := json.NewDecoder(bytes.NewReader(header))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, fmt.Errorf("header of %d bytes is not a JSON object: the file is damaged", len(header))
	}
	seen := make(map[string]bool)
	var tensors []stored
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		name, _ := token.(string)
		if seen[name] {
			return nil, fmt.Errorf("tensor %q stands twice in the header", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			var ignored map[string]string
			if err := d.Decode(&ignored); err != nil {
				return nil, fmt.Errorf("header's __metadata__: %w", err)
			}
			continue
		}
		tensor, err := parseEntry(d, name, dataSize)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors = append(tensors, tensor)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("header: something follows its JSON object")
	}
	return tensors, nil
}

func parseEntry(d *json.Decoder, name string, dataSize uint64) (stored, error) {
	var e entry
	if err := d.Decode(&e); err != nil {
		return stored{}, err
	}
	kind, ok := safetensorsTypes[e.DType]
	if !ok {
		return stored{}, fmt.Errorf("dtype %q is not supported, only F32, F16 and BF16, and I8, U8 and F8_E4M3 of a quantized model", e.DType)
	}
	if len(e.Shape) > maxShapeDims || len(e.Offsets) != 2 || e.Offsets[0] > e.Offsets[1] {
		return stored{}, fmt.Errorf("shape %v and data_offsets %v are not a tensor's", e.Shape, e.Offsets)
	}
	if slices.Contains(e.Shape, 0) {
		return stored{}, fmt.Errorf("shape %v has no values", e.Shape)
	}
	size, actual := uint64(0), e.Offsets[1]-e.Offsets[0]
	if size, ok = kind.storage(e.Shape, maxTensorBytes); !ok || size != actual {
		return stored{}, fmt.Errorf("shape %v of %v takes %d bytes, but data_offsets %v hold %d",
			e.Shape, kind, size, e.Offsets, actual)
	}
	if e.Offsets[1] > dataSize {
		return stored{}, fmt.Errorf("data_offsets %v pass the end of the data (%d bytes, %d too few): "+
			"the file is cut short or damaged", e.Offsets, dataSize, e.Offsets[1]-dataSize)
	}
	shape, err := checkShape(e.Shape, kind, dataSize)
	return stored{name: name, kind: kind, shape: shape, start: e.Offsets[0]}, err
}

// placeEntries gives each tensor its bytes. The format allows neither overlaps nor gaps.
func placeEntries(data []byte, tensors []stored, base uint64) error {
	slices.SortFunc(tensors, func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.name, b.name))
	})
	var end uint64
	for i := range tensors {
		t := &tensors[i]
		if t.start < end {
			return fmt.Errorf("tensor %q: begins at byte %d of the data, inside tensor %q, which ends at %d",
				t.name, t.start, tensors[i-1].name, end)
		}
		if t.start > end {
			return fmt.Errorf("tensor %q: begins at byte %d of the data, but the tensors before it end at %d", t.name, t.start, end)
		}
		end = t.start + t.size()
		t.data = data[base+t.start : base+end : base+end]
	}
	if total := uint64(len(data)) - base; end != total {
		return fmt.Errorf("tensors take %d bytes, but the data has %d: the file is damaged", end, total)
	}
	return nil
}
