package weights

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"os"
	"testing"
)

// TestDecodeGolden compares each type's decoding bit for bit with the gguf Python package's, NaNs as such.
func TestDecodeGolden(t *testing.T) {
	records := readGolden(t, "testdata/quants.bin.gz")
	for kind, format := range formats[:ggmlTypes] {
		t.Run(format.name, func(t *testing.T) {
			record, ok := records[format.ggml]
			if !ok {
				t.Fatalf("no golden record for ggml type %d", format.ggml)
			}
			row := Tensor{kind: Type(kind), shape: []int{len(record.want)}, data: record.raw}
			got := make([]float32, len(record.want))
			row.Row(got, 0)
			for i, want := range record.want {
				if math.IsNaN(float64(want)) && math.IsNaN(float64(got[i])) {
					continue
				}
				if math.Float32bits(got[i]) != math.Float32bits(want) {
					t.Fatalf("value %d is %v (%#x), want %v (%#x)", i, got[i], math.Float32bits(got[i]), want, math.Float32bits(want))
				}
			}
		})
	}
}

// golden has blocks and the values that they stand for, or that became them.
type golden struct {
	raw  []byte
	want []float32
}

// readGolden reads the records that scripts/golden/weights_quants.py or weights_quantize.py wrote, by ggml type.
func readGolden(t *testing.T, path string) map[uint32]golden {
	t.Helper()
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	records := make(map[uint32]golden)
	c := &cursor{data: text}
	for c.at < len(text) {
		id, values, size := c.uint32("id"), c.uint32("values"), c.uint32("size")
		record := golden{raw: c.bytes("blocks", uint64(size)), want: make([]float32, values)}
		for i := range record.want {
			record.want[i] = math.Float32frombits(c.uint32("value"))
		}
		records[id] = record
	}
	if c.err != nil {
		t.Fatal(c.err)
	}
	return records
}

func TestTensorRows(t *testing.T) {
	data := make([]byte, 0, 24)
	for i := range 6 {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	matrix := Tensor{name: "m", kind: F32, shape: []int{3, 2}, data: data}
	if matrix.Rows() != 3 || matrix.Cols() != 2 || matrix.Bytes() != 24 {
		t.Fatalf("matrix is %d by %d in %d bytes, want 3 by 2 in 24", matrix.Rows(), matrix.Cols(), matrix.Bytes())
	}
	dst := []float32{9, 9, 9}
	matrix.Row(dst, 2)
	if dst[0] != 4 || dst[1] != 5 || dst[2] != 9 {
		t.Fatalf("row 2 is %v, want [4 5] and the rest untouched", dst)
	}
	if vector := (Tensor{kind: F32, shape: []int{6}, data: data}); vector.Rows() != 1 || vector.Cols() != 6 {
		t.Fatalf("vector is %d by %d, want 1 by 6", vector.Rows(), vector.Cols())
	}
	if scalar := (Tensor{kind: F32, data: data[:4]}); scalar.Rows() != 1 || scalar.Cols() != 1 {
		t.Fatalf("scalar is %d by %d, want 1 by 1", scalar.Rows(), scalar.Cols())
	}
	if allocs := testing.AllocsPerRun(10, func() { matrix.Row(dst, 1) }); allocs != 0 {
		t.Fatalf("Row allocates %v times, want 0", allocs)
	}
	for _, row := range []int{-1, 3} {
		if !panics(func() { matrix.Row(dst, row) }) {
			t.Errorf("Row(%d) of 3 rows returned", row)
		}
	}
}

func panics(call func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	call()
	return false
}
