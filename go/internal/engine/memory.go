package engine

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// kvCap bounds the KV cache on a CPU that is chosen without being asked for: more seldom
// helps there, and the memory serves the rest of the machine better.
const kvCap = 4 << 30

// PageBytes is the size of one KV page over all layers.
func PageBytes(c model.Config, pageSize int, dt ops.DType) int64 {
	return int64(2*c.Layers*ops.CacheCols(dt, c.KVHeads, c.HeadDim)*pageSize) * int64(dt.Size())
}

// usefulPages is the number of pages that the running requests can use together.
func (c Config) usefulPages() int64 { return int64(c.MaxRunning) * int64(c.pagesOf(c.MaxSeqLen)) }

const usefulBound = "all that max_running_req requests of max_seq_len tokens can use"

// ChooseNumPages returns how many pages to allocate in the machine's memory: a share of
// what is free after weights and activations, at most what the running requests could
// use, and at most 4 GiB. It also returns which of these bounds it was. cfg needs no
// NumPages; ck may be without tensors.
func ChooseNumPages(cfg Config, c model.Config, ck *weights.Checkpoint) (pages int, bound string, err error) {
	free, err := freeMemory()
	if err != nil {
		return 0, "", err
	}
	page := PageBytes(c, cfg.PageSize, cfg.KVDType)
	needed := weightBytes(cfg, c, ck) + activationBytes(cfg, c)
	bytes := int64(cfg.MemoryRatio*float64(free)) - needed
	useful := cfg.usefulPages()
	n := min(min(bytes, kvCap)/page, useful)
	switch n {
	case useful:
		bound = usefulBound
	case kvCap / page:
		bound = "the cap of 4 GiB; num_page_override sets more"
	default:
		bound = fmt.Sprintf("memory_ratio %v of %d MiB free memory, less weights and activations", cfg.MemoryRatio, free>>20)
	}
	if n < 2 {
		return 0, "", fmt.Errorf("engine: %d MiB of memory are free; after weights and activations (%d MiB) there is no room for KV pages of %d bytes: free some memory, raise memory_ratio (%v), lower max_extend_tokens or choose a smaller model",
			free>>20, needed>>20, page, cfg.MemoryRatio)
	}
	return int(n), bound, nil
}

// activationBytes is the size of the activations of the largest batch.
func activationBytes(cfg Config, c model.Config) (bytes int64) {
	model.NewScratch(c, cfg.MaxExtendTokens+cfg.maxSamples(), cfg.maxSamples(), func(rows, cols int) ops.Tensor {
		t := ops.New(0, rows, cols, ops.F32)
		bytes += t.Bytes()
		return t
	})
	return bytes + int64(len(c.Ropes))*int64(cfg.MaxSeqLen)*int64(c.HeadDim)*4
}

// weightBytes estimates the size of the loaded weights: of the checkpoint's
// tensors or, where it has none, of what the configuration asks for.
func weightBytes(cfg Config, c model.Config, ck *weights.Checkpoint) int64 {
	names := ck.Names()
	if len(names) == 0 {
		return int64(float64(parameters(c)) * packedBytes(cfg.DType))
	}
	var bytes float64
	for _, name := range names {
		t, _ := ck.Tensor(name)
		bytes += loadedBytes(cfg, &t)
	}
	return int64(bytes)
}

// loadedBytes estimates the size of a tensor that is loaded by itself.
func loadedBytes(cfg Config, t *weights.Tensor) float64 {
	ld := loader{dtype: cfg.DType, quantization: cfg.Quantization, hasFloat8: cfg.HasFloat8}
	return float64(t.Rows()) * float64(t.Cols()) * packedBytes(ld.weightType([]stacked{{tensor: t}}))
}

// StepBytes estimates what a decoding step reads of the weights: all but an
// embedding that is not the head as well.
func StepBytes(cfg Config, c model.Config, ck *weights.Checkpoint) int64 {
	bytes := weightBytes(cfg, c, ck)
	if c.TieEmbeddings {
		return bytes
	}
	for _, name := range ck.Names() {
		if t, _ := ck.Tensor(name); strings.HasSuffix(name, "embed_tokens.weight") {
			return bytes - int64(loadedBytes(cfg, &t))
		}
	}
	return bytes
}

// FlopsPerToken counts the operations of a token's projections, without the head:
// two for each weight that it meets.
func FlopsPerToken(c model.Config) float64 {
	met := c
	if c.MoE.NumExperts > 0 {
		met.MoE.NumExperts = c.MoE.NumExpertsPerTok
	}
	met.TieEmbeddings = true
	return 2 * float64(parameters(met)-int64(c.VocabSize)*int64(c.HiddenSize))
}

// packedBytes is the size of a value of a loaded weight, its share of scales and
// minima included.
func packedBytes(dt ops.DType) float64 {
	q, ok := dt.Quant()
	switch {
	case dt == ops.F8:
		return 1 + 4.0/ops.F8Group
	case !ok:
		return float64(dt.Size())
	}
	scale := 4
	if dt == ops.Q8 || dt == ops.Q4 {
		scale = 2
	}
	if q.Minima {
		scale *= 2
	}
	return float64(q.Bits)/8 + float64(scale)/float64(q.Group)
}

// parameters is the number of weights that a configuration asks for.
func parameters(c model.Config) int64 {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	n := int64(c.VocabSize) * int64(c.HiddenSize)
	for i := range c.Layers {
		rows := 2*q + 2*kv
		if c.MoE.Sparse(i) {
			rows += c.MoE.NumExperts * (1 + 3*c.MoE.IntermediateSize)
		} else {
			rows += 3 * c.IntermediateSize
		}
		n += int64(c.HiddenSize) * int64(rows)
	}
	if !c.TieEmbeddings {
		n += int64(c.VocabSize) * int64(c.HiddenSize)
	}
	return n
}

// freeMemory is what the system could give to a new program, in bytes.
func freeMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("engine: finding the free memory: %w; set num_page_override", err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(sc.Text(), "MemAvailable: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("engine: /proc/meminfo has no MemAvailable; set num_page_override")
}
