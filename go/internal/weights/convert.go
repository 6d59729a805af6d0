package weights

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// The kinds of quantization that Convert knows.
const (
	Int8 = "int8"
	Int4 = "int4"
)

var quantizationBits = map[string]int{Int8: 8, Int4: 4}

// Conversion says what Convert is to do.
type Conversion struct {
	Input        string // a Hugging Face directory
	Output       string // the directory to make
	Quantization string // Int8 or Int4
	Progress     io.Writer
}

// Convert quantizes a model and saves it as a Hugging Face directory of the form that the package's comment describes,
// with the tokenizer and all else that the model needs. The output comes into being whole or not at all: it is written
// beside its place, under another name. Errors name the tensor at fault; that of an output that exists wraps
// fs.ErrExist.
func Convert(ctx context.Context, c Conversion) error {
	if err := c.run(ctx); err != nil {
		return fmt.Errorf("weights: convert %s to %s: %w", c.Input, c.Output, err)
	}
	return nil
}

func (c *Conversion) run(ctx context.Context) (err error) {
	bits, ok := quantizationBits[c.Quantization]
	if !ok {
		return fmt.Errorf("there is no quantization %q, only %s and %s", c.Quantization, Int8, Int4)
	}
	c.Output = filepath.Clean(c.Output)
	if _, err := os.Lstat(c.Output); err == nil {
		return fmt.Errorf("the output is there already: remove it, or choose another: %w", fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	source, err := openUnquantized(c.Input)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	work, err := os.MkdirTemp(filepath.Dir(c.Output), ".convert-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	if err := errors.Join(writeConfig(work, source.Config, bits), copySmallFiles(work, c.Input)); err != nil {
		return err
	}
	if err := c.writeWeights(ctx, filepath.Join(work, singleFile), source, bits); err != nil {
		return err
	}
	return errors.Join(os.Chmod(work, 0o755), os.Rename(work, c.Output))
}

// openUnquantized opens a model that can be converted.
func openUnquantized(path string) (*Checkpoint, error) {
	if strings.HasSuffix(path, ".gguf") {
		return nil, errors.New("a GGUF file has its tokenizer in another form than a Hugging Face directory: take the " +
			"directory that it was made of, or run the GGUF file as it is")
	}
	source, err := Open(path)
	if err != nil {
		return nil, err
	}
	if q, err := readQuantization(source.Config); err != nil || q != nil {
		if err == nil {
			err = fmt.Errorf("the model is quantized already, to %d bits: take the one that it was made of", q.Bits)
		}
		return nil, errors.Join(err, source.Close())
	}
	return source, nil
}

// writeConfig writes the model's config.json with a quantization_config.
func writeConfig(dir string, config []byte, bits int) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	q, err := json.Marshal(quantization{Method: ownMethod, Bits: bits, GroupSize: groupSize})
	if err != nil {
		return err
	}
	fields["quantization_config"] = q
	text, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, configFile), append(text, '\n'), 0o644)
}

// copySmallFiles copies what a model has beside its configuration and weights, and the terms of its use.
func copySmallFiles(to, from string) error {
	names := slices.DeleteFunc(slices.Clone(smallFiles), func(name string) bool { return name == configFile || name == indexFile })
	for _, pattern := range []string{"additional_chat_templates/*", "LICENSE*", "NOTICE*"} {
		found, err := fs.Glob(os.DirFS(from), pattern)
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		target := filepath.Join(to, name)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(target), 0o755)); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// conversion is a tensor on its way: bits is 0 for one that stays as it is and has no scales.
type conversion struct {
	source        Tensor
	bits          int
	codes, scales *section
}

// bitsFor returns the bits that a tensor of a model of that many bits has, 0 if it is not quantized.
func bitsFor(t Tensor, bits int) int {
	base, ok := strings.CutSuffix(t.name, weightEnd)
	if !ok || len(t.shape) != 2 || t.Cols()%groupSize != 0 {
		return 0
	}
	switch module := base[strings.LastIndexByte(base, '.')+1:]; {
	case module == "embed_tokens" || module == "lm_head":
		return 8
	case strings.HasSuffix(module, "_proj"):
		return bits
	}
	return 0
}

