package weights

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// safetensorsFile lays out a header text and data bytes as a safetensors file.
func safetensorsFile(header string, data int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, data)...)
}

func tensorEntry(name, dtype string, shape, offsets string) string {
	return fmt.Sprintf(`%q:{"dtype":%q,"shape":[%s],"data_offsets":[%s]}`, name, dtype, shape, offsets)
}

func TestSafetensorsAccepted(t *testing.T) {
	header := `{"__metadata__":{"format":"pt"},` + tensorEntry("b", "BF16", "2,3", "16,28") + "," +
		tensorEntry("a", "F32", "4", "0,16") + "," + tensorEntry("s", "F16", "", "28,30") + "}   "
	tensors, err := parseSafetensors(safetensorsFile(header, 30))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range tensors {
		got = append(got, fmt.Sprintf("%s %v %v %d", s.name, s.kind, s.shape, len(s.data)))
	}
	if diff := cmp.Diff([]string{"a F32 [4] 16", "b BF16 [2 3] 12", "s F16 [] 2"}, got); diff != "" {
		t.Fatalf("tensors differ (-want +got):\n%s", diff)
	}
}

func TestA38_SafetensorsRefused(t *testing.T) {
	good := tensorEntry("a", "F32", "4", "0,16")
	length := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for _, test := range []struct {
		name string
		file []byte
		want string
	}{
		{"shorter than a length", []byte{1, 2, 3}, "passes the end of the file (3 bytes)"},
		{"header length 0", append(length(0), "{}"...), "header of 0 bytes is not a JSON object"},
		{"header length 7", append(length(7), `{"a":{"dtype`...), "unexpected EOF"},
		{"header length 2^63", append(length(1<<63), "{}"...), "header of 9223372036854775808 bytes is longer than the 100000000"},
		{"header beyond the file", append(length(100), "{}"...), "the header of 100 bytes at offset 8 passes the end of the file (10 bytes)"},
		{"JSON cut", safetensorsFile("{"+good, 16), "header"},
		{"not an object", safetensorsFile("[1]", 0), "not a JSON object"},
		{"text after the object", safetensorsFile("{"+good+"}x", 16), "header"},
		{"deep JSON", safetensorsFile(`{"a":`+strings.Repeat("[", 20000), 0), `tensor "a"`},
		{"tensor twice", safetensorsFile("{"+good+","+good+"}", 16), `tensor "a" stands twice`},
		{"dtype", safetensorsFile("{"+tensorEntry("q", "I32", "4", "0,16")+"}", 16), `tensor "q": dtype "I32" is not supported`},
		{"null entry", safetensorsFile(`{"q":null}`, 0), `tensor "q": dtype ""`},
		{"negative dimension", safetensorsFile("{"+tensorEntry("q", "F32", "-4", "0,16")+"}", 16), `tensor "q"`},
		{"dimension 0", safetensorsFile("{"+tensorEntry("q", "F32", "0", "0,0")+"}", 0), "has no values"},
		{"one offset", safetensorsFile("{"+tensorEntry("q", "F32", "4", "0")+"}", 16), "are not a tensor's"},
		{"offsets backwards", safetensorsFile("{"+tensorEntry("q", "F32", "4", "16,0")+"}", 16), "are not a tensor's"},
		{"size is not shape by dtype", safetensorsFile("{"+tensorEntry("q", "F32", "4", "0,8")+"}", 8), "takes 16 bytes, but data_offsets [0 8] hold 8"},
		{"overflowing shape", safetensorsFile("{"+tensorEntry("q", "F32", "4294967296,4294967296,4", "0,0")+"}", 0), `tensor "q": shape`},
		{"offsets beyond the file", safetensorsFile("{"+good+"}", 15), `tensor "a": data_offsets [0 16] pass the end of the data (15 bytes, 1 too few)`},
		{"overlap", safetensorsFile("{"+good+","+tensorEntry("b", "F32", "2", "8,16")+"}", 16), `tensor "b": begins at byte 8 of the data, inside tensor "a"`},
		{"hole", safetensorsFile("{"+good+","+tensorEntry("b", "F32", "2", "20,28")+"}", 28), "begins at byte 20 of the data, but the tensors before it end at 16"},
		{"bytes left over", safetensorsFile("{"+good+"}", 20), "tensors take 16 bytes, but the data has 20"},
		{"Git LFS pointer", []byte(pointerPrefix + "/spec/v1\noid sha256:00\nsize 4\n"), "Git LFS pointer"},
		{"empty", nil, "the file is empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, configFile, []byte("{}"))
			writeFile(t, dir, singleFile, test.file)
			refused(t, dir, singleFile, test.want)
		})
	}
}

// TestA38_SafetensorsCut opens every prefix of a file; none may be accepted, and none may panic.
func TestA38_SafetensorsCut(t *testing.T) {
	whole := safetensorsFile("{"+tensorEntry("a", "F32", "4", "0,16")+"}", 16)
	for size := range whole {
		if _, err := parseSafetensors(whole[:size:size]); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted", size, len(whole))
		}
	}
}

