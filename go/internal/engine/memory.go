package engine

import (
	"bufio"
	"fmt"
	"os"

	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// kvCap bounds the KV cache that is chosen without being asked for: more seldom
// helps on a CPU, and the memory serves the rest of the machine better.
const kvCap = 4 << 30

// PageBytes is the size of one KV page over all layers.
func PageBytes(c model.Config, pageSize int, dt ops.DType) int64 {
	return int64(2*c.Layers*c.KVHeads*c.HeadDim*pageSize) * int64(dt.Size())
}

// ChooseNumPages returns how many pages to allocate: a share of the free memory
// after the weights, at most what maxRunning requests of maxSeqLen tokens could
// use, and at most 4 GiB. It also returns which of these bounds it was.
func ChooseNumPages(c model.Config, dt ops.DType, pageSize, maxRunning, maxSeqLen int, ratio float64) (pages int, bound string, err error) {
	free, err := freeMemory()
	if err != nil {
		return 0, "", err
	}
	page := PageBytes(c, pageSize, dt)
	bytes := int64(ratio*float64(free)) - WeightBytes(c, dt)
	useful := int64(maxRunning) * int64((maxSeqLen+pageSize-1)/pageSize)
	n := min(min(bytes, kvCap)/page, useful)
	switch n {
	case useful:
		bound = "all that max_running_req requests of max_seq_len tokens can use"
	case kvCap / page:
		bound = "the cap of 4 GiB; num_page_override sets more"
	default:
		bound = fmt.Sprintf("memory_ratio %v of %d MiB free memory, less the weights", ratio, free>>20)
	}
	if n < 2 {
		return 0, "", fmt.Errorf("engine: %d MiB of memory are free; after the weights (%d MiB) there is no room for KV pages of %d bytes: free some memory, raise memory_ratio (%v) or choose a smaller model",
			free>>20, WeightBytes(c, dt)>>20, page, ratio)
	}
	return int(n), bound, nil
}

// WeightBytes estimates the size of the loaded weights.
func WeightBytes(c model.Config, dt ops.DType) int64 {
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
	return n * int64(dt.Size())
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