// plan says what becomes of each tensor.
func plan(source *Checkpoint, bits int) (plans []conversion, sections []*section, err error) {
	quantized := 0
	for _, name := range source.Names() {
		t, _ := source.Tensor(name)
		p := conversion{source: t, bits: bitsFor(t, bits), codes: &section{name: name, kind: t.kind, shape: t.shape}}
		sections = append(sections, p.codes)
		if p.bits > 0 {
			quantized++
			rows, cols := t.shape[0], t.shape[1]
			p.codes.kind = I8
			if p.bits == 4 {
				p.codes.kind = U8
			}
			p.codes.shape = []int{rows, cols / groupSize * encoders[p.bits].size}
			p.scales = &section{name: strings.TrimSuffix(name, weightEnd) + scaleEnd, kind: F16, shape: []int{rows, cols / groupSize}}
			sections = append(sections, p.scales)
		}
		plans = append(plans, p)
	}
	if quantized == 0 {
		return nil, nil, fmt.Errorf("none of its %d tensors is a projection whose rows are whole groups of %d values", len(plans), groupSize)
	}
	return plans, sections, nil
}

// writeWeights writes the model's tensors to one safetensors file.
func (c *Conversion) writeWeights(ctx context.Context, path string, source *Checkpoint, bits int) (err error) {
	plans, sections, err := plan(source, bits)
	if err != nil {
		return err
	}
	file, err := createSafetensors(path, sections)
	if err != nil {
		return err
	}
	defer func() { err = file.finish(err) }()
	progress := &conversionProgress{to: c.Progress, last: time.Now()}
	for i := range plans {
		progress.total += plans[i].source.Bytes()
	}
	for i := range plans {
		if err := plans[i].write(ctx, file, progress); err != nil {
			return fmt.Errorf("tensor %q: %w", plans[i].source.name, err)
		}
	}
	fmt.Fprintf(c.Progress, "converted %s to %s\n", megabytes(progress.total), megabytes(file.size))
	return nil
}

// write writes the tensor; the rows of one that is quantized are divided among the cores.
func (p *conversion) write(ctx context.Context, file *safetensorsWriter, progress *conversionProgress) error {
	if p.bits == 0 {
		progress.add(p.source.Bytes())
		_, err := file.at(p.codes, 0).Write(p.source.data)
		return errors.Join(err, ctx.Err())
	}
	workers := min(runtime.GOMAXPROCS(0), p.source.Rows())
	errs := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			first, end := w*p.source.Rows()/workers, (w+1)*p.source.Rows()/workers
			errs[w] = p.writeRows(ctx, file, first, end, progress)
		})
	}
	group.Wait()
	return cmp.Or(errs...)
}

// writeRows quantizes and writes the rows from first to before end.
func (p *conversion) writeRows(ctx context.Context, file *safetensorsWriter, first, end int, progress *conversionProgress) error {
	row := make([]float32, p.source.Cols())
	code, scale := make([]byte, p.codes.shape[1]), make([]byte, p.scales.shape[1]*scaleBytes)
	codes := bufio.NewWriterSize(file.at(p.codes, first), 1<<20)
	scales := bufio.NewWriterSize(file.at(p.scales, first), 1<<16)
	for r := first; r < end; r++ {
		p.source.Row(row, r)
		if err := quantizeRow(code, scale, row, p.bits); err != nil {
			return fmt.Errorf("row %d: %w", r, err)
		}
		_, errCodes := codes.Write(code)
		_, errScales := scales.Write(scale)
		if err := errors.Join(errCodes, errScales, ctx.Err()); err != nil {
			return err
		}
		progress.add(p.source.Bytes() / int64(p.source.Rows()))
	}
	return errors.Join(codes.Flush(), scales.Flush())
}

// conversionProgress writes how far a conversion is, at most every few seconds.
type conversionProgress struct {
	mu          sync.Mutex
	to          io.Writer
	done, total int64
	last        time.Time
}

func (p *conversionProgress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if now := time.Now(); now.Sub(p.last) >= reportInterval {
		p.last = now
		fmt.Fprintf(p.to, "converting: %d%% of %s\n", 100*p.done/max(p.total, 1), megabytes(p.total))
	}
}