// oneTensor is a safetensors file with a float32 tensor of one value.
func oneTensor(name string, x float32) []byte {
	file := safetensorsFile("{"+tensorEntry(name, "F32", "1", "0,4")+"}", 0)
	return binary.LittleEndian.AppendUint32(file, math.Float32bits(x))
}

func indexText(t *testing.T, homes map[string]string) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"weight_map": homes})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func writeFiles(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, configFile, []byte("{}"))
	for name, data := range files {
		writeFile(t, dir, name, data)
	}
	return dir
}

func TestA38_DirectoryFiles(t *testing.T) {
	const first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  []string
	}{
		{"single file beside strays", map[string][]byte{
			singleFile: oneTensor("a", 1), "consolidated.safetensors": oneTensor("x", 1),
			"adapter_model.safetensors": oneTensor("y", 1), "other.safetensors": oneTensor("a", 2),
		}, []string{"a"}},
		{"shards without index", map[string][]byte{
			first: oneTensor("a", 1), second: oneTensor("b", 1), "consolidated.safetensors": oneTensor("a", 1),
		}, []string{"a", "b"}},
		{"index leaves files out", map[string][]byte{
			indexFile: indexText(t, map[string]string{"a": first}), first: oneTensor("a", 1), second: oneTensor("a", 2),
			"adapter_model.safetensors": oneTensor("y", 1), singleFile: []byte("damaged"),
		}, []string{"a"}},
		{"one file of another name", map[string][]byte{"weights.safetensors": oneTensor("w", 1)}, []string{"w"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := openTest(t, writeFiles(t, test.files))
			if diff := cmp.Diff(test.want, c.Names()); diff != "" {
				t.Fatalf("names differ (-want +got):\n%s", diff)
			}
			tensor, _ := c.Tensor(test.want[0])
			value := make([]float32, 1)
			if tensor.Row(value, 0); value[0] != 1 {
				t.Errorf("%s is %v, want 1", test.want[0], value[0])
			}
		})
	}
}

func TestA38_DirectoryRefused(t *testing.T) {
	const first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	index := func(homes ...string) []byte {
		places := make(map[string]string)
		for i := 0; i < len(homes); i += 2 {
			places[homes[i]] = homes[i+1]
		}
		return indexText(t, places)
	}
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  []string
	}{
		{"no weights", nil, []string{"no model.safetensors", "convert the weights"}},
		{"only GGUF", map[string][]byte{"m.gguf": nil}, []string{"pass the path of m.gguf itself"}},
		{"only strays", map[string][]byte{"adapter_model.safetensors": oneTensor("a", 1)}, []string{"no model.safetensors"}},
		{"absent shard", map[string][]byte{indexFile: index("a", first, "b", second), first: oneTensor("a", 1)},
			[]string{indexFile, `tensor "b" lies in a missing shard`, second}},
		{"absent shard without index", map[string][]byte{second: oneTensor("b", 1)}, []string{first + " is missing beside " + second}},
		{"tensor not in its shard", map[string][]byte{indexFile: index("a", first, "b", first), first: oneTensor("a", 1)},
			[]string{indexFile, first + ` lacks tensor "b"`}},
		{"tensor in another shard", map[string][]byte{
			indexFile: index("a", second, "b", first), first: oneTensor("a", 1), second: oneTensor("b", 1),
		}, []string{`tensor "a" lies in ` + first + ", but the index places it in " + second}},
		{"tensor in two shards", map[string][]byte{first: oneTensor("a", 1), second: oneTensor("a", 1)},
			[]string{second, `tensor "a" is in ` + first + " too"}},
		{"index points outside", map[string][]byte{indexFile: index("a", "../x.safetensors")}, []string{`"../x.safetensors", which is not the name`}},
		{"index names no tensors", map[string][]byte{indexFile: []byte("{}")}, []string{"weight_map names no tensors"}},
		{"index cut", map[string][]byte{indexFile: []byte(`{"weight_map":`)}, []string{indexFile, "not valid JSON (14 bytes)"}},
		{"config cut", map[string][]byte{configFile: []byte("{"), singleFile: oneTensor("a", 1)}, []string{configFile, "not valid JSON"}},
		{"config is a pointer", map[string][]byte{configFile: []byte(pointerPrefix + "/spec")}, []string{configFile, "Git LFS pointer"}},
		{"generation config cut", map[string][]byte{generationFile: nil, singleFile: oneTensor("a", 1)}, []string{generationFile, "not valid JSON (0 bytes)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, writeFiles(t, test.files), test.want...)
		})
	}
}

func TestOpenRefused(t *testing.T) {
	dir := t.TempDir()
	refused(t, filepath.Join(dir, "absent"), "absent", "no such file")
	refused(t, dir, configFile, "no such file")
	refused(t, writeFile(t, dir, "m.bin", []byte("x")), "m.bin", "neither a directory nor a .gguf file")
	if err := os.Mkdir(filepath.Join(dir, singleFile), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, configFile, []byte("{}"))
	refused(t, dir, singleFile, "not a regular file")
}
