package weights

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// section is a tensor of a safetensors file that is to be written.
type section struct {
	name  string
	kind  Type // F32, F16, BF16, I8 or U8
	shape []int
	start int64 // of its values in the file, once it is laid out
}

func (s *section) bytes() int64 {
	size := int64(formats[s.kind].blockBytes)
	for _, dim := range s.shape {
		size *= int64(dim)
	}
	return size
}

// safetensorsWriter is a file whose header is written, so that the values of its sections can be, in any order.
type safetensorsWriter struct {
	file *os.File
	size int64
}

// createSafetensors begins a file at path, which must not exist, and places the sections in it: those of wider types
// first, so that all are aligned.
func createSafetensors(path string, sections []*section) (*safetensorsWriter, error) {
	header, size, err := layOut(sections)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(header); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &safetensorsWriter{file: file, size: size}, nil
}

// layOut returns the header, from its length on, and the size of the whole file.
func layOut(sections []*section) (header []byte, size int64, err error) {
	slices.SortFunc(sections, func(a, b *section) int {
		return cmp.Or(cmp.Compare(formats[b.kind].blockBytes, formats[a.kind].blockBytes), cmp.Compare(a.name, b.name))
	})
	fields := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var end int64
	for _, s := range sections {
		s.start = end
		end += s.bytes()
		fields[s.name] = entry{DType: s.kind.String(), Shape: unsigned(s.shape), Offsets: []uint64{uint64(s.start), uint64(end)}}
	}
	if len(fields) != len(sections)+1 {
		return nil, 0, errors.New("two tensors have one name")
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, 0, err
	}
	for len(text)%lengthBytes != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeaderBytes {
		return nil, 0, fmt.Errorf("%d tensors need a header of %d bytes: at most %d are allowed", len(sections), len(text), maxHeaderBytes)
	}
	header = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	for _, s := range sections {
		s.start += int64(len(header))
	}
	return header, end + int64(len(header)), nil
}

func unsigned(shape []int) []uint64 {
	out := make([]uint64, len(shape))
	for i, dim := range shape {
		out[i] = uint64(dim)
	}
	return out
}

// at returns a writer of a section's values from a row on. Several may be in use at a time.
func (f *safetensorsWriter) at(s *section, row int) io.Writer {
	start := s.start
	if row > 0 {
		start += int64(row) * (s.bytes() / int64(s.shape[0]))
	}
	return io.NewOffsetWriter(f.file, start)
}

// finish closes the file after err, which it returns. Without one, all must have been written.
func (f *safetensorsWriter) finish(err error) error {
	if err != nil {
		return errors.Join(err, f.file.Close())
	}
	info, err := f.file.Stat()
	if err == nil && info.Size() != f.size {
		err = fmt.Errorf("%s has %d bytes instead of %d", f.file.Name(), info.Size(), f.size)
	}
	return errors.Join(err, f.file.Sync(), f.file.Close())
}
