package weights

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// split quantizes a row and returns a tensor of it, codes and scales apart.
func split(t *testing.T, row []float32, bits int) Tensor {
	t.Helper()
	groups := len(row) / groupSize
	tensor := Tensor{kind: Q8_0, shape: []int{1, len(row)}, data: make([]byte, groups*encoders[bits].size), scales: make([]byte, groups*scaleBytes)}
	if bits == 4 {
		tensor.kind = Q4_0
	}
	if err := quantizeRow(tensor.data, tensor.scales, row, bits); err != nil {
		t.Fatal(err)
	}
	return tensor
}

// blocks puts codes and scales together as ggml does.
func blocks(t Tensor) []byte {
	var out []byte
	size := len(t.data) * scaleBytes / len(t.scales)
	for codes := range slices.Chunk(t.data, size) {
		g := len(out) / (size + scaleBytes)
		out = append(append(out, t.scales[g*scaleBytes:][:scaleBytes]...), codes...)
	}
	return out
}

// TestEncodeGolden compares codes, scales and the values that they stand for bit for bit with those of the gguf Python
// package.
func TestEncodeGolden(t *testing.T) {
	records := readGolden(t, "testdata/quantize.bin.gz")
	for bits, kind := range map[int]Type{8: Q8_0, 4: Q4_0} {
		t.Run(kind.String(), func(t *testing.T) {
			record := records[formats[kind].ggml]
			if len(record.want) < 100*groupSize {
				t.Fatalf("golden record of %d values", len(record.want))
			}
			apart := split(t, record.want, bits)
			size := formats[kind].blockBytes
			for g, want := range slices.Collect(slices.Chunk(record.raw, size)) {
				if got := blocks(apart)[g*size:][:size]; !bytes.Equal(got, want) {
					t.Errorf("group %d %v:\n got %v\nwant %v", g, record.want[g*groupSize:][:groupSize], got, want)
				}
			}
			got, want := make([]float32, len(record.want)), make([]float32, len(record.want))
			apart.Row(got, 0)
			Tensor{kind: kind, shape: apart.shape, data: record.raw}.Row(want, 0)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("value %d is %v, want %v", i, got[i], want[i])
				}
			}
		})
	}
}

// TestEncodeError: a value moves by half a step at most, and by what the rounding of the scale makes of it; of 4 bits,
// the end that has no code of its own is one step away.
func TestEncodeError(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		values := rapid.SliceOfN(rapid.Float32Range(-100, 100), groupSize, groupSize).Draw(r, "values")
		for i := range values {
			if math.Abs(float64(values[i])) < 1e-2 {
				values[i] = 0.5 // no scale is a subnormal float16
			}
		}
		largest := max(slices.Max(values), -slices.Min(values))
		for bits, bound := range map[int]float32{8: 0.501 / 127, 4: 1.001 / 8} {
			if bits == 8 {
				bound += 0x1p-11
			} else {
				bound += 0x1p-10
			}
			got := make([]float32, groupSize)
			split(t, values, bits).Row(got, 0)
			for i, x := range values {
				if d := math.Abs(float64(x - got[i])); d > float64(bound*largest) {
					r.Fatalf("%d bits: %v becomes %v, %v away with a largest of %v", bits, x, got[i], d, largest)
				}
			}
		}
	})
}

func TestQuantizeRowRefused(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, test := range []struct {
		value float32
		bits  int
		want  string
	}{
		{float32(math.NaN()), 8, "value 40 is NaN"},
		{inf, 4, "value 40 is +Inf"},
		{-inf, 8, "value 40 is -Inf"},
		{9e6, 8, "values 32 to 63 have the scale 70866.14"},
		{6e5, 4, "values 32 to 63 have the scale -75000"},
	} {
		row := make([]float32, 2*groupSize)
		row[40] = test.value
		err := quantizeRow(make([]byte, 64), make([]byte, 4), row, test.bits)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want one with %q", test.value, err, test.want)
		}
	}
}
