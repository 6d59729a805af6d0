package weights

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Checkpoint is an opened model: its tensors under Hugging Face names, its configuration as the text of a Hugging Face
// config.json, and what a tokenizer needs. Its methods except Close are safe for concurrent use.
type Checkpoint struct {
	Path         string    // what was opened
	Config       []byte    // config.json, or one made from GGUF metadata
	Generation   []byte    // generation_config.json, nil when absent
	TokenizerDir string    // the Hugging Face directory, "" for GGUF
	Metadata     *Metadata // GGUF metadata, nil for Hugging Face

	tensors  map[string]Tensor
	mappings []*mapping
}

// Open opens a .gguf file or a Hugging Face directory (config.json and safetensors files) and checks its headers.
// Errors name the file and the tensor at fault, with expected and actual sizes.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("weights: open model: %w", err)
	}
	c := &Checkpoint{Path: path, tensors: make(map[string]Tensor)}
	switch {
	case info.IsDir():
		if err = c.openDirectory(path); err == nil {
			err = c.openShards(path)
		}
	case strings.HasSuffix(path, ".gguf"):
		err = c.openGGUF(path)
	default:
		err = errors.New("neither a directory nor a .gguf file")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("weights: open %s: %w", path, err), c.Close())
	}
	return c, nil
}

// OpenBare opens a model without its weights: a .gguf file, or a Hugging Face directory that needs no safetensors
// files. It has no tensors.
func OpenBare(path string) (*Checkpoint, error) {
	if strings.HasSuffix(path, ".gguf") {
		c, err := Open(path)
		if err == nil {
			err = c.Close() // Config and Metadata stay
		}
		return c, err
	}
	c := &Checkpoint{Path: path}
	if err := c.openDirectory(path); err != nil {
		return nil, fmt.Errorf("weights: open %s: %w", path, err)
	}
	return c, nil
}

// Names returns the names of all tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.tensors)) }

// Tensor returns the tensor of that name.
func (c *Checkpoint) Tensor(name string) (Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Close unmaps the files. Tensors must not be used afterwards; Config and Metadata may be.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, m := range c.mappings {
		errs = append(errs, m.Close())
	}
	c.mappings, c.tensors = nil, nil
	return errors.Join(errs...)
}

// Release lets the system take back the memory that rows [from, to) of a tensor take. It is as with a cache: they may
// be read again, and lie in the mapped file.
func (c *Checkpoint) Release(t Tensor, from, to int) {
	size := len(t.data) / max(1, t.Rows())
	for _, m := range c.mappings {
		if size > 0 && within(t.data, m.data) {
			m.release(t.data[from*size : to*size])
		}
	}
}

// mapFile maps a file for as long as the checkpoint is open.
func (c *Checkpoint) mapFile(path string) (*mapping, error) {
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	c.mappings = append(c.mappings, m)
	return m, nil
}

func (c *Checkpoint) openGGUF(path string) error {
	m, err := c.mapFile(path)
	if err != nil {
		return err
	}
	return c.loadGGUF(m.data)
}

// loadGGUF fills the checkpoint from the bytes of a GGUF file.
func (c *Checkpoint) loadGGUF(data []byte) error {
	metadata, tensors, err := parseGGUF(data)
	if err != nil {
		return err
	}
	name, arch, err := architectureOf(metadata)
	if err != nil {
		return err
	}
	settings := &settings{metadata: metadata, prefix: name + "."}
	if err := settings.checkUnsplit(); err != nil {
		return err
	}
	for i := range tensors {
		if err := c.addGGUF(&tensors[i], &arch, settings); err != nil {
			return err
		}
	}
	c.Metadata = metadata
	c.Config, err = makeConfig(settings, &arch, tensors)
	return err
}

// addGGUF adds one tensor under its Hugging Face name and in Hugging Face's row order.
func (c *Checkpoint) addGGUF(t *stored, arch *architecture, settings *settings) error {
	if t.name == ropeFactors || t.name == longFactors || t.name == shortFactors {
		return nil
	}
	layers, err := settings.positive("block_count")
	if err != nil {
		return err
	}
	name, module, err := arch.rename(t.name, layers)
	if err != nil {
		return err
	}
	if strings.Contains(name, "*") {
		return c.addExperts(t, name, settings)
	}
	if _, twice := c.tensors[name]; twice {
		return fmt.Errorf("tensor %q stands twice", t.name)
	}
	tensor := Tensor{name: name, kind: t.kind, shape: t.shape, data: t.data, plusOne: arch.plusOne && strings.HasSuffix(name, "norm.weight")}
	if key, ok := arch.rotated[module]; ok {
		heads, err := settings.heads(key)
		if err != nil {
			return err
		}
		if tensor.order, err = order(t, heads); err != nil {
			return err
		}
	}
	c.tensors[name] = tensor
	return nil
}
